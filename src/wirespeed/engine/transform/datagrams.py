"""IP datagrams under way: fragments are held until theirs is whole, which is then one packet, a chain of what they carried.

Theory of operation
-------------------
Datagrams under way are entries of a :mod:`wirespeed.tables.pending` table, by addresses, identification, IPv4's
protocol, the tags before the IP header and the port.  An entry lists its fragments in the order of their offsets.  When
their bytes add up to the whole, the headers of all but the first are left out, and that one's say what the datagram is.

What is not right ends it: fragments that overlap, or contradict each other about the end, have the whole datagram
dropped, and what comes of it later too until its time is over (RFC 5722; for IPv4 we do the same, as Linux).  An exact
duplicate is dropped alone.  A fragment without data, one before the last whose data is no multiple of 8 bytes, and one
beyond what a datagram can have are dropped alone too.

Limits: the segments held are counted, for all and for each source address (by a hash of it, so that two may share a
count).  A source that has its share gets no more; when all is used, the oldest datagram makes room.  Lists are found by
a hash with random multipliers, so nobody can aim at one.

Thread rules: a reassembler belongs to one thread.  Clock: nanoseconds of any clock that does not go back.

*Source:* RFC 791, 3.2; RFC 8200, 4.5; RFC 5722; RFC 6946 (atomic fragments are no fragments).
"""

import numpy as np

from wirespeed.core.packet import Packet
from wirespeed.core.stage import FIRST_REASON, Head, drop
from wirespeed.engine.transform.datagram import (
    HELD,
    LONGEST,
    MOST_FRAGMENTS,
    WORDS,
    Datagram,
    Held,
    is_sound,
    join,
    place,
    strip,
    write_key,
)
from wirespeed.jit.intrinsics import (
    load_u32,
    move,
    stack,
    store_u32,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.excerpt import own
from wirespeed.net.fragmentation import Division, divide
from wirespeed.tables import pending
from wirespeed.tables.pending import add, digest_of, find, oldest, remove

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64

SOURCES = 4096  # counts of segments by source address

DROPS = {
    "bad_fragment": "A fragment without data, of odd length, beyond the end of a datagram, or with damaged headers",
    "overlap": "Fragments of a datagram overlap or contradict each other; all of it is dropped",
    "duplicate": "The same fragment came twice",
    "too_many": "More fragments of one datagram than are kept",
    "timeout": "The rest of the datagram did not come in time",
    "evicted": "It made room for newer datagrams",
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
def _count(r, g, segments, packets):
    """Note so many more segments and packets, or fewer, of a datagram."""
    r.segments += segments
    r.held += packets
    g.segments += segments
    g.count += packets
    at = _source(r, g.source)
    store_u32(at, u32(i64(load_u32(at)) + segments))


@kernel
def _drop_all(state, r, g, reason):
    """Drop the fragments of a datagram."""
    for i in range(g.count):
        drop(state, Held(g.fragments + HELD * i).handle, reason)
    _count(r, g, -g.segments, -g.count)


@kernel
def _end(r, entry):
    """Forget a datagram of which nothing is held."""
    at = _source(r, Datagram(entry).source)
    store_u32(at, u32(i64(load_u32(at)) - 1))
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
def _begin(state, r, key, digest, source, now):
    """A new datagram's entry, for which the oldest one makes room if need be; it counts as one segment of its source."""
    if r.table.free == 0:
        let_go(state, r, i64(EVICTED))
    entry = add(r.table, key, digest, WORDS, now)
    g = Datagram(entry)
    g.total, g.bytes, g.count, g.segments, g.rejected = i64(-1), i64(0), i64(0), i64(0), i64(0)
    g.source = source
    at = _source(r, source)
    store_u32(at, u32(i64(load_u32(at)) + 1))
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
    """Drop a fragment and those before it, and have those behind it dropped."""
    drop(state, handle, reason)
    _drop_all(state, r, g, reason)
    g.rejected = 1


@kernel
def _insert(r, g, i, handle, begin, end):
    """Hold a fragment as number ``i`` of its datagram."""
    at = g.fragments + HELD * i
    move(at + HELD, at, HELD * (g.count - i))
    Held(at).handle, Held(at).begin, Held(at).end = handle, u32(begin), u32(end)
    g.bytes += end - begin
    _count(r, g, i64(Packet(handle).segments), i64(1))


@kernel
def _complete(r, entry):
    """Make one packet of a datagram that is whole; its handle."""
    g = Datagram(entry)
    handle = join(g)
    r.made -= g.count - 1
    r.whole += 1
    _count(r, g, -g.segments, -g.count)
    _end(r, entry)
    return handle


@kernel
def _add_fragment(state, r, entry, handle, d):
    """Hold one more fragment of a datagram; the handle of the datagram when it is whole, else 0."""
    g, cache = Datagram(entry), Head(state).cache
    begin, end = d.place, d.place + d.end - d.begin
    i = place(g, begin, end, d.more)
    if i == -1:
        drop(state, handle, i64(DUPLICATE))
        return i64(0)
    if i == -2:
        _reject(state, r, g, handle, i64(OVERLAP))
        return i64(0)
    if g.count == MOST_FRAGMENTS:
        _reject(state, r, g, handle, i64(TOO_MANY))
        return i64(0)
    mine = own(cache, handle, d.begin)
    if mine == 0:
        drop(state, handle, i64(NO_PACKET))
        return i64(0)
    strip(cache, g, mine, d)
    _insert(r, g, i, mine, begin, end)
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
    if i64(load_u32(_source(r, source))) + segments > r.share:
        drop(state, handle, i64(SHARE))
        return i64(0)
    entry = find(r.table, key, digest, WORDS)
    if entry == 0:
        entry = _begin(state, r, key, digest, source, now)
    if Datagram(entry).rejected != 0:
        drop(state, handle, i64(OVERLAP))
    elif not _make_room(state, r, entry, segments):
        drop(state, handle, i64(EVICTED))
    else:
        return _add_fragment(state, r, entry, handle, d)
    return i64(0)
