"""A pool that processes share: who may attach, what goes from one to the other, and what comes back from the dead."""

import ctypes
import os
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wirespeed as ws
from tests.conftest import TORTURE
from tests.core.pool_peers import ROOM, Nursery
from tests.core.test_pool import handle_of, ring_of, stack_of
from tests.core.test_pool_debug import run as run_debugged
from wirespeed.core import segment
from wirespeed.core.clone import clone
from wirespeed.core.external import ExternalBuffer
from wirespeed.core.member import Member
from wirespeed.core.packet import EXTERNAL, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import RING, Cache, Pool
from wirespeed.core.ring import SLOTS, Ring
from wirespeed.errors import GraphError, PeerError, PortError

SIZE = 40
NAME = f"pool-test-{os.getpid()}"


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def pool():
    """A pool with a name that must be whole at the end of the test."""
    with PacketPool(SIZE, ROOM, name=NAME, caches=4, members=6, member_name="maker") as pool:
        yield pool
        assert pool.whole, str(pool.audit())
        assert pool.audit().sound


def image_of(pool):
    """All bytes of a pool's segment."""
    owner = pool._shared._mapping.owner
    return bytearray(ctypes.string_at(owner.address, owner.size))


def attach_to(image):
    """Attach to a segment with these bytes."""
    fd = os.memfd_create("image")
    try:
        os.write(fd, image)
        return PacketPool.attach(fd=fd)
    finally:
        os.close(fd)


# Attaching.


@pytest.mark.parametrize("by_name", [True, False])
def test_another_process_sees_the_pool_at_the_same_address(nursery, pool, by_name):
    child = nursery.start("look", NAME, fds=[] if by_name else [pool.fd])
    address, size, room, free, peers = child.answer()
    child.join()
    assert (address, size, room, free) == (pool.address, SIZE, ROOM, SIZE)
    assert peers == [[os.getpid(), "maker", True], [child.pid, "looker", True]]
    assert [peer.name for peer in pool.peers()] == ["maker"], "it has left"


def test_attaching_once_more_in_the_same_process_shares_the_memory(pool):
    with PacketPool.attach(NAME, member_name="again") as other, PacketPool.attach(fd=other.fd) as third:
        assert other.address == third.address == pool.address and len(pool.peers()) == 3
        handles = other.alloc(5)
        assert pool.in_use == third.in_use == 5
        pool.free(handles)
    assert len(pool.peers()) == 1


def test_the_name_goes_with_its_maker_and_the_others_go_on(nursery):
    with PacketPool(SIZE, ROOM, name=NAME, caches=2) as pool:
        child = nursery.start("keep", NAME, 8, 2, 3)
        (_, kept), other = child.answer(), PacketPool.attach(NAME)
        assert pool.close() == 3 and pool.left is None, "others have them, who may give them back"
    with other:
        child.kill()
        assert other.recover().returned == 1
        other.reclaim(kept)
        assert other.whole
    with pytest.raises(PortError, match="no pool named"):
        PacketPool.attach(NAME)


def test_what_is_left_when_the_last_one_leaves_is_told():
    with PacketPool(SIZE, ROOM, shared=True) as pool:
        handles = pool.alloc(2).tolist()
    assert [packet.handle for packet in pool.left.out] == handles
    assert pool.fd == -1 and repr(pool) == "<PacketPool, closed>"


def test_a_fork_has_no_pool_and_attaches_by_itself(nursery, pool):
    child = nursery.start("forked", NAME)
    grandchild, same, peers = child.answer()
    child.join()
    words = nursery.answer(grandchild)
    assert "open another with open_cache" in words[0] and "attaches by itself" in words[1] and words[3] == [True, 3]
    assert same and peers == 2


