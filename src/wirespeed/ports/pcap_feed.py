"""What the workers that read one capture share: the scan, what of it was given, and the pace at which it is.

Theory of operation
-------------------
A packet's due time is reckoned from one anchor, never from the packet before (:mod:`wirespeed.ports.pacing` for a
rate).  By the file's own time stamps, the nanoseconds since the first packet are summed exactly and scaled once; where
time stands still or goes back, the gap is nothing, and a packet without a time has none; a gap longer than
``gap_most`` is taken for that.  Another pass goes on where the one before ended: the whole part of what it took goes
into the anchor and the rest stays, so nothing is rounded twice and nothing overflows, however many passes there are.
Without a pace, the gap before another pass begins when the one before is over.

Thread rules: who works on a feed holds its ``lock``, where it has several workers.
"""

from fractions import Fraction

import numpy as np

from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns
from wirespeed.net.capture.scan import Scan
from wirespeed.net.capture.scanner import find, over, restart
from wirespeed.net.capture.window import STREAM, refill
from wirespeed.ports.pacing import Pacer, advance, begin, sleep_until

i64 = np.int64
AT_ONCE, BY_RATE, BY_TIME = 0, 1, 2
FARTHEST_NS = 1 << 61  # 73 years
LONGEST_NS = 1 << 62  # of a pass, in the packets' time

Feed = layout(
    "CaptureFeed",
    [
        ("lock", "u4"),
        ("ended", "u4"),  # nothing more will come
        ("left", "i8"),  # packets still to give, or -1 for no end
        ("passes", "i8"),  # passes that follow this one, or -1 for no end
        ("gap_ns", "i8"),  # between two passes
        ("resume", "i8"),  # AT_ONCE: no packet is given before this time on the monotonic clock
        ("pace", "i8"),  # AT_ONCE, BY_RATE or BY_TIME
        ("times", "i8"),  # BY_TIME: time is scaled by per / times
        ("per", "i8"),
        ("longest", "i8"),  # elapsed / times is taken for no more than this, so that products fit
        ("anchor", "i8"),  # when the first packet was due; 0: not begun
        ("gap_most", "i8"),  # no gap between two packets' times counts for more
        ("elapsed", "i8"),  # nanoseconds from the first packet to the last one given, by their times
        ("previous", "i8"),  # the time of the last one given, or 0
        ("began", "i8"),  # the first anchor
        ("given", "i8"),  # packets given at a pace, and their bytes
        ("given_bytes", "i8"),
        ("last_due", "i8"),  # when the last of them was due,
        ("last_ns", "i8"),  # and when it was given
        ("latest_ns", "i8"),  # how late the latest one was
        ("options_cut", "i8"),  # packets whose options did not fit, or went beyond their block
        ("pacer", Pacer),
        ("scan", Scan),
    ],
)
SCAN = Feed.offset("scan")


@kernel(inline=True)
def elapsed_at(f, e):
    """Nanoseconds from the first packet to an entry, by their times."""
    if e.time == 0 or f.previous == 0 or e.time <= f.previous:
        return f.elapsed
    return f.elapsed + min(min(e.time - f.previous, f.gap_most), LONGEST_NS - f.elapsed)


@kernel(inline=True)
def due(f, e):
    """When an entry is due."""
    if f.pace == BY_RATE:
        return f.pacer.due
    elapsed, times = elapsed_at(f, e), f.times
    # Two products, so that neither overflows: a remainder is less than ``times``, which is at most a million.
    return f.anchor + min(elapsed // times, f.longest) * f.per + elapsed % times * f.per // times


@kernel
def must_wait(f, state, e, now):
    """Whether an entry is not due yet; then the worker is told until when to sleep."""
    when = due(f, e)
    if when > now:
        sleep_until(when, state)
        return True
    f.last_due = when
    f.latest_ns = max(f.latest_ns, now - when)
    return False


@kernel
def pass_on(f, e):
    """Set the clock on to the packet after an entry."""
    if f.pace == BY_RATE:
        advance(f.pacer, i64(e.captured))
        return
    f.elapsed = elapsed_at(f, e)
    if e.time != 0:
        f.previous = e.time


@kernel(inline=True)
def start_clock(f):
    """The time now; the first one is the anchor."""
    now = monotonic_ns()
    if f.anchor == 0:
        f.anchor = now
        f.began = now
        begin(f.pacer, now)
    return now


@kernel(inline=True)
def note(f, now, n, size):
    """Note that ``n`` packets were given at a pace."""
    if n > 0:
        f.given += n
        f.given_bytes += size
        f.last_ns = now


@kernel
def rests(f, state):
    """Whether the gap before another pass is not over yet; then the worker is told until when to sleep."""
    if monotonic_ns() >= f.resume:
        f.resume = i64(0)
        return False
    sleep_until(f.resume, state)
    return True


@kernel
def settle(f):
    """At the end of a pass, have the anchor take up what has elapsed."""
    if f.pace == BY_TIME:
        f.anchor += min(f.elapsed // f.times, f.longest) * f.per
        f.elapsed = f.elapsed % f.times


@kernel
def next_pass(f):
    """The scan is over: begin another pass, if there is to be one; False when there is not."""
    scan = f.scan
    if f.passes == 0 or scan.packets == 0:
        return False
    if scan.window.source == STREAM and scan.window.ended == 0:
        # Damage in the middle of an unpacked file: the rest of this pass is in the pipe before the next one.
        scan.window.at = scan.window.end
        refill(scan.window)
        return True
    if f.passes > 0:
        f.passes -= 1
    restart(scan)
    settle(f)
    f.previous = 0
    f.anchor += f.gap_ns
    f.pacer.due += f.gap_ns
    if f.pace == AT_ONCE and f.gap_ns > 0:
        f.resume = monotonic_ns() + f.gap_ns
    return True


@kernel
def more(f, feed):
    """Find more packets; how many there are.  Notes when nothing more will come."""
    n = find(feed + SCAN)
    if n == 0 and over(f.scan) and not next_pass(f):
        f.ended = 1
    return n


def set_speed(feed: int, times: Fraction, gap_most: int = LONGEST_NS) -> None:
    """Have the packets of the ``Feed`` at an address come by their own times, so many times as fast.

    ``gap_most`` is the longest gap between two of them, in their time.
    """
    f = Feed.at(feed)
    f.pace, f.times, f.per = BY_TIME, times.numerator, times.denominator
    f.longest = FARTHEST_NS // times.denominator
    f.gap_most = gap_most
