"""One stream of packets with trailers, as it arrives: what is missing, double, out of order, and how long it took.

Theory of operation
-------------------
``next`` is one more than the largest sequence number seen.  A packet that has it, or a larger one, is in order; those
that were skipped may still come.  A smaller one is *reordered* when it comes for the first time (RFC 4737, 3.3), a
*duplicate* when it does not: a window of bits, one for each of the last ``window`` numbers, tells.  One that is older
than the window is *too late*: nobody knows any more whether it came before, so what was lost stays lost.  One that is
too late and less than the first number of the stream was not among the lost ones yet, and is one more of them.  So
``lost`` is ``next - first - unique`` and those, and ``received + lost`` what was sent, as far as has been seen: what was
lost before the first one and behind the last one nobody can know, and of those before the first one each duplicate
counts.

The *extent* of a reordered packet is how many packets arrived since the first one that should have come behind it
(RFC 4737, 4.2.2).  The one that first jumped over a number is noted at that number (``jumped``), so that an extent
takes no search.

A stream begins at number 0 when the first one seen is within a window of it, else with that one.  A sender that begins
again, or a number far off because of a damaged packet whose check fits by chance, is told from the rest by what
follows, as in RTP: an *outlier*, more than 2^32 ahead, or with a number that has been passed though sent later than all
others, is counted and changes nothing, unless the next number comes right behind it; then the stream begins anew there.
A duplicate is no such packet, for it bears the time of the first one.

Whatever a trailer says, no more is done for a packet than a pass over the window, and nothing is allocated.

Thread rules: one thread at a time works on a stream.
Source: RFC 4737, RFC 3550 (A.1 for outliers, 6.4.1 and A.8 for jitter).
"""

import numpy as np

from wirespeed.jit.intrinsics import fill, load_i64, load_u64, store_i64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.trailer import elapsed_48
from wirespeed.ports.checker.histogram import Buckets, record

i64, u64 = np.int64, np.uint64
FARTHEST = 1 << 32
JITTER = 16  # ``jitter`` is kept in this part of a nanosecond

Stream = layout(
    "Stream",
    [
        # filled when it is first met
        ("number", "i8"),
        ("window", "i8"),  # numbers in the window, a power of two
        ("bits", "i8"),  # address of one bit for each: whether it came
        ("jumped", "i8"),  # address of i8[window]: which arrival first jumped over it
        # where it is
        ("begun", "i8"),  # 1 once there was a packet
        ("origin", "i8"),  # the number with which it began,
        ("first", "i8"),  # and the least one seen since, or 0
        ("next", "i8"),
        ("arrivals", "i8"),  # packets since it began, without those that changed nothing
        ("unique", "i8"),  # numbers that came
        ("suspect", "i8"),  # the number that makes a new beginning of an outlier; -1: none
        ("newest", "i8"),  # when the latest one in order was sent
        ("transit", "i8"),  # how long the last one took
        # counters over all beginnings
        ("packets", "i8"),  # all with a good trailer
        ("bytes", "i8"),
        ("lost_before", "i8"),  # before the last beginning, and before ``first``
        ("unique_before", "i8"),
        ("duplicates", "i8"),
        ("reordered", "i8"),
        ("too_late", "i8"),
        ("outliers", "i8"),
        ("restarts", "i8"),
        ("extents", "i8"),  # sum of them
        ("longest", "i8"),  # extent
        ("early", "i8"),  # packets that came before they were sent, by the two clocks
        ("jitter", "i8"),
        ("latency", Buckets),
    ],
)


@kernel(inline=True)
def bit_of(s, sequence):
    """The address of the word with a number's bit, and the bit."""
    at = sequence & (s.window - 1)
    return s.bits + 8 * (at >> 6), u64(1) << u64(at & 63)


@kernel
def begin(s, sequence):
    """Begin, with a packet of this number about to come."""
    fill(s.bits, 0, s.window >> 3)
    s.begun = 1
    s.first = sequence if sequence >= s.window else i64(0)
    s.origin = sequence
    s.next = s.first
    s.arrivals = 0
    s.unique = 0
    s.suspect = -1


@kernel
def skip(s, sequence):
    """Go on to a number beyond the next one: those between are missing from now on."""
    window = s.window
    jumper = s.arrivals
    for at in range(max(s.next, sequence - window + 1), sequence):
        word, bit = bit_of(s, at)
        store_u64(word, load_u64(word) & ~bit)
        store_i64(s.jumped + 8 * (at & (window - 1)), jumper)


@kernel(inline=True)
def advance(s, sequence, time):
    """Take a packet that is in order."""
    if sequence != s.next:
        skip(s, sequence)
    word, bit = bit_of(s, sequence)
    store_u64(word, load_u64(word) | bit)
    s.next = sequence + 1
    s.newest = time


@kernel
def fall_back(s, sequence):
    """Take a packet within the window that others overtook; whether it came for the first time."""
    word, bit = bit_of(s, sequence)
    bits = load_u64(word)
    if bits & bit:
        s.duplicates += 1
        return False
    store_u64(word, bits | bit)
    # What is before the number with which it began was overtaken by the very first packet.
    jumper = load_i64(s.jumped + 8 * (sequence & (s.window - 1))) if sequence > s.origin else i64(0)
    s.first = min(s.first, sequence)
    extent = s.arrivals - jumper
    s.reordered += 1
    s.extents += extent
    s.longest = max(s.longest, extent)
    return True


@kernel
def begin_anew(s, sequence):
    """Begin again at an outlier, of which the one before this packet was the first."""
    s.lost_before += s.next - s.first - s.unique
    s.unique_before += s.unique
    s.restarts += 1
    s.outliers -= 1
    begin(s, sequence - 1)
    advance(s, sequence - 1, s.newest)
    s.arrivals += 1
    s.unique += 1


@kernel
def outlier(s, sequence):
    """Take a packet far off; whether it makes a new beginning.  Else it is counted and changes nothing."""
    if s.suspect == sequence and sequence > 0:
        begin_anew(s, sequence)
        return True
    s.outliers += 1
    s.suspect = sequence + 1
    return False


@kernel(inline=True)
def place(s, sequence, time):
    """Find a packet's place in the stream; whether it came for the first time."""
    ahead = sequence - s.next
    if ahead >= 0 and ahead <= FARTHEST:
        advance(s, sequence, time)
        return True
    if ahead < 0 and elapsed_48(time, s.newest) <= 0:
        if -ahead <= s.window:
            return fall_back(s, sequence)
        s.too_late += 1
        s.lost_before += i64(sequence < s.first)
        return False
    if not outlier(s, sequence):
        return False
    advance(s, sequence, time)
    return True


@kernel(inline=True)
def measure(s, now, time):
    """Note how long a packet took, and by how much that differs from the one before."""
    transit = elapsed_48(now, time)
    if transit < 0:
        s.early += 1
    if s.latency.count > 0:
        s.jitter += abs(transit - s.transit) - ((s.jitter + JITTER // 2) >> 4)
    s.transit = transit
    record(s.latency, transit)


@kernel(inline=True)
def arrive(s, sequence, time, now, size):
    """Take a packet with a good trailer."""
    s.packets += 1
    s.bytes += size
    if s.begun == 0:
        begin(s, sequence)
    if place(s, sequence, time):
        s.unique += 1
        s.arrivals += 1
        measure(s, now, time)
