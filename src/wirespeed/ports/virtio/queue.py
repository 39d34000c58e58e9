"""A virtqueue as the device side keeps it: where its rings are, how far it is, what was counted.

Theory of operation
-------------------
One block of memory a queue, :data:`QUEUE_BYTES` long and zeroed, on a cache line of its own: the record, behind it the
shadow of the used ring, the pieces of the chain that is looked at, the jobs of a burst, and the words of the dirty log
that are still to be written.  :func:`lay_out` fills in where these are; the session fills in the rest, with the gate
closed.  To start a queue: the addresses, ``size``, the features, ``last_avail`` and ``last_used`` (of a packed ring the
two wrap counters too), ``call``; then :func:`renew`.

The kernels, all to be called with the gate held::

    enqueue(queue, cache, burst, n) -> taken        wirespeed.ports.vhost_user.enqueue: packets to the guest.  Those taken
        are the first ones; the caller frees them.  ``stop`` tells why the others were not: NO_BUFFERS (the guest has none,
        so offer them again), TO_CUT (the guest cannot be told what is to be done to the first of them: do it, and offer
        what comes of it), TOO_LONG (drop the first of them, for no buffers of this guest take it), BROKEN
    dequeue(queue, state, burst, most) -> n         wirespeed.ports.vhost_user.dequeue: fresh packets from the guest, out of
        Head(state).cache, their bytes added to Head(state).bytes; what is counted is counted in the queue
    waiting(queue) -> bool                          wirespeed.ports.vhost_user.notify: whether the guest has given something
    want_kicks(queue, wanted) -> bool               the same: have the guest ring when it gives something, or not any more;
        whether something is there already, which is looked at behind that, so who sleeps if not misses nothing

All four are for both ring formats.

Thread rules: the record's first line is the gate's.  The rest belongs to the worker that holds the gate, or to the
control thread while it is closed; who only counts may read the counters at any time.

*Source:* virtio 1.2, sections 2.7 and 2.8; the vhost-user protocol.
"""

import numpy as np

from wirespeed.core.stage import MAX_BURST
from wirespeed.jit.intrinsics import load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u64 = np.int64, np.uint64

REASONS = {
    "bad_index": "A chain that begins or goes on outside the ring",
    "loop": "A chain longer than the ring, so one that goes round",
    "too_long": "A chain of more pieces, or a packet of more bytes, than anybody sends",
    "unmapped": "A buffer outside the guest's memory",
    "short_chain": "A chain with no room for a header and a frame, or no frame in it",
    "bad_direction": "A buffer to be read where one to be written belongs, or the other way round",
    "bad_indirect": "An indirect table that was not agreed on, is of no right size, or nested",
    "bad_header": "A header that asks for what cannot be done to its packet; the packet was taken as it is",
    "no_room": "A packet that needs more segments than the pool has",
}
"""What a queue counts beside packets; all but ``bad_header`` are chains that were given back unused."""
BAD_INDEX, LOOP, LONG, UNMAPPED, SHORT, DIRECTION, INDIRECT, BAD_HEADER, NO_ROOM = range(len(REASONS))

# ``stop``: why the last enqueue took no more.
ALL_TAKEN, NO_BUFFERS, TO_CUT, TOO_LONG, BROKEN = range(5)

