"""A tuple: the entries that can be told apart by the same bits of a flow, found with one hash of these.

Theory of operation
-------------------
The *digest* of a flow is 32 bits of a universal hash of the words under the tuple's mask: a sum of products of halves
of words, each with a random multiplier of its own added (Lemire and Kaser, "Strongly universal string hashing is fast",
2014: "multilinear-HM", of whose 64 bits the upper half is taken), so that whoever does not know the multipliers cannot aim at a
slot.  Entries with the same digest are a chain.

*Slots* is a power of two of words, at most half of them used: a chain is at the first free one from the digest's low
bits on.  A slot is one word, so it changes at once: the digest's upper 16 bits and the address of the chain's first
entry.  The mask of a tuple may have fewer bits than those of its entries; each entry is compared with its own.

A slot that becomes empty in the midst of others points at an entry that nobody matches, the *tombstone*.  Growing builds
larger slots aside, and publishes address and size as one word (the address is a multiple of 64; the low bits are
the binary logarithm of the size).  Chains stay as they are.

Thread rules: one thread writes, any number read.  Order pairs: what is written into an entry before it is linked (a slot or
a link stored with release) is seen by who found it there (loaded with acquire); of slots likewise.
"""

import numpy as np

from wirespeed.core.arena import LINE
from wirespeed.jit.atomics import load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import load_u64, prefetch
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables.classifier.chain import crowded, join, leave
from wirespeed.tables.classifier.entry import Entry, Link, matches, visible
from wirespeed.tables.classifier.group import GROUP
from wirespeed.tables.classifier.heap import NODE, alloc, alloc_clear, free, retire

u32, i64, u64 = np.uint32, np.int64, np.uint64

Tuple = layout(
    "ClassifierTuple",
    [
        *GROUP,
        # for readers, who go on into the first lane on the same cache line
        ("slots", "u8"),  # address | log2 of how many
        ("words", "i8"),  # lanes
        ("link", "i8"),  # offset in an entry of the link that its chains use
        ("seed", "u8"),  # what the sum of a digest begins with
    ],
)
Lane = layout("ClassifierLane", [("offset", "i8"), ("mask", "u8"), ("low", "u8"), ("high", "u8")])
LANES = Tuple.size  # one for each word that the tuple looks at
LANE = Lane.size
assert Tuple.offset("slots") == LINE and LANES + LANE == 2 * LINE

Slot = layout("ClassifierSlot", [("word", "u8")])
LEAST_BITS = 3
_LOW_BITS = u64(63)
_LOW = u64(0xFFFFFFFF)
ADDRESS = u64((1 << 48) - 1)  # user addresses of x86-64 and aarch64 have no more bits


@kernel(inline=True)
def mix(flow, offset, mask, low, high):
    """What one word of a flow adds to the sum of a digest."""
    word = load_u64(flow + offset) & mask
    return (low + (word & _LOW)) * (high + (word >> u64(32)))


@kernel(inline=True)
def digest_of(tuple_, flow):
    """The digest of a flow in a tuple."""
    t = Tuple(tuple_)
    total = t.seed
    lane = tuple_ + LANES
    for _ in range(t.words):
        l = Lane(lane)
        # A relaxed load is a plain one that keeps LLVM from vectorising: the words are few, and it would gather.
        total += mix(flow, load_relaxed(l, "offset"), l.mask, l.low, l.high)
        lane += LANE
    return u32(total >> u64(32))


@kernel(inline=True)
def base_of(slots):
    """The address of the first slot."""
    return i64(slots & ~_LOW_BITS)


@kernel(inline=True)
def mask_of(slots):
    """How many slots there are, less one."""
    return (u64(1) << (slots & _LOW_BITS)) - u64(1)


@kernel(inline=True)
def size_of_slots(slots):
    """How many bytes they take."""
    return i64(8) << i64(slots & _LOW_BITS)


@kernel(inline=True)
def prefetch_slot(tuple_, digest):
    """Ask for the slot at which the search for a digest begins."""
    slots = load_acquire(Tuple(tuple_), "slots")
    prefetch(base_of(slots) + 8 * i64(u64(digest) & mask_of(slots)))


@kernel(inline=True)
def prefetch_entry(tuple_, digest):
    """Ask for the first entry of the chain at that slot."""
    slots = load_acquire(Tuple(tuple_), "slots")
    slot = load_acquire(Slot(base_of(slots) + 8 * i64(u64(digest) & mask_of(slots))), "word")
    if slot >> u64(48) == u64(digest) >> u64(16):
        prefetch(i64(slot & ADDRESS))
        prefetch(i64(slot & ADDRESS) + LINE)


@kernel(inline=True)
def probe(tuple_, digest, flow, version, least):
    """The entry of the highest priority above ``least`` that matches the flow and is visible at the version, or 0."""
    t = Tuple(tuple_)
    slots = load_acquire(t, "slots")
    link = t.link
    base, mask = base_of(slots), mask_of(slots)
    at, tag = u64(digest) & mask, u64(digest) >> u64(16)
    while True:
        # At most half of the slots are used, so the search ends.
        slot = load_acquire(Slot(base + 8 * i64(at)), "word")
        if slot == u64(0):
            return i64(0)
        if slot >> u64(48) == tag:
            entry = i64(slot & ADDRESS)
            while entry != 0 and i64(Entry(entry).priority) > least:
                if visible(Entry(entry), version) and matches(entry, flow):
                    return entry
                entry = load_acquire(Link(entry + link), "to")
        at = (at + u64(1)) & mask


