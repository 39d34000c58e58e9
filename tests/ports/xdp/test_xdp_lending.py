"""What the kernel is lent and gives back: frames of the pool, checked, and whole at the end, whatever stands in the rings."""

import numpy as np
import pytest

from tests.driver import Driver
from tests.lab import laboratory
from tests.ports.xdp.wires import frame, pair, raw, received, send, until, xdp
from wirespeed.core.clone import clone
from wirespeed.core.external import ExternalBuffer
from wirespeed.core.packet import Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.jit.kernel import kernel
from wirespeed.ports.xdp.ring import FOR_FILL, Descriptor, Socket, Word, number_of
from wirespeed.ports.xdp.transmit import State as Sink


@kernel
def number(socket, handle):
    return number_of(Socket(socket), handle)


@pytest.fixture
def lab():
    with laboratory() as made:
        pair(made)
        yield made


def record(part):
    """The record of the socket of the first worker."""
    return part.device.queues[0].binding.record


def driven(lab, role, pool, **options):
    return Driver(xdp(lab, **options).open(role, 1), pool=pool)


def gather(driver, n):
    """The next ``n`` frames that a source gives."""
    found = []
    until(lambda: found.extend(bytes(f.data) for f in driver.receive()) or len(found) >= n, f"{n} frames came")
    return found


def test_the_ring_is_filled_from_the_pool_and_all_comes_back(lab):
    with PacketPool(600) as pool, raw(lab) as far:
        with driven(lab, "source", pool, ring=256) as driver:
            assert record(driver.part).filled == 256
            assert pool.in_use == 256
            send(far, [frame(i) for i in range(1000)][:200])
            assert gather(driver, 200) == [frame(i) for i in range(200)]
            assert record(driver.part).filled > 256 - 32, "packets that came are replaced, as soon as there are some"
        assert pool.whole


def test_frames_that_nobody_fetched_come_back_too(lab):
    with PacketPool(600) as pool, raw(lab) as far, driven(lab, "source", pool, ring=256):
        send(far, [frame(i) for i in range(50)])


def test_a_ring_that_ran_dry_is_filled_again_as_soon_as_packets_are_there(lab):
    with PacketPool(127) as pool, raw(lab) as far, driven(lab, "source", pool, ring=64) as driver:
        target = record(driver.part).target
        assert target == 63
        kept = []
        while len(kept) < 120:
            send(far, [frame(len(kept))])
            until(lambda: driver.call(1), "a frame came")
            kept.append(int(driver.burst[0]))
        send(far, [frame(i) for i in range(20)])
        until(lambda: driver.call(0) or record(driver.part).starved > 0, "the pool is found empty")
        assert record(driver.part).filled < target
        for n in range(driver.call(32)):
            kept.append(int(driver.burst[n]))
        driver.free(kept)
        driver.call(1)
        assert record(driver.part).filled == target
        send(far, [frame(7)])
        assert frame(7) in gather(driver, 1)


@pytest.mark.parametrize("address", ["outside", "between", "twice", "not lent"])
def test_an_address_that_cannot_be_is_counted_and_left_alone(lab, address):
    with PacketPool(600) as pool, raw(lab) as far, driven(lab, "source", pool, ring=64) as driver:
        send(far, [frame(i) for i in range(3)])
        queue = driver.part.device.queues[0]
        until(lambda: ring_has(record(driver.part).rx, 3), "three frames are there")
        s = record(driver.part)
        second = Descriptor.at(s.rx.entries + Descriptor.size * ((s.rx.mine + 1) & s.rx.mask))
        first = Descriptor.at(s.rx.entries + Descriptor.size * (s.rx.mine & s.rx.mask))
        true = int(second.address)
        free = int(queue.pool.alloc(1)[0])
        wrong = {
            "outside": int(s.size) * int(s.stride) + 8192 | 256 << 48,
            "between": true + 64,
            "twice": int(first.address),
            "not lent": (free - int(s.base)) | 256 << 48,
        }[address]
        second.address = wrong
        assert gather(driver, 2) == [frame(0), frame(2)]
        assert record(driver.part).invalid == 1
        queue.pool.free([free])


def test_a_length_that_does_not_fit_is_a_drop_with_a_name(lab):
    with PacketPool(600) as pool, raw(lab) as far, driven(lab, "source", pool, ring=64) as driver:
        send(far, [frame(i) for i in range(3)])
        until(lambda: ring_has(record(driver.part).rx, 3), "three frames are there")
        s = record(driver.part)
        Descriptor.at(s.rx.entries + Descriptor.size * ((s.rx.mine + 1) & s.rx.mask)).length = 4000
        assert gather(driver, 2) == [frame(0), frame(2)]
        assert driver.drops() == {"malformed": 1}


def test_a_packet_without_end_is_dropped_when_it_is_too_long(lab):
    with PacketPool(2000) as pool, raw(lab) as far, driven(lab, "source", pool, ring=512) as driver:
        send(far, [frame(i) for i in range(300)])
        until(lambda: ring_has(record(driver.part).rx, 300), "the frames are there")
        s = record(driver.part)
        for i in range(299):
            Descriptor.at(s.rx.entries + Descriptor.size * ((s.rx.mine + i) & s.rx.mask)).options = 1
        while ring_has(record(driver.part).rx, 1):
            assert driver.call(32) == 0
        assert driver.drops() == {"too_many_frames": 1}
        send(far, [frame(7)])
        assert gather(driver, 1) == [frame(7)]


