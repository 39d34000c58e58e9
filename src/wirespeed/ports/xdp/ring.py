"""The four rings of an AF_XDP socket, and which packets the kernel has.

Theory of operation
-------------------
Two rings bring frames in: *fill* gives the kernel empty ones, *rx* brings them back filled.  Two take frames out: *tx*
gives the kernel full ones, *completion* brings them back sent.  Each has one producer and one consumer, whose counters
run modulo 2^32.  Our counters are kept here and published with release, each behind what it stands for: X0, the fill
ring's; X1, the receive ring's; X2, the transmit ring's; X3, the completion ring's.  The kernel's are read with acquire.

A frame is a packet of the pool: the socket's memory (umem) is the pool's.  The chunk which the kernel is given begins with the
packet's *record*: the kernel puts a frame 256 bytes behind the beginning of its chunk (XDP_PACKET_HEADROOM), which is
where the data of a packet begins that has its usual headroom, and does not touch the bytes before.

``marks`` has a byte for each packet of the pool: whether the kernel has it, and for what.  An address that the kernel gives
back is that of a packet which it has for that very purpose, else it is counted (``invalid``) and left alone.  Whether an
offset is a multiple of the pool's stride, and of how many, takes one multiplication: the stride is an odd number
times a power of two, and multiplying by the inverse of that odd number modulo 2^64 and rotating the zeros away gives the
quotient when there is no remainder, and otherwise a number that is larger than any quotient.

Thread rules: the stages of one worker, source and sink, share a socket; the control thread reads counters, and has all of
a socket when no stage has it as its ``socket`` any more.  X4, the releasing store of the
socket to use, hands a record to a stage, and X5 gives it back.

*Source:* Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h; Granlund and Montgomery, "Division by
Invariant Integers using Multiplication" (1994), section 9, for exact divisibility.
"""

import numpy as np

from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.pool import RECORD, alloc_bulk
from wirespeed.jit.atomics import load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import load_handle, load_u8, load_u64, prefetch, stack, store_i64, store_u8, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import address, layout

u32, i64, u64 = np.uint32, np.int64, np.uint64

# Offsets of addresses in unaligned mode are in the highest 16 bits (include/uapi/linux/if_xdp.h).
OFFSET_SHIFT = 48
ADDRESS_MASK = (1 << OFFSET_SHIFT) - 1
XDP_HEADROOM = 256  # XDP_PACKET_HEADROOM, include/uapi/linux/bpf.h
NEED_WAKEUP = 1  # XDP_RING_NEED_WAKEUP
CONTINUED = 1  # XDP_PKT_CONTD of a descriptor: the packet goes on in the next one
assert XDP_HEADROOM == RECORD + HEADROOM

# What the kernel has a packet for.
# It has the last three to be sent: SINGLE is a packet by itself, LAST the last frame of a chain, PART one before it.
OURS, FOR_FILL, SINGLE, PART, LAST = range(5)
BATCH = 64  # frames given to the kernel at once
SHORT = 32  # with so many fewer than it should have, it is given more
EXPECTED = 4  # frames that are asked for before it is known that they came: the descriptors of one line

Word = layout("XdpWord", [("value", "u4")])
Descriptor = layout("XdpDescriptor", [("address", "u8"), ("length", "u4"), ("options", "u4")])
assert Descriptor.size == 16
DESCRIPTOR = Descriptor.size

Queue = layout(
    "XdpQueue",
    [
        ("producer", "i8"),  # addresses of the two counters and the flags, in memory that the kernel shares
        ("consumer", "i8"),
        ("flags", "i8"),
        ("entries", "i8"),
        ("mask", "u4"),
        ("mine", "u4"),  # our counter: the producer's of fill and tx, the consumer's of the others
        ("length", "i8"),  # slots
    ],
)

Socket = layout(
    "XdpSocket",
    [
        ("rx", Queue),
        ("fill", Queue),
        ("tx", Queue),
        ("completion", Queue),
        # written when it is made
        ("base", "i8"),  # where the memory begins that the kernel knows,
        ("first", "i8"),  # and in it the first packet
        ("size", "i8"),  # packets of the pool
        ("stride", "i8"),  # bytes from one to the next
        ("inverse", "u8"),  # of the odd factor of the stride,
        ("shift", "u8"),  # and how often 2 is one
        ("chunk", "i8"),  # bytes of a chunk
        ("marks", "i8"),  # u1[size]
        ("fd", "i8"),
        ("target", "i8"),  # frames that the kernel is to have for receiving
        ("several", "i8"),  # whether a packet may have several frames
        ("pool", "i8"),
        ("cache", "i8"),  # of the pool; 0 where it is the run's, and the worker's cache serves
        ("zero_copy", "i8"),
        # written by the worker
        ("filled", "i8"),  # frames that it has for receiving
        ("sending", "i8"),  # packets that it has for sending
        ("begun", "i8"),  # first and last frame of a packet that goes on in the next descriptor, or 0
        ("last", "i8"),
        ("skipping", "i8"),  # whether the rest of the packet is to be skipped
        ("invalid", "u8"),  # addresses from the kernel that cannot be
        ("starved", "u8"),  # times that the pool had nothing for the fill ring
        ("wakeups", "u8"),  # system calls that had the kernel send or receive
        ("busy", "u8"),  # of these, those that it was too busy for
        (None, 40),
    ],
)

