"""What the workers that read one capture share: the scan, what of it was given, and the pace at which it is.

Theory of operation
-------------------
A packet's due time is reckoned from one anchor, never from the packet before (:mod:`wirespeed.ports.pacing` for a
rate).  By the file's own time stamps, the nanoseconds since the first packet are summed exactly and scaled once; where
time stands still or goes back, the gap is nothing, and a packet without a time has none.

Thread rules: who works on a feed holds its ``lock``, where it has several workers.
"""

from fractions import Fraction

import numpy as np

from wirespeed.core.stage import Head
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns
from wirespeed.net.capture.scan import Scan
from wirespeed.net.capture.scanner import find, over, restart
from wirespeed.net.capture.window import STREAM, refill
from wirespeed.ports.pacing import Pacer, advance, begin

i64 = np.int64
AT_ONCE, BY_RATE, BY_TIME = 0, 1, 2
FARTHEST_NS = 1 << 61  # 73 years

Feed = layout(
    "CaptureFeed",
    [
        ("lock", "u4"),
        ("ended", "u4"),  # nothing more will come
        ("left", "i8"),  # packets still to give, or -1 for no end
        ("passes", "i8"),  # passes that follow this one, or -1 for no end
        ("gap_ns", "i8"),  # between two passes
        ("pace", "i8"),  # AT_ONCE, BY_RATE or BY_TIME
        ("times", "i8"),  # BY_TIME: time is scaled by per / times
        ("per", "i8"),
        ("longest", "i8"),  # elapsed / times is taken for no more than this, so that products fit
        ("anchor", "i8"),  # when the first packet was due; 0: not begun
        ("elapsed", "i8"),  # nanoseconds from the first packet to the last one given, by their times
        ("previous", "i8"),  # the time of the last one given, or 0
        ("options_cut", "i8"),  # packets whose options did not fit, or went beyond their block
        ("pacer", Pacer),
        ("scan", Scan),
    ],
)
SCAN = Feed.offset("scan")


@kernel(inline=True)
def elapsed_at(f, e):
    """Nanoseconds from the first packet to an entry, by their times."""
    gap = e.time - f.previous
    return f.elapsed + gap if e.time != 0 and f.previous != 0 and gap > 0 else f.elapsed


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
        Head(state).due_ns = when
    return when > now


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
        begin(f.pacer, now)
    return now


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
    f.previous = 0
    f.anchor += f.gap_ns
    f.pacer.due += f.gap_ns
    return True


@kernel
def more(f, feed):
    """Find more packets; how many there are.  Notes when nothing more will come."""
    n = find(feed + SCAN)
    if n == 0 and over(f.scan) and not next_pass(f):
        f.ended = 1
    return n


def set_speed(feed: int, times: Fraction) -> None:
    """Have the packets of the ``Feed`` at an address come by their own times, so many times as fast."""
    f = Feed.at(feed)
    f.pace, f.times, f.per = BY_TIME, times.numerator, times.denominator
    f.longest = FARTHEST_NS // times.denominator
