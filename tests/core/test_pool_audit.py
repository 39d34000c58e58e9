"""An audit says where every packet is, and what cannot be; who had those that are out is tested in debug mode."""

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_pool import EDGES, give, handle_of, start_ring, take
from wirespeed.core.history import EVENTS, events
from wirespeed.core.packet import EXTERNAL, HEADROOM, META, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import HANDLES, RING
from wirespeed.core.ring import SLOTS

ROOM = HEADROOM + 64


def put_word(address, value):
    ctypes.c_int64.from_address(address).value = value


@given(
    st.integers(1, 80),
    st.sampled_from(EDGES),
    st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 20)), max_size=12),
)
def test_every_packet_is_found_where_it_is(size, start, moves):
    with PacketPool(size, ROOM) as pool:
        start_ring(pool, start)
        caches = [pool.cache(min(8, size), name=name) for name in ("rx", "tx", "rx")]
        out = []
        for which, n in moves:
            if n >= 0:
                out += take(caches[which], n)
            else:
                give(caches[which], out[n:])
                del out[n:]
        audit = pool.audit()
        assert [packet.handle for packet in audit.out] == sorted(out)
        assert all(handle_of(pool, packet.number) == packet.handle for packet in audit.out)
        lengths = {entry.name: entry.length for entry in pool.statistics()}
        assert audit.in_caches == lengths and len(lengths) == 3
        assert audit.in_ring == size - len(out) - sum(lengths.values())
        assert audit.sound and not audit.damage
        assert pool.close() == len(out)
        assert (pool.left is None) == (not out)


def test_a_pool_that_closes_with_packets_out_can_tell_which():
    with PacketPool(8, ROOM) as pool, pool.open_cache(4, name="mine") as cache:
        kept = cache.alloc(3).tolist()
        Packet.at(kept[1]).refcnt = 2
    assert [(packet.handle, packet.refcnt) for packet in pool.left.out] == [(kept[0], 1), (kept[1], 2), (kept[2], 1)]
    text = str(pool.left)
    assert text.startswith("8 packets: 5 free, 3 out\n  in the ring: ")
    assert f"  out: packet 1 at {kept[1]:#x}, refcnt 2\n" in text
    assert text.endswith("WIRESPEED_DEBUG=1 tells who had them")


def test_a_packet_in_two_places_is_damage():
    with PacketPool(16, ROOM) as pool:
        rx, tx = pool.cache(4, name="rx"), pool.cache(4, name="tx")
        give(rx, take(rx, 1))
        give(tx, take(tx, 1))
        put_word(tx + HANDLES, handle_of(pool, 0))
        put_word(tx + HANDLES + 8, handle_of(pool, 15))
        assert pool.audit().damage == (
            "packet 0 is in cache 1 (rx) and in cache 2 (tx)",
            "packet 15 is in the ring and in cache 2 (tx)",
        )
        put_word(pool.address + RING + SLOTS + 8 * 5, handle_of(pool, 15))
        assert "packet 15 is in the ring and in the ring and in cache 2 (tx)" in pool.audit().damage
        assert not pool.audit().sound


def test_what_is_no_packet_is_damage():
    with PacketPool(16, ROOM) as pool:
        cache = pool.cache(4)
        take(cache, 1)
        put_word(cache + HANDLES, 0x1234)
        put_word(pool.address + RING + SLOTS + 8 * 7, handle_of(pool, 3) + 64)
        audit = pool.audit()
        assert audit.damage == (
            f"the ring has {handle_of(pool, 3) + 64:#x}, which is no packet of the pool",
            "cache 1 has 0x1234, which is no packet of the pool",
        )
        assert len(audit.out) == 3, "the one that is out, and the two whose places these took"


def test_a_free_packet_that_does_not_rest_is_damage_and_one_that_is_out_is_none():
    changes = {"refcnt": 2, "next": 64, "segments": 3, "flags": META, "buffer": 4096, "capacity": 9}
    with PacketPool(16, ROOM) as pool:
        out = take(pool.cache(4), 1)
        Packet.at(out[0]).refcnt = 7
        for number, (name, value) in enumerate(changes.items(), 8):
            setattr(Packet.at(handle_of(pool, number)), name, value)
        Packet.at(handle_of(pool, 14)).flags = EXTERNAL
        Packet.at(handle_of(pool, 15)).flags = 1  # any other flag may stay
        damage = pool.audit().damage
        assert [line.split()[1] for line in damage] == ["8", "9", "10", "11", "12", "13", "14"]
        assert damage[0].startswith(
            "packet 8 is free, but not at rest: refcnt 2, next 0x0, segments 1, flags 0x0, buffer"
        )


def test_a_long_text_ends_with_how_many_more_there_are():
    with PacketPool(100, ROOM) as pool, pool.open_cache(0) as cache:
        cache.alloc(100)
        lines = str(pool.audit()).splitlines()
        assert len(lines) == 21 and lines[-2] == "  out: and 84 more"


def test_a_dump_shows_sizes_counters_caches_and_packets():
    with PacketPool(16, ROOM) as pool, pool.open_cache(4, name="rx") as cache:
        cache.alloc(1)
        text = pool.dump()
        assert f"16 packets of {ROOM} bytes, {pool.stride} bytes apart" in text
        assert "ring of 32 slots: prod 16 to 16, cons 2 to 2" in text
        assert "name='cache 1 (rx)', number=1, length=1, limit=4" in text
        assert str(pool.audit()) in text


def test_a_trail_is_read_from_its_lowest_bits():
    assert events(0) == ()
    assert events(0x21) == ("alloc", "free")
    assert events(0x3021) == ("alloc", "free", "hold"), "a gap is no event"
    assert events((1 << 64) - 1) == (EVENTS[15],) * 16
    assert len(set(EVENTS)) == 16
    assert events(int(np.uint64(1) << np.uint64(60))) == ("alloc",)