Virtqueue = layout(
    "Virtqueue",
    [
        ("gate", "u1", 64),  # see wirespeed.ports.virtio.gate
        # Written by the session; addresses are of this process.
        ("desc", "i8"),  # the descriptors,
        ("avail", "i8"),  # what the driver writes: the available ring, of a packed ring its event structure,
        ("used", "i8"),  # and what the device writes
        ("size", "i8"),  # entries; 0 while there is no ring
        ("regions", "i8"),  # address of the guest's Regions
        ("header", "i8"),  # bytes of the virtio-net header: 12, or 10 of a legacy driver without MRG_RXBUF
        ("packed", "u1"),
        ("mergeable", "u1"),
        ("indirect", "u1"),
        ("event_idx", "u1"),
        ("in_order", "u1"),
        ("log", "u1"),  # 1 while writes into the guest's memory are logged,
        ("log_used", "u1"),  # and those into the used ring at ``used_guest`` too
        ("batch", "u1"),  # 1: used entries are published and copies made once a burst, else a packet at a time
        ("prefetch", "u1"),  # 1: descriptors and buffers are asked for beforehand
        ("guest_csum", "u1"),  # what the driver takes: packets without their checksum,
        ("guest_tso4", "u1"),  # and super-frames
        ("guest_tso6", "u1"),
        ("guest_ecn", "u1"),
        ("guest_uso", "u1"),
        (None, 2),
        # Where the rest of the block is.
        ("shadow", "i8"),  # Used[SHADOW]
        ("pieces", "i8"),  # Piece[MOST_PIECES]
        ("jobs", "i8"),  # Job[MAX_BURST]
        ("dirty", "i8"),  # Mark[MARKS]
        # Of the dirty log, and of buffers in flight.
        ("log_base", "i8"),  # address of the bitmap, a bit for each page of 4 kB,
        ("log_size", "i8"),  # and its bytes
        ("used_guest", "u8"),  # the used ring's address in the guest
        ("inflight", "i8"),  # address of the queue's part of the inflight memory, or 0
        ("call", "i8"),  # event descriptor by which the guest is told, or -1
        ("kick", "i8"),  # and the one by which it tells us: for the port alone
        # Written by the worker.
        ("last_avail", "i8"),  # the next available entry: modulo 2^16, of a packed ring its place
        ("last_used", "i8"),  # the next used entry, likewise
        ("avail_wrap", "i8"),  # wrap counters of a packed ring, 1 at first
        ("used_wrap", "i8"),
        ("seen", "i8"),  # the available index when it was last looked at
        ("signalled", "i8"),  # ``last_used`` when it was last decided whether to notify,
        ("signalled_valid", "i8"),  # and 1 if it ever was
        ("filled", "i8"),  # entries of the shadow
        ("marked", "i8"),  # entries of ``dirty``
        ("stop", "i8"),
        ("broken", "i8"),  # 0, or 1 + the reason why the ring cannot be gone on with; the session starts it anew
        ("bad", "i8"),  # chains that were refused in this call
        # Counters.
        ("packets", "u8"),
        ("bytes", "u8"),
        ("notified", "u8"),  # notifications sent,
        ("suppressed", "u8"),  # and those that the guest did not want
        ("notify_failed", "u8"),
        ("empty", "u8"),  # enqueues that ended for want of buffers
        ("starved", "u8"),  # dequeues that ended for want of packets
        ("refused", "u8", len(REASONS)),
    ],
    size=576,
)
assert Virtqueue.offset("desc") == 64
QUEUE = Virtqueue.size

# An entry of the used ring's shadow.  Of a split ring it is what the used ring gets.
Used = layout("Used", [("id", "u4"), ("len", "u4")])
PackedUsed = layout("PackedUsed", [("id", "u2"), ("count", "u2"), ("len", "u4")])
USED = Used.size
assert PackedUsed.size == USED
# Pieces of one packet at most, and with that entries of its chains.  The largest packet, 64 kB, in the smallest buffers
# that make sense, and what other device models take.
MOST_PIECES = 1024
SHADOW = 2 * MOST_PIECES  # entries: those before a packet are published when less than the most of one is left

# A run of bytes in the guest's memory, all in one region.
Piece = layout("VirtioPiece", [("host", "i8"), ("size", "i8"), ("guest", "u8")])
PIECE = Piece.size
# A packet that is to be copied at the end of the burst: its bytes are ``size`` behind the header at ``host``.
Job = layout("VirtioJob", [("host", "i8"), ("guest", "u8"), ("handle", "i8"), ("size", "i8")])
JOB = Job.size
# Pages that were written to: bits of the word ``word`` of the dirty log.
Mark = layout("DirtyMark", [("word", "i8"), ("bits", "u8")])
MARK = Mark.size
MARKS = 32

_SHADOW_AT = QUEUE
_PIECES_AT = _SHADOW_AT + SHADOW * USED
_JOBS_AT = _PIECES_AT + MOST_PIECES * PIECE
_DIRTY_AT = _JOBS_AT + MAX_BURST * JOB
QUEUE_BYTES = _DIRTY_AT + MARKS * MARK
REFUSED = Virtqueue.offset("refused")


def lay_out(address: int) -> None:
    """Make a zeroed block of :data:`QUEUE_BYTES` a queue that has no ring yet; once, before anybody uses it."""
    queue = Virtqueue.at(address)
    queue.shadow, queue.pieces = address + _SHADOW_AT, address + _PIECES_AT
    queue.jobs, queue.dirty = address + _JOBS_AT, address + _DIRTY_AT
    queue.call = queue.kick = -1
    queue.header, queue.batch, queue.prefetch = 12, 1, 1
    queue.avail_wrap = queue.used_wrap = 1


def renew(address: int) -> None:
    """Forget what a queue knew of its ring, which is another now or starts anew; the gate is closed."""
    queue = Virtqueue.at(address)
    queue.seen = queue.last_avail
    queue.signalled_valid = queue.filled = queue.marked = queue.broken = queue.stop = 0


def refusals(address: int) -> dict[str, int]:
    """How often each of :data:`REASONS` was met."""
    return {name: int(n) for name, n in zip(REASONS, Virtqueue.at(address).refused, strict=True)}


@kernel(inline=True)
def refuse(queue, reason):
    """Count one of REASONS."""
    at = queue + REFUSED + 8 * reason  # Bounds: the reasons are constants of this module.
    store_u64(at, load_u64(at) + u64(1))


@kernel
def break_ring(queue, reason):
    """Stop a ring that cannot be gone on with."""
    refuse(queue, reason)
    Virtqueue(queue).broken = i64(reason) + 1
    Virtqueue(queue).stop = i64(BROKEN)
