"""IP datagrams under way: fragments are held until theirs is whole, which is then one packet, a chain of what they carried.

Theory of operation
-------------------
Datagrams under way are entries of a :mod:`wirespeed.tables.pending` table, by addresses, identification, IPv4's
protocol, the tags before the IP header and the port.  When the bytes of an entry's fragments add up to the whole, the
headers of all but the first are left out, and that one's say what the datagram is.

What is not right ends it: fragments that overlap, or contradict each other about the end, have the whole datagram
dropped, and what comes of it later too until its time is over (RFC 5722; for IPv4 we do the same, as Linux).  An exact
duplicate is dropped alone.  A fragment without data, one before the last whose data is no multiple of 8 bytes, and one
beyond what a datagram can have are dropped alone too.

Limits: the segments held are counted, for all and for each source address (by a hash of it, so that two may share a
count); a datagram counts for one at least, so that those of which nothing is held have their limit too.  A source that
has its share gets no more; when all is used, or the pool has too few packets left, the oldest datagram makes room.
Lists are found by a hash with random multipliers, so nobody can aim at one.

Thread rules: a reassembler belongs to one thread.  Clock: nanoseconds of any clock that does not go back.

*Source:* RFC 791, 3.2; RFC 8200, 4.5; RFC 5722; RFC 6946 (atomic fragments are no fragments).
"""

import numpy as np

from wirespeed.core.chain import MOST_SEGMENTS
from wirespeed.core.packet import Packet
from wirespeed.core.stage import FIRST_REASON, Head, drop
from wirespeed.engine.transform.datagram import (
    HELD,
    LONGEST,
    MOST_FRAGMENTS,
    WORDS,
    Datagram,
    Held,
    clear,
    goes_with,
    insert,
    is_sound,
    join,
    strip,
    take_back,
    write_key,
)
from wirespeed.jit.intrinsics import load_u32, stack, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.excerpt import own
from wirespeed.net.fragmentation import Division, divide
from wirespeed.net.segmentation import MOST_FRAMES
from wirespeed.tables import pending
from wirespeed.tables.pending import add, digest_of, find, oldest, remove

u32, i64, u64 = np.uint32, np.int64, np.uint64
assert MOST_FRAGMENTS == MOST_FRAMES

SOURCES = 4096  # counts of segments by source address

DROPS = {
    "bad_fragment": "A fragment without data, of odd length, cut, beyond the end of a datagram, or with damaged headers",
    "overlap": "Fragments of a datagram overlap or contradict each other; all of it is dropped",
    "duplicate": "The same fragment came twice",
    "too_many": "More fragments of one datagram than are kept; all of it is dropped",
    "timeout": "The rest of the datagram did not come in time",
    "evicted": "It made room for other packets, or found none",
    "source_share": "Its source has its share of what is held",
    "no_packet": "The pool had no packet for a copy",
    "unfinished": "The run ended before the rest of the datagram came",
}
BAD, OVERLAP, DUPLICATE, TOO_MANY, TIMEOUT, EVICTED, SHARE, NO_PACKET, UNFINISHED = range(
    FIRST_REASON, FIRST_REASON + len(DROPS)
)

Reassembler = layout(
    "Reassembler",
    [
        ("table", pending.Table),
        ("seeds", "u8", 8),  # multipliers of the hash, odd
        ("sources", "i8"),  # address of the segments held by source, u4[SOURCES]
        ("fragments", "i8"),  # address of Held[most]
        ("free", "i8"),  # number of the first of these that is free, each of which says which follows
        ("order", "i8"),  # address of u4[BLOCKS], for :func:`join`
        ("timeout_ns", "i8"),
        ("most", "i8"),  # segments held, in all,
        ("share", "i8"),  # and of one source
        ("segments", "i8"),  # held now
        ("held", "i8"),  # packets held now
        ("made", "i8"),  # datagrams less the fragments that they were made of: never positive
        ("whole", "i8"),  # datagrams that were made
    ],
)


@kernel(inline=True)
def _source(r, number):
    return r.sources + 4 * number


@kernel(inline=True)
def _count_source(r, g, n):
    """Note so many segments more, or fewer, of a datagram's source."""
    at = _source(r, g.source)
    store_u32(at, u32(i64(load_u32(at)) + n))


@kernel(inline=True)
def _count(r, g, segments, packets):
    """Note so many more segments and packets, or fewer, of a datagram."""
    before = max(g.segments, i64(1))
    r.segments += segments
    r.held += packets
    g.segments += segments
    g.count += packets
    _count_source(r, g, max(g.segments, i64(1)) - before)


@kernel
def _forget_fragments(r, g):
    """Have nothing held of a datagram, whose packets are another's by now, and whose maps are empty."""
    if g.newest != 0:
        Held(r.fragments + HELD * (g.eldest - 1)).following = r.free
        r.free = g.newest
        g.newest = i64(0)
    _count(r, g, -g.segments, -g.count)


@kernel
def _drop_all(state, r, g, reason):
    """Drop the fragments of a datagram."""
    number = g.newest
    while number != 0:
        h = Held(r.fragments + HELD * (number - 1))
        drop(state, h.handle, reason)
        take_back(g, h)
        number = h.following
    _forget_fragments(r, g)