ERRORS = {
    "nobody has made": (lambda: PacketPool.attach("nobody-made-this"), PortError, "no pool named 'nobody-made-this'"),
    "no descriptor": (lambda: PacketPool.attach(fd=999), PortError, "no pool at descriptor 999"),
    "nothing given": (lambda: PacketPool.attach(), GraphError, "either a name or a descriptor"),
    "both given": (lambda: PacketPool.attach("a", fd=3), GraphError, "either a name or a descriptor"),
    "bad name": (lambda: PacketPool.attach("../etc"), GraphError, "1 to 64 letters"),
    "bad name made": (lambda: PacketPool(8, ROOM, name="a/b"), GraphError, "1 to 64 letters"),
    "memory": (lambda: PacketPool(8, ROOM, shared=True, memory=bytearray(1 << 20)), GraphError, "memory of its own"),
    "caches": (lambda: PacketPool(8, ROOM, shared=True, caches=5000), GraphError, "1 to 4096 caches, got 5000"),
    "members": (lambda: PacketPool(8, ROOM, shared=True, members=0), GraphError, "1 to 4096 members, got 0"),
    "size": (lambda: PacketPool(0, ROOM, shared=True), GraphError, "pool size must be"),
    "private peers": (lambda: PacketPool(8, ROOM).peers(), GraphError, "not shared; make it with shared=True"),
    "private recovery": (lambda: PacketPool(8, ROOM).recover(), GraphError, "not shared"),
    "private reclaim": (lambda: PacketPool(8, ROOM).reclaim([]), GraphError, "not shared"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_is_refused(case):
    call, error, words = ERRORS[case]
    with pytest.raises(error, match=words):
        call()


def test_a_name_is_given_once_and_is_one_kind_of_thing(pool):
    with pytest.raises(GraphError, match="exists already"):
        PacketPool(8, ROOM, name=NAME)
    with pytest.raises(PeerError, match=f"ring named '{NAME}'"):
        ws.Ring.attach(NAME)
    with ws.Ring(8, shared=True) as ring, pytest.raises(PeerError):
        PacketPool.attach(fd=ring.fd)
    assert PacketPool(8, ROOM).fd == -1


def test_a_place_in_memory_that_is_taken_is_told(pool):
    with pytest.raises(PortError, match=f"must be mapped at {pool.address - segment.HEADER_SIZE:#x}"):
        attach_to(image_of(pool))


def test_a_pool_has_room_for_so_many_members(pool):
    others = [PacketPool.attach(NAME) for _ in range(5)]
    with pytest.raises(GraphError, match="all 6 members of it are taken"):
        PacketPool.attach(NAME)
    for other in others:
        other.close()


# A hostile segment.

HEADER_PARTS = {
    **{f"segment {name}": (field.offset, field.size) for name, field in segment.Header.fields.items() if field.size},
    **{
        f"pool {name}": (segment.HEADER_SIZE + Pool.offset(name), Pool.fields[name].size)
        for name in ("size", "stride", "first", "room", "caches", "debug")
    },
    **{f"ring {name}": (segment.HEADER_SIZE + RING + Ring.offset(name), 4) for name in ("mask", "capacity")},
    "produced": (segment.HEADER_SIZE + RING + Ring.offset("prod"), 4),
    "consumed": (segment.HEADER_SIZE + RING + Ring.offset("cons"), 4),
    "a packet in the ring": (segment.HEADER_SIZE + RING + SLOTS + 8 * 5, 8),
}
# With fewer members, or packets in the ring, it is as good a pool.
VALUES = [0, 1, 2, 7, 4096, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
FEW = {1, 2, 7}
HARMLESS = {"segment recoverer": VALUES, "segment member_count": FEW, "produced": {0} | FEW, "consumed": FEW}


@pytest.fixture(scope="module")
def image():
    """The bytes of a pool that nobody has."""
    with PacketPool(SIZE, ROOM, shared=True, caches=4, members=6) as pool:
        return bytes(image_of(pool))


def test_the_same_bytes_are_the_same_pool(image):
    with attach_to(image) as pool:
        assert len(pool.alloc(SIZE)) == SIZE and pool.is_empty


@pytest.mark.parametrize("part", HEADER_PARTS)
def test_no_value_of_the_headers_leads_outside(image, part):
    offset, size = HEADER_PARTS[part]
    for wide in VALUES:
        broken = bytearray(image)
        value = wide % (1 << 8 * size)
        broken[offset : offset + size] = value.to_bytes(size, "little")
        if broken == image or value in HARMLESS.get(part, ()):
            continue
        with pytest.raises((PeerError, PortError)):
            attach_to(broken).close()


@pytest.mark.parametrize("field", ["length", "limit"])
@pytest.mark.parametrize("value", [-1, SIZE + 1, 1 << 62])
def test_a_cache_that_leads_outside_is_refused(image, field, value):
    with attach_to(image) as pool:
        broken, at = image_of(pool), pool._shared._first - pool.address + segment.HEADER_SIZE + Cache.offset(field)
    broken[at : at + 8] = value.to_bytes(8, "little", signed=True)
    with pytest.raises(PeerError, match="cache 0 of the pool is damaged"):
        attach_to(broken)


@given(st.integers(0, segment.HEADER_SIZE + RING + SLOTS + 8 * SIZE - 1), st.integers(1, 255))
@settings(max_examples=20_000 if TORTURE else 200)
def test_any_byte_of_the_headers_may_be_any(image, at, change):
    broken = bytearray(image)
    broken[at] ^= change
    try:
        attach_to(broken).close()
    except (PeerError, PortError):
        pass


@pytest.mark.parametrize("length", [0, 100, 4096])
def test_a_segment_that_is_cut_off_is_refused(image, length):
    with pytest.raises(PeerError):
        attach_to(image[:length])


# Caches.


def test_caches_are_taken_and_given_back(pool):
    caches = [pool.cache() for _ in range(4)]
    assert [Cache.at(at).limit for at in caches] == [SIZE // 2 // 4] * 4
    assert len({Cache.at(at).number for at in caches}) == 4
    with pytest.raises(GraphError, match="all 4 caches of this pool are taken"):
        pool.open_cache(2)
    pool.close_cache(caches.pop())
    with pool.open_cache(SIZE, name="ü" * 40) as cache:
        cache.free(cache.alloc(30))
        assert len(cache) == 30 and "(üüüüüüüüüüüüüü, process" in next(reversed(pool.audit().in_caches))
    with PacketPool.attach(NAME) as other:
        assert other.cache() not in caches
    assert len(pool.statistics()) == 3, "whoever leaves gives back all of its"
    with pytest.raises(GraphError, match="give no arena"):
        pool.cache(2, arena=object())


def test_everybody_sees_whose_a_cache_is(nursery, pool):
    child = nursery.start("keep", NAME, 10, 6, 3)
    length, kept = child.answer()
    audit = pool.audit()
    (name,) = audit.in_caches
    assert name.endswith(f"(kept, process {child.pid})") and audit.in_caches[name] == length == 3
    assert [packet.handle for packet in audit.out] == sorted(kept) and audit.sound
    assert [(found.name, found.length, found.limit) for found in pool.statistics()] == [(name, 3, 10)]
    assert f"member: process {child.pid} (keeper)" in pool.dump() and "prod 40 to 40, cons 6 to 6" in pool.dump()
    child.kill()
    pool.recover()
    pool.reclaim(kept)


# What goes from one process to another.


@pytest.mark.parametrize("by_name", [True, False])
def test_packets_go_both_ways_and_each_reads_what_the_other_wrote(nursery, pool, by_name):
    wanted = 20_000 if TORTURE else 400
    with ws.Ring(256, name=f"{NAME}-a") as a, ws.Ring(256, name=f"{NAME}-b") as b:
        names = [f"{NAME}-a", f"{NAME}-b"]
        fds = [] if by_name else [pool.fd]
        two = [nursery.start("exchange", NAME, wanted, k, *names[:: 1 - 2 * k], fds=fds) for k in range(2)]
        sent = [child.answer() for child in two]
        a.shutdown()
        b.shutdown()
        for child, other, count in zip(two, reversed(two), reversed(sent), strict=True):
            assert child.answer() == [[other.pid], count], "all of the other's packets, and nobody else's"
            child.join()
    assert min(sent) >= wanted and len(pool.peers()) == 1


# The dead.


def test_a_dead_process_is_named_and_what_was_in_its_caches_comes_back(nursery, pool):
    child = nursery.start("keep", NAME, 10, 6, 3)
    length, kept = child.answer()
    assert pool.recover().dead == () and str(pool.recover()) == "nobody had died"
    child.kill()
    (peer,) = [peer for peer in pool.peers() if not peer.alive]
    assert str(peer) == f"process {child.pid} (keeper), which is gone"
    found = pool.recover()
    assert ([peer.pid for peer in found.dead], found.returned, found.missing) == ([child.pid], length, 3)
    assert f"process {child.pid} (keeper), which is gone: 3 packets came back, 3 from cache" in str(found)
    assert "3 are out" in str(found) and not found.lock
    assert len(pool.peers()) == 1 and pool.statistics() == []
    assert sorted(kept) == [packet.handle for packet in pool.audit().out]
    pool.reclaim(kept)


def test_one_that_hangs_is_not_dead(nursery, pool):
    child = nursery.start("keep", NAME, 10, 6, 3)
    _, kept = child.answer()
    os.kill(child.pid, signal.SIGSTOP)
    assert not pool.recover().dead and pool.free_count == SIZE - 3
    child.kill()
    pool.recover()
    pool.reclaim(kept)


def test_a_member_whose_number_another_process_has_now_is_gone(nursery, pool):
    with PacketPool.attach(NAME) as other:
        handles = other.open_cache(8, name="old").alloc(2)
        record = Member.at(other._shared.members.own)
        record.pid = nursery.process.pid
        Pool.at(pool.address).lock = nursery.process.pid
        found = pool.recover()
        assert [peer.pid for peer in found.dead] == [nursery.process.pid]
        assert found.lock and found.returned == 2 and ", and the pool's lock" in str(found)
        pool.free(handles)


def test_a_lock_that_a_dead_process_held_is_taken_by_who_waits(nursery, pool):
    child = nursery.start("keep", NAME, 10, 4, 0)
    child.answer()
    child.kill()  # nobody has waited for it yet
    for _ in range(2):
        Pool.at(pool.address).lock = child.pid
        pool.free(pool.alloc(10))
        assert Pool.at(pool.address).lock == 0
    Pool.at(pool.address).lock = child.pid
    assert pool.recover().lock and Pool.at(pool.address).lock == 0


def test_a_lock_of_a_living_process_is_left_to_it(nursery, pool):
    child = nursery.start("keep", NAME, 10, 4, 0)
    child.answer()
    Pool.at(pool.address).lock = child.pid
    assert not pool.recover().lock and Pool.at(pool.address).lock == child.pid
    Pool.at(pool.address).lock = 0
    child.kill()
    pool.recover()


def test_a_recovery_whose_process_died_is_taken_up_and_one_under_way_is_left_alone(nursery, pool):
    child = nursery.start("keep", NAME, 10, 4, 0)
    child.answer()
    number = pool._shared.members.number + 1
    header = pool._shared._mapping.owner.header
    header.recoverer = number
    with pytest.raises(PeerError, match=rf"process {child.pid} \(keeper\) is at recovering this pool"):
        pool.recover()
    child.kill()
    assert pool.recover().dead and header.recoverer == 0
    header.recoverer = 4
    assert not pool.recover().dead and header.recoverer == 0


def test_a_damaged_cache_of_a_dead_process_is_not_put_back(nursery):
    with PacketPool(SIZE, ROOM, name=NAME) as pool:
        child = nursery.start("keep", NAME, 10, 4, 0)
        child.answer()
        child.kill()
        (address,) = pool._shared.caches()
        Cache.at(address).length = 1 << 40
        with pytest.raises(PeerError, match="is damaged: 1099511627776 packets"):
            pool.recover()
        Cache.at(address).length = 4
        ctypes.c_int64.from_address(address + Cache.size).value = handle_of(pool, 3) + 64
        with pytest.raises(PeerError, match="not all of which are any"):
            pool.recover()


def test_only_what_is_out_is_put_back_and_all_of_it_or_none(pool):
    with pool.open_cache(8, name="mine") as cache:
        out = cache.alloc(3).tolist()
        cache.free(cache.alloc(2))
        assert len(cache) > 1
        wrong = [out[0] + 64, out[0] - 1, ring_of(pool)[0], stack_of(cache.address)[0], out[0]]
        for handle in wrong:
            with pytest.raises(GraphError, match=r"no packet of this pool|in the pool already, or stands here twice"):
                pool.reclaim([*out, handle])
            assert pool.in_use == 3
        record = Packet.at(out[1])
        record.refcnt, record.next, record.flags, record.segments = 7, out[2], EXTERNAL, 9
        record.buffer, record.capacity = 4096, 1
        pool.reclaim(out)
        assert pool.whole and pool.audit().sound, str(pool.audit())
        pool.reclaim([])
        with pytest.raises(GraphError, match="in the pool already"):
            pool.reclaim(out)


def test_external_memory_is_not_for_packets_of_a_pool_that_processes_share(pool):
    with ExternalBuffer(bytearray(100)) as buffer, PacketPool(4, ROOM) as private:
        with pool.open_cache(4) as cache, private.open_cache(0) as own:
            handle = int(cache.alloc(1)[0])
            with pytest.raises(GraphError, match="is of a shared pool"):
                buffer.attach(handle)
            cache.free([handle])
            shown = int(own.alloc(1)[0])
            buffer.attach(shown)
            assert clone(cache.address, shown) == 0, "nor for clones of others"
            copy = clone(own.address, shown)
            assert copy
            own.free([shown, copy])
            assert private.whole and pool.whole
        assert buffer.users == 0


def test_a_cache_of_another_pool_puts_packets_into_the_ring_of_the_shared_one(pool):
    with PacketPool(4, ROOM) as private, private.open_cache(2) as cache, pool.open_cache(4) as own:
        handles = own.alloc(10)
        give = np.array(handles)
        from wirespeed.core.cache import give as give_up

        give_up(cache.address, give.ctypes.data, len(give))
        assert pool.whole and private.whole


DEBUGGED = """
import os
from tests.core.pool_peers import Nursery
nursery = Nursery()
name = f"pool-debug-{os.getpid()}"
with PacketPool(40, ROOM, name=name) as shared:
    one, two = (nursery.start("keep", name, 8, 2, n) for n in (3, 5))
    (_, first), (_, second) = one.answer(), two.answer()
    had = {packet.handle: packet.name for packet in shared.audit().out}
    assert len(had) == 8
    assert all(f"(kept, process {one.pid})" in had[handle] for handle in first), had
    assert all(f"(kept, process {two.pid})" in had[handle] for handle in second), had
    one.kill()
    found = shared.recover()
    assert sorted(packet.handle for packet in found.last) == sorted(first) and found.missing == 8
    assert "8 are out, 3 of which were last theirs" in str(found), str(found)
    text = str(shared.audit())
    assert f"process {one.pid}), which is gone (latest first: alloc" in text, text
    shared.reclaim([packet.handle for packet in found.last])
    two.kill()
    shared.reclaim([packet.handle for packet in shared.recover().last])
    assert shared.whole and shared.audit().sound
    handles = shared.alloc(40)
    shared.free(handles)
    assert shared.whole and not any(shared.faults().values())
    refused = subprocess.run([sys.executable, "-c", f"from wirespeed.core.packet_pool import PacketPool; PacketPool.attach({name!r})"],
        env=os.environ | {"WIRESPEED_DEBUG": "0"}, capture_output=True, text=True).stderr
    assert "debug mode is on where the pool was made, and not here" in refused, refused
nursery.close()
"""


def test_debug_mode_tells_which_process_had_a_packet():
    run_debugged("import subprocess, sys\n" + DEBUGGED)