def ring_has(queue, n):
    """Whether the kernel has put so many entries into a ring that we read."""
    return (int(Word.at(queue.producer).value) - int(queue.mine)) % (1 << 32) >= n


def test_packets_of_another_pool_shown_ones_and_external_memory_are_sent_as_copies(lab):
    memory = bytearray(frame(3, 100))
    with (
        PacketPool(300) as pool,
        PacketPool(50) as other,
        raw(lab) as far,
        ExternalBuffer(memory) as external,
        driven(lab, "sink", pool, ring=64) as driver,
    ):
        whole = driver.packet(frame(1))
        shown = int(clone(driver.cache, whole))
        shows = int(pool.alloc(1)[0])
        external.attach(shows)
        Packet.at(shows).length = Packet.at(shows).total = len(memory)
        foreign = int(other.alloc(1)[0])
        Packet.at(foreign).length = Packet.at(foreign).total = 60
        driver.burst[:4] = [whole, shown, shows, foreign]
        assert driver.call(4) == 0
        got = [far.recv(2048) for _ in range(4)]
        assert got[:3] == [frame(1), frame(1), frame(3, 100)]
        assert len(got[3]) == 60
        assert other.whole, "what was copied is free"
        assert external.users == 0


def test_a_chain_goes_out_as_one_frame(lab):
    with PacketPool(300, room=2176) as pool, raw(lab) as far, driven(lab, "sink", pool, ring=64) as driver:
        driver.burst[0] = chain(driver, 5)
        assert driver.call(1) == 0
        assert far.recv(2048) == frame(5, 1000) + bytes(range(100))


def chain(driver, number):
    """A packet of two segments, as one handle."""
    handle, tail = driver.packet(frame(number, 1000)), driver.packet(bytes(range(100)))
    Packet.at(handle).next, Packet.at(handle).segments, Packet.at(handle).total = tail, 2, 1100
    return handle


def test_what_was_sent_is_held_until_it_is_back_so_that_a_small_pool_never_stays_empty(lab):
    """Nobody calls a sink that holds nothing and has nothing to send, as when all packets are in its completion ring."""
    with PacketPool(64) as pool, raw(lab) as far, driven(lab, "sink", pool, ring=64) as driver:
        driver.burst[:20] = [chain(driver, i) for i in range(20)]
        assert pool.in_use == 40
        assert driver.call(20) == 0
        assert 0 <= driver.head.held <= 20, "packets are counted, not their frames"
        assert [far.recv(2048)[:1000] for _ in range(20)] == [frame(i, 1000) for i in range(20)]
        until(lambda: driver.head.held == 0 or driver.call(0), "nothing is held")
        assert pool.in_use == 0


def test_ports_of_one_run_never_keep_the_whole_pool_for_receiving(lab):
    pair(lab, "near/x1", "far/y1")
    with received(xdp(lab), xdp(lab, "near/x1"), pool=64) as (_, running):
        assert running.report().pool_free == 64 - 32 - 16


def test_buffers_that_the_kernel_cannot_have_are_replaced_by_a_pool_of_our_own(lab):
    pair(lab, "near/x1", "far/y1")
    with PacketPool(600, room=512) as pool, raw(lab) as far, raw(lab, "far/y1") as beyond:
        with driven(lab, "source", pool, ring=128) as driver:
            send(far, [frame(i, 1000) for i in range(100)])
            assert gather(driver, 100) == [frame(i, 1000) for i in range(100)]
        port = xdp(lab, "near/x1", ring=64)
        with Driver(port.open("sink", 1), pool=pool) as driver:
            assert driver.transmit([frame(i, 1000) for i in range(10)]) == 0
            assert [beyond.recv(2048) for _ in range(10)] == [frame(i, 1000) for i in range(10)]


def test_what_is_not_sent_at_the_end_is_counted_and_back_in_the_pool(lab):
    """The kernel is kept from sending: its flag that asks to be woken is taken away, as a busy driver does."""
    with PacketPool(300) as pool, driven(lab, "sink", pool, ring=64) as driver:
        Word.at(record(driver.part).tx.flags).value = 0
        assert driver.transmit([frame(i) for i in range(20)]) == 0
        assert driver.head.held == 20
        driver.transmit([frame(i) for i in range(32)])
        assert driver.transmit([frame(i) for i in range(20)]) == 8, "a full ring refuses"
        driver.part.close()
        assert driver.drops() == {"not_sent": 64}
        assert Sink.at(driver.placement.state).head.held == 0


def test_the_number_of_a_packet_is_told_by_one_multiplication(lab):
    with PacketPool(600) as pool, driven(lab, "source", pool, ring=64) as driver:
        s = driver.part.device.queues[0].binding
        first, stride = int(s.record.first), int(s.record.stride)
        for i in (0, 1, 299, 599):
            assert int(number(s.address, first + i * stride)) == i
        near = np.arange(1, stride, dtype=np.int64)
        assert all(int(number(s.address, int(first + 5 * stride + n))) >= 600 for n in near)
        assert int(number(s.address, first - stride)) >= 600
        assert int(number(s.address, first + 600 * stride)) >= 600
        assert int(s.marks[0]) in (0, FOR_FILL)