@kernel
def _end(r, entry):
    """Forget a datagram of which nothing is held."""
    _count_source(r, Datagram(entry), i64(-1))
    remove(r.table, entry)


@kernel
def let_go(state, r, reason):
    """Drop the oldest datagram; whether there was one."""
    entry = oldest(r.table)
    if entry == 0:
        return False
    _drop_all(state, r, Datagram(entry), reason)
    _end(r, entry)
    return True


@kernel
def expire(state, r, now):
    """Drop the datagrams whose time is over."""
    while True:
        entry = oldest(r.table)
        if entry == 0 or now - Datagram(entry).entry.since < r.timeout_ns:
            break
        let_go(state, r, i64(TIMEOUT))


@kernel
def make_way(state, r, n):
    """Let go of the oldest datagrams until ``n`` segments of what is held are dropped, or all."""
    while n > 0 and r.segments > 0:
        n -= r.segments
        let_go(state, r, i64(EVICTED))
        n += r.segments


@kernel
def _begin(state, r, key, digest, source, now):
    """A new datagram's entry, for which the oldest one makes room if need be."""
    if r.table.free == 0:
        let_go(state, r, i64(EVICTED))
    entry = add(r.table, key, digest, WORDS, now)
    g = Datagram(entry)
    clear(g)
    g.source = source
    _count_source(r, g, i64(1))
    return entry


@kernel
def _make_room(state, r, entry, segments):
    """Have the oldest datagrams make room; False when this one would have to be among them."""
    while r.segments + segments > r.most:
        if oldest(r.table) == entry:
            return False
        let_go(state, r, i64(EVICTED))
    return True


@kernel
def _reject(state, r, g, handle, reason):
    """Drop a fragment and those before it, and have those behind it dropped, all for one reason."""
    drop(state, handle, reason)
    _drop_all(state, r, g, reason)
    g.rejected = reason


@kernel
def _complete(r, entry):
    """Make one packet of a datagram that is whole; its handle."""
    g = Datagram(entry)
    handle = join(g, r.fragments, r.order)
    r.made -= g.count - 1
    r.whole += 1
    _forget_fragments(r, g)
    _end(r, entry)
    return handle


@kernel
def _add_fragment(state, r, entry, handle, d):
    """Hold one more fragment of a datagram; the handle of the datagram when it is whole, else 0."""
    g, cache = Datagram(entry), Head(state).cache
    begin, end = d.place, d.place + d.end - d.begin
    found = goes_with(g, begin, end, d.more)
    if found == -1:
        drop(state, handle, i64(DUPLICATE))
        return i64(0)
    if found == -2:
        _reject(state, r, g, handle, i64(OVERLAP))
        return i64(0)
    if g.count == MOST_FRAGMENTS or g.segments + i64(Packet(handle).segments) > MOST_SEGMENTS // 2:
        _reject(state, r, g, handle, i64(TOO_MANY))
        return i64(0)
    mine = own(cache, handle, d.begin)
    if mine == 0:
        drop(state, handle, i64(NO_PACKET))
        return i64(0)
    strip(cache, g, mine, d)
    number = r.free  # Bounds: a packet is a segment at least, and there are as many numbers as segments may be held.
    r.free = Held(r.fragments + HELD * (number - 1)).following
    insert(g, r.fragments, number, mine, begin, end)
    _count(r, g, i64(Packet(mine).segments), i64(1))
    if d.more == 0:
        g.total = end
    if g.bytes != g.total:
        return i64(0)
    if g.around + g.total > LONGEST:  # the first one has longer headers than those that passed this test alone
        _drop_all(state, r, g, i64(BAD))
        _end(r, entry)
        return i64(0)
    return _complete(r, entry)


@kernel
def init(reassembler):
    """Put the numbers of all fragments that can be held into the list of free ones."""
    r = Reassembler(reassembler)
    for i in range(r.most):
        Held(r.fragments + HELD * i).following = i + 2 if i + 1 < r.most else i64(0)
    r.free = i64(1)


@kernel
def receive(state, r, handle, now):
    """Take a fragment: the handle of its datagram when that is whole by it, else 0: it is held, or dropped and counted.

    ``state`` is that of a stage whose own drop reasons are :data:`DROPS`.
    """
    d, key = Division(stack(1216)), stack(48)
    if not divide(handle, d) or d.version == 0 or not is_sound(d):
        drop(state, handle, i64(BAD))
        return i64(0)
    write_key(handle, d, key)
    digest, segments = digest_of(r.seeds, key, WORDS), i64(Packet(handle).segments)
    source = i64(digest_of(r.seeds, key, 2) & u64(SOURCES - 1))
    entry = find(r.table, key, digest, WORDS)
    if entry != 0 and Datagram(entry).rejected != 0:
        drop(state, handle, Datagram(entry).rejected)
        return i64(0)
    excess = entry != 0 and Datagram(entry).count == MOST_FRAGMENTS  # of which its share is not the reason
    if not excess and i64(load_u32(_source(r, source))) + segments > r.share:
        drop(state, handle, i64(SHARE))
        return i64(0)
    if entry == 0:
        entry = _begin(state, r, key, digest, source, now)
    if not _make_room(state, r, entry, segments):
        drop(state, handle, i64(EVICTED))
        return i64(0)
    return _add_fragment(state, r, entry, handle, d)