# In the state of each stage: what it is to use, and what it does.
Use = layout(
    "XdpUse",
    [
        ("next", "i8"),  # address of the socket's record, or 0 while there is none; written by the control thread
        (None, 56),
        ("socket", "i8"),  # the one in use; written by the worker
        (None, 56),
    ],
)


@kernel(inline=True)
def number_of(s, handle):
    """The number of a packet in the pool, unsigned; not below ``s.size`` for what is no handle of it."""
    product = u64(handle - s.first) * s.inverse
    return (product >> s.shift) | (product << (u64(64) - s.shift))


@kernel(inline=True)
def handle_of(s, chunk):
    """The handle that the address of a chunk stands for, whatever it is."""
    return s.base + i64(chunk & u64(ADDRESS_MASK))


@kernel(inline=True)
def filled_slots(q):
    """Entries that wait for us, the consumer."""
    return i64(u32(load_acquire(Word(q.producer), "value") - q.mine))


@kernel(inline=True)
def free_slots(q):
    """Room for us, the producer."""
    return q.length - i64(u32(q.mine - load_acquire(Word(q.consumer), "value")))


@kernel(inline=True)
def needs_wakeup(q):
    """Whether the kernel asks to be woken for this ring."""
    return load_relaxed(Word(q.flags), "value") & NEED_WAKEUP != 0


@kernel
def lend(socket, handles, n):
    """Give the kernel ``n`` empty packets to receive into; there is room for them."""
    s = Socket(socket)
    q = s.fill
    mine, mask, entries, marks = q.mine, q.mask, q.entries, s.marks
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        store_u8(marks + i64(number_of(s, handle)), FOR_FILL)  # Bounds: a packet of the socket's pool
        store_u64(entries + 8 * i64(u32(mine + u32(i)) & mask), u64(handle - s.base))
    q.mine = u32(mine + u32(n))
    store_release(Word(q.producer), "value", q.mine)  # X0
    s.filled += n


@kernel(inline=True)
def is_short(s):
    """Whether the kernel lacks enough packets to receive into for a refill to be worth it: its lines are shared."""
    return s.target - s.filled >= min(i64(SHORT), s.target >> 2)


@kernel
def refill(cache, s):
    """Give the kernel packets to receive into, as many as it is short of and the pool has."""
    handles = stack(512)  # Bounds: BATCH handles
    # What stands in the ring is among those filled, so it has room for the rest of the target, its length at most; the
    # kernel's end of it, which another core writes for each packet, need not be looked at.
    room = s.target - s.filled
    while room > 0:
        n = min(room, i64(BATCH))
        while n > 0 and alloc_bulk(cache, handles, n) == 0:
            n = n // 2
        if n == 0:
            s.starved += u64(1)
            return
        lend(address(s), handles, n)
        room -= n


@kernel(inline=True)
def expect(s):
    """Ask for what the next frames to come will be found in, without knowing whether they are there.

    The descriptor and the frame lie in the sender's core, as does the counter that tells of them; each of the three is known
    only from the one before, so one by one they would be three waits.  But the kernel uses the frames in the order in which
    it was given them, and so nearly always the longest lent ones are next.
    """
    q, f = s.rx, s.fill
    prefetch(q.entries + DESCRIPTOR * i64(q.mine & q.mask))
    longest = u32(f.mine - u32(s.filled))
    # Bounds: a slot of the ring, whatever stands there; to ask for memory that is none is harmless.
    for i in range(EXPECTED):
        handle = handle_of(s, load_u64(f.entries + 8 * i64(u32(longest + u32(i)) & f.mask)))
        prefetch(handle)
        prefetch(handle + XDP_HEADROOM)


@kernel(inline=True)
def take_filled(s, chunk):
    """The handle of a packet that the kernel gives back filled, or 0, which is counted, when it did not have it for that."""
    handle = handle_of(s, chunk)
    number = number_of(s, handle)
    # Bounds: the kernel's number is looked at first, so the mark is one of the table.
    if number >= u64(s.size) or i64(load_u8(s.marks + i64(number))) != FOR_FILL:
        s.invalid += u64(1)
        return i64(0)
    store_u8(s.marks + i64(number), OURS)
    s.filled -= 1
    return handle


@kernel
def publish(use, socket):
    """Have a stage use another socket, or none (0), from its next call on."""
    store_release(Use(use), "next", socket)  # X4


@kernel
def left_over(socket, handles):
    """Take back what the kernel has: write the handles to an address with room for the whole pool; return how many.

    For who has the socket alone, once the kernel has let go of its memory.  Each is a packet by itself then.
    """
    s = Socket(socket)
    n = i64(0)
    for number in range(s.size):
        if load_u8(s.marks + number) != OURS:
            store_u8(s.marks + number, OURS)
            handle = s.first + number * s.stride
            Packet(handle).next = 0
            Packet(handle).segments = 1
            store_i64(handles + 8 * n, handle)
            n += 1
    if s.begun != 0:
        store_i64(handles + 8 * n, s.begun)
        s.begun = 0
        n += 1
    return n