@kernel
def find_chain(t, digest):
    """Where the chain of a digest is: its slot's address and its first entry; the slot for a new one and 0."""
    slots = t.slots
    base, mask = base_of(slots), mask_of(slots)
    at, tag, dead = u64(digest) & mask, u64(digest) >> u64(16), u64(t.tombstone)
    usable = i64(0)
    while True:
        place = base + 8 * i64(at)
        slot = Slot(place).word
        if slot == u64(0):
            return (place if usable == 0 else usable), i64(0)
        if slot == dead:
            usable = place if usable == 0 else usable
        elif slot >> u64(48) == tag and Entry(i64(slot & ADDRESS)).digest == digest:
            return place, i64(slot & ADDRESS)
        at = (at + u64(1)) & mask


@kernel(inline=True)
def first_in(t, word):
    """The first entry of the chain that a slot's word names, or 0."""
    return i64(0) if word == u64(0) or word == u64(t.tombstone) else i64(word & ADDRESS)


@kernel(inline=True)
def _named(entry):
    """A slot's word for a chain that begins with an entry."""
    return u64(Entry(entry).digest) >> u64(16) << u64(48) | u64(entry)


@kernel
def fits(tuple_, digest):
    """Whether one more entry may be in the chain of a digest; always, where all have the same mask."""
    t = Tuple(tuple_)
    if t.most == 0:
        return True
    _, first = find_chain(t, digest)
    return not crowded(first, t.link, i64(t.most))


@kernel
def add(tuple_, entry):
    """Link an entry, whose digest is set, into a tuple that has room for one more chain."""
    t = Tuple(tuple_)
    place, first = find_chain(t, Entry(entry).digest)
    t.length += 1
    if join(first, entry, t.link):
        if first == 0:
            t.chains += 1
            t.used += 1 if Slot(place).word == u64(0) else 0
        store_release(Slot(place), "word", _named(entry))


@kernel
def remove(tuple_, entry):
    """Take an entry out of a tuple; readers may still be in it."""
    t = Tuple(tuple_)
    t.length -= 1
    was_first, after = leave(entry, t.link)
    if was_first:
        place, _ = find_chain(t, Entry(entry).digest)
        if after != 0:
            store_release(Slot(place), "word", _named(after))
        else:
            t.chains -= 1
            _vacate(t, place)


@kernel
def _vacate(t, place):
    """Leave a slot empty if nobody's search goes on behind it, and with it the tombstones before it; or a tombstone."""
    base, mask, dead = base_of(t.slots), mask_of(t.slots), u64(t.tombstone)
    at = u64(place - base) >> u64(3)
    if Slot(base + 8 * i64((at + u64(1)) & mask)).word != u64(0):
        store_release(Slot(place), "word", dead)
        return
    while True:
        store_release(Slot(base + 8 * i64(at)), "word", u64(0))
        t.used -= 1
        at = (at - u64(1)) & mask
        if Slot(base + 8 * i64(at)).word != dead:
            return


@kernel
def make_room(heap, tuple_, n):
    """See to it that ``n`` chains can be added; 0, or minus the bytes that are missing."""
    t = Tuple(tuple_)
    old = t.slots
    if old != u64(0) and 2 * (t.used + n) <= i64(1) << i64(old & _LOW_BITS):
        return i64(0)
    bits = i64(LEAST_BITS)
    while i64(1) << bits < 4 * (t.chains + n):
        bits += 1
    node = alloc(heap, i64(NODE))
    if node < 0:
        return node
    block = alloc_clear(heap, i64(8) << bits)
    if block < 0:
        free(heap, node, i64(NODE))
        return block
    new = u64(block) | u64(bits)
    if old == u64(0):
        free(heap, node, i64(NODE))
    else:
        _copy_chains(t, new)
        retire(heap, node, base_of(old), size_of_slots(old))
    t.used = t.chains
    store_release(t, "slots", new)
    return i64(0)


@kernel
def _copy_chains(t, new):
    """Write every chain's slot into new slots, which nobody sees yet."""
    old = t.slots
    base, mask = base_of(new), mask_of(new)
    for i in range(i64(1) << i64(old & _LOW_BITS)):
        slot = Slot(base_of(old) + 8 * i).word
        first = first_in(t, slot)
        if first != 0:
            at = u64(Entry(first).digest) & mask
            while Slot(base + 8 * i64(at)).word != u64(0):
                at = (at + u64(1)) & mask
            Slot(base + 8 * i64(at)).word = slot


@kernel
def highest(tuple_):
    """The highest priority of a tuple's entries, or -1."""
    t = Tuple(tuple_)
    slots, best = t.slots, i64(-1)
    for i in range(i64(1) << i64(slots & _LOW_BITS)):
        first = first_in(t, Slot(base_of(slots) + 8 * i).word)
        if first != 0:
            best = max(best, i64(Entry(first).priority))
    return best
