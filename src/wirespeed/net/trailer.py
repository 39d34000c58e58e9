"""The trailer by which a packet is known again: the last 18 bytes of a frame say which one it is and when it was sent.

Theory of operation
-------------------
Eighteen bytes are what the smallest Ethernet frame, 60 bytes without its check sequence, has left behind Ethernet, IPv4
and UDP, so that frames of every size that RFC 2544 asks for can carry it.  Hence the widths: a sequence number of 48
bits goes round after 217 days at 15 million packets a second, a time of 48 bits of nanoseconds after 78 hours, which
is more than a packet is on its way.  At the end of the frame it stays where it is whatever headers are pushed, popped
or rewritten before it; what pads a frame behind its end hides it.

The magic tells a packet of a sender from any other; the check, over all that follows it, tells one that was damaged on
its way.  Both are in the clear: whoever wants to forge a trailer can.

*Source:* RFC 2544, 9.1 (sizes) and appendix C.2.6.2 (what test frames carry); RFC 768 (the checksum over it).
"""

import numpy as np

from wirespeed.jit.intrinsics import crc32c
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u32, u64 = np.int64, np.uint32, np.uint64

Trailer = layout(
    "Trailer",
    [
        ("magic", ">u2"),
        ("check", ">u2"),
        ("stream", ">u2"),
        ("sequence", ">u6"),
        ("time", ">u6"),  # nanoseconds since 1970, modulo 2^48
    ],
)
assert Trailer.size == 18
TRAILER = Trailer.size
MAGIC = 0x7753  # "wS"
LOW_48 = (1 << 48) - 1
STREAMS = 1 << 16
FOREIGN, CORRUPT, GOOD = 0, 1, 2  # what the end of a packet is


@kernel(inline=True)
def check_of(stream, sequence, time):
    """Sixteen bits that hang together with all the others."""
    value = crc32c(crc32c(u32(MAGIC), u64(sequence << 16 | stream)), u64(time))
    return i64(value >> u32(16)) ^ i64(value & u32(0xFFFF))


@kernel(inline=True)
def write_trailer(at, stream, sequence, time):
    """Write a trailer to an address; return the sum of its nine words, for a checksum that covers it."""
    sequence, time = sequence & LOW_48, time & LOW_48
    check = check_of(stream, sequence, time)
    t = Trailer(at)
    t.magic = MAGIC
    t.check = check
    t.stream = stream
    t.sequence = sequence
    t.time = time
    numbers = (sequence >> 32) + (sequence >> 16 & 0xFFFF) + (sequence & 0xFFFF)
    numbers += (time >> 32) + (time >> 16 & 0xFFFF) + (time & 0xFFFF)
    return MAGIC + check + stream + numbers


@kernel(inline=True)
def read_trailer(at):
    """What the 18 bytes at an address are (FOREIGN, CORRUPT or GOOD), and the stream, sequence and time in them."""
    t = Trailer(at)
    stream = i64(t.stream)
    sequence = i64(t.sequence)
    time = i64(t.time)
    kind = i64(FOREIGN)
    if i64(t.magic) == MAGIC:
        kind = i64(GOOD) if i64(t.check) == check_of(stream, sequence, time) else i64(CORRUPT)
    return kind, stream, sequence, time


@kernel(inline=True)
def elapsed_48(now, time):
    """Nanoseconds from a trailer's time to now, below 0 when it lies ahead: the difference of two clocks of 48 bits."""
    gone = (now - time) & LOW_48
    return gone - (LOW_48 + 1) if gone > LOW_48 >> 1 else gone
