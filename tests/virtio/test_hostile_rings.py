"""Guests that break every rule of the rings: each bad chain is counted and given back once, and the next one works.

The guest's memory is fenced off, so one byte read or written outside of it ends the process.
"""

import struct

import pytest

from tests.virtio.rings import (
    EDGE,
    INDIRECT,
    NEXT,
    PAGE,
    WRITE,
    Device,
    PackedDriver,
    SplitDriver,
    frame,
    memory,
)
from wirespeed.ports.virtio.queue import BROKEN, NO_BUFFERS, TOO_LONG

DRIVERS = pytest.mark.parametrize("driver_type", [SplitDriver, PackedDriver])
NOWHERE = 0x5000_0000
END = EDGE + 128 * PAGE  # behind the second region there is nothing
MOST_PIECES = 1024

# Chains of (address, length) that cannot be, and what each counts as; the header has 12 bytes.
CHAINS = {
    "in no region": ([(NOWHERE, 100)], "unmapped"),
    "across the end of a region": ([(END - 50, 100)], "unmapped"),
    "across the end of all addresses": ([(2**64 - 50, 100)], "unmapped"),
    "longer than the memory": ([(EDGE, 0xFFFFFFFF)], "unmapped"),
    "begins right behind a region": ([(END, 13)], "unmapped"),
    "second piece in no region": ([(EDGE, 12), (NOWHERE, 64)], "unmapped"),
    "empty": ([(EDGE, 0)], "short_chain"),
    "empty twice": ([(EDGE, 0), (EDGE, 0)], "short_chain"),
    "shorter than the header": ([(EDGE, 5)], "short_chain"),
    "the header and nothing else": ([(EDGE, 12)], "short_chain"),
    "a header in three": ([(EDGE, 4), (EDGE, 4), (EDGE, 4)], "short_chain"),
}


def good(driver, number, write):
    """Lend a buffer with a frame, or for one; its address and id."""
    at = driver.guest.place(2048)
    driver.guest.write(at, bytes(12) + frame(number, 64))
    return at, driver.add([(at, 2048 if write else 76, write)])


@DRIVERS
@pytest.mark.parametrize("table", [False, True], ids=["direct", "indirect"])
@pytest.mark.parametrize("case", CHAINS)
def test_a_chain_from_which_no_frame_can_be_read_is_given_back_and_the_next_is_taken(driver_type, case, table):
    pieces, reason = CHAINS[case]
    driver = driver_type(memory(), 16, 65530)
    with Device(driver, indirect=1) as device:
        bad = driver.add([(a, n, 0) for a, n in pieces], driver.guest.place(256) if table else 0)
        _, fine = good(driver, 7, 0)
        assert device.frames() == [frame(7, 64)]
        assert driver.returned() == [(bad, 0), (fine, 0)]
        assert device.refused == {reason: 1}


# Merged with others a short one is as good as any; and of one that is longer than the memory only the beginning is used.
@DRIVERS
@pytest.mark.parametrize("table", [False, True], ids=["direct", "indirect"])
@pytest.mark.parametrize("case, mergeable", [
    (case, mergeable) for case, (pieces, reason) in CHAINS.items() for mergeable in (0, 1)
    if case != "longer than the memory" and not (mergeable and reason == "short_chain" and sum(n for _, n in pieces))
])  # fmt: skip
def test_a_chain_that_no_frame_can_be_written_to_is_given_back_and_the_next_is_taken(
    driver_type, case, mergeable, table
):
    pieces, reason = CHAINS[case]
    driver = driver_type(memory(), 16, 65530)
    with Device(driver, indirect=1, mergeable=mergeable) as device:
        bad = driver.add([(a, n, 1) for a, n in pieces], driver.guest.place(256) if table else 0)
        at, fine = good(driver, 0, 1)
        assert device.transmit([frame(7, 64)]) == 1
        assert driver.returned() == [(bad, 0), (fine, 76)]
        assert driver.guest.read(at + 12, 64) == frame(7, 64)
        assert device.refused == {reason: 1}


@DRIVERS
def test_of_buffers_that_were_merged_all_before_a_bad_one_come_back_unused(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver, mergeable=1) as device:
        first, bad = driver.add([(EDGE, 50, 1)]), driver.add([(NOWHERE, 50, 1)])
        at, fine = good(driver, 0, 1)
        assert device.transmit([frame(7, 64)]) == 1
        assert driver.returned() == [(first, 0), (bad, 0), (fine, 76)]
        assert driver.guest.read(at, 76) == bytes(10) + b"\1\0" + frame(7, 64)


@DRIVERS
def test_buffers_for_the_wrong_direction_are_refused(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver) as device:
        bad = [driver.add([(EDGE, 100, 1)]), driver.add([(EDGE, 12, 0), (EDGE, 100, 1)])]
        assert device.frames() == []
        assert driver.returned() == [(i, 0) for i in bad]
        kept = driver.guest.read(EDGE, 200)
        bad = [driver.add([(EDGE, 100, 0)]), driver.add([(EDGE, 12, 1), (EDGE, 100, 0)])]
        assert (device.transmit([frame(1, 64)]), device.q.stop) == (0, NO_BUFFERS)
        assert driver.returned() == [(i, 0) for i in bad]
        assert driver.guest.read(EDGE, 200) == kept
        assert device.refused == {"bad_direction": 4}


@DRIVERS
@pytest.mark.parametrize("length", [0, 8, 17, 16 * 17])
def test_an_indirect_table_of_a_wrong_size_is_refused(driver_type, length):
    driver = driver_type(memory(), 16)
    with Device(driver, indirect=1) as device:
        bad = driver.add([(driver.guest.place(512), length, 0)])
        place = driver.chains[bad][0] if driver_type is SplitDriver else 0
        driver.guest.write(driver.desc + 16 * place + 8 + (4 if driver_type is SplitDriver else 6),
                           struct.pack("<H", INDIRECT | (1 << 7) * (driver_type is PackedDriver)))  # fmt: skip
        assert device.frames() == []
        assert driver.returned() == [(bad, 0)]
        assert device.refused == {"bad_indirect": 1}


@DRIVERS
def test_an_indirect_table_that_was_not_agreed_on_is_refused(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver, indirect=0) as device:
        bad = driver.add([(EDGE, 100, 0)], driver.guest.place(16))
        assert device.frames() == []
        assert driver.returned() == [(bad, 0)]
        assert device.refused == {"bad_indirect": 1}


@DRIVERS
def test_an_indirect_table_that_lies_across_two_regions_is_read(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver, indirect=1) as device:
        a, b = driver.guest.place(12), driver.guest.place(64)
        driver.guest.write(b, frame(3, 64))
        fine = driver.add([(a, 12, 0), (b, 64, 0)], EDGE - 5)
        assert device.frames() == [frame(3, 64)]
        assert driver.returned() == [(fine, 0)]


@DRIVERS
def test_an_indirect_table_outside_the_memory_is_refused(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver, indirect=1) as device:
        table = END - 16
        bad = driver.add([(EDGE, 100, 0)], table)
        place = driver.chains[bad][0] if driver_type is SplitDriver else 0
        driver.guest.write(driver.desc + 16 * place + 8, struct.pack("<I", 48))  # two entries more than there is memory
        driver.guest.write(table + 12, struct.pack("<HH", NEXT * (driver_type is SplitDriver), 1))
        assert device.frames() == []
        assert driver.returned() == [(bad, 0)]
        assert device.refused == {"unmapped": 1}


@pytest.mark.parametrize("flags, following, reason", [
    (NEXT, 1, "loop"), (NEXT, 0, "loop"), (NEXT, 16, "bad_index"), (NEXT, 0xFFFF, "bad_index"),
    (INDIRECT, 0, "bad_indirect"),
])  # fmt: skip
def test_entries_of_an_indirect_table_obey_the_same_rules(flags, following, reason):
    driver = SplitDriver(memory(), 16)
    with Device(driver, indirect=1) as device:
        table = driver.guest.place(32)
        bad = driver.add([(EDGE, 50, 0), (EDGE, 50, 0)], table)
        driver.guest.write(table + 16 + 12, struct.pack("<HH", flags, following))
        _, fine = good(driver, 1, 0)
        assert device.frames() == [frame(1, 64)]
        assert driver.returned() == [(bad, 0), (fine, 0)]
        assert device.refused == {reason: 1}


@pytest.mark.parametrize("direction", [0, 1], ids=["dequeue", "enqueue"])
@pytest.mark.parametrize("head", [16, 17, 0x7FFF, 0xFFFF])
def test_a_head_outside_the_ring_is_refused_once(head, direction):
    driver = SplitDriver(memory(), 16, 65535)
    with Device(driver) as device:
        driver.offer(head)
        _, fine = good(driver, 1, direction)
        if direction:
            assert device.transmit([frame(1, 64)]) == 1
        else:
            assert device.frames() == [frame(1, 64)]
        assert driver.returned() == [(head, 0), (fine, 76 * direction)]
        assert device.refused == {"bad_index": 1}
        assert device.frames() == [] and driver.returned() == []


@pytest.mark.parametrize("direction", [0, 1], ids=["dequeue", "enqueue"])
@pytest.mark.parametrize("flags, following, reason", [(NEXT, 3, "loop"), (NEXT, 16, "bad_index"), (NEXT, 0xFFFF, "bad_index"),
                                                      (NEXT | INDIRECT, 1, "bad_indirect")])  # fmt: skip
def test_a_chain_that_goes_round_or_out_of_the_ring_is_refused_once(flags, following, reason, direction):
    driver = SplitDriver(memory(), 16, 65535)
    with Device(driver, indirect=1) as device:
        driver.free.remove(3)
        driver.describe(3, EDGE, 100, flags | WRITE * direction, following)
        driver.offer(3)
        _, fine = good(driver, 1, direction)
        if direction:
            assert device.transmit([frame(1, 64)]) == 1
        else:
            assert device.frames() == [frame(1, 64)]
        assert driver.returned() == [(3, 0), (fine, 76 * direction)]
        assert device.refused == {reason: 1}


@pytest.mark.parametrize("jump", [17, 100, 32768, 65535])
def test_an_available_index_that_goes_further_than_the_ring_breaks_it(jump):
    driver = SplitDriver(memory(), 16, 65530)
    with Device(driver) as device:
        driver.guest.write(driver.avail + 2, struct.pack("<H", (driver.index + jump) & 0xFFFF))
        assert device.frames() == []
        assert (device.transmit([frame(1, 64)]), device.q.stop) == (0, BROKEN)
        assert device.frames() == [] and driver.returned() == []
        assert device.refused == {"bad_index": 1}


@pytest.mark.parametrize("direction", [0, 1], ids=["dequeue", "enqueue"])
def test_a_packed_chain_without_an_end_breaks_the_ring(direction):
    driver = PackedDriver(memory(), 16, 5)
    with Device(driver) as device:
        for i in range(16):
            driver.describe(i, EDGE, 16, NEXT | WRITE * direction | driver.bits(driver.wrap ^ (i < 5)))
        if direction:
            assert (device.transmit([frame(1, 64)]), device.q.stop) == (0, BROKEN)
        else:
            assert device.frames() == []
        assert driver.returned() == []
        assert device.refused == {"loop": 1}


@DRIVERS
def test_bad_chains_without_end_do_not_hold_up_a_worker(driver_type):
    driver = driver_type(memory(), 64)
    with Device(driver) as device:
        bad = [driver.add([(NOWHERE, 100, 0)]) for _ in range(64)]
        assert device.frames() == [] and driver.returned() == [(i, 0) for i in bad[:32]]
        _, fine = good(driver, 1, 0)
        assert device.frames() == [] and driver.returned() == [(i, 0) for i in bad[32:]]
        assert device.frames() == [frame(1, 64)] and driver.returned() == [(fine, 0)]


@DRIVERS
def test_a_chain_of_more_pieces_than_anybody_sends_is_refused(driver_type):
    driver = driver_type(memory(), 4096)
    with Device(driver) as device:
        bad = driver.add([(EDGE, 1, 0)] * (MOST_PIECES + 1))
        at = driver.guest.place(2048)
        driver.guest.write(at + 12, frame(9, 1012))
        fine = driver.add([(at + i, 1, 0) for i in range(MOST_PIECES)])
        assert device.frames() == [frame(9, 1012)]
        assert driver.returned() == [(bad, 0), (fine, 0)]
        assert device.refused == {"too_long": 1}


@DRIVERS
def test_a_frame_longer_than_any_is_refused(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver) as device:
        bad = driver.add([(EDGE, 70000, 0)])
        assert device.frames() == [] and driver.returned() == [(bad, 0)]
        assert device.refused == {"too_long": 1}


@DRIVERS
def test_a_frame_that_the_pool_can_never_hold_is_dropped_and_one_that_it_cannot_hold_now_waits(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver, pool=4, room=1024 + 128) as device:
        bad, at = driver.add([(EDGE, 9000, 0)]), driver.guest.place(4096)
        driver.guest.write(at + 12, frame(1, 3000))
        fine = driver.add([(at, 3012, 0)])
        kept = [device.packet(frame(0, 60)) for _ in range(3)]
        assert device.frames() == [] and driver.returned() == [(bad, 0)]
        assert device.refused == {"no_room": 1}
        device.give_back(kept)
        assert device.frames() == [frame(1, 3000)] and driver.returned() == [(fine, 0)]


@DRIVERS
@pytest.mark.parametrize("header", [
    struct.pack("<BBHHHH", 1, 0, 0, 0, 100, 6),  # csum_start behind the frame
    struct.pack("<BBHHHH", 1, 0, 0, 0, 0xFFFF, 0xFFFF),
    struct.pack("<BBHHHH", 1, 0, 0, 0, 62, 1),  # the field's second byte behind it
    struct.pack("<BBHHHH", 1, 1, 54, 0, 34, 16),  # gso_size 0
    struct.pack("<BBHHHH", 0, 99, 54, 100, 34, 16),  # no such gso_type
], ids=["start", "all ones", "field", "gso_size", "gso_type"])  # fmt: skip
def test_a_header_that_asks_for_what_cannot_be_is_counted_and_its_frame_is_as_it_was(driver_type, header):
    driver = driver_type(memory(), 16)
    with Device(driver) as device:
        at = driver.guest.place(100)
        driver.guest.write(at, header + bytes(2) + frame(5, 64))
        driver.add([(at, 76, 0)])
        driver.add([(at, 5, 0), (at + 5, 71, 0)])
        assert device.receive() == [(frame(5, 64), 0, 0)] * 2
        assert device.refused == {"bad_header": 2}


@DRIVERS
def test_a_buffer_too_short_for_the_frame_is_not_in_the_way_for_ever(driver_type):
    """A driver without mergeable buffers, with the header in a descriptor of its own."""
    driver = driver_type(memory(), 16)
    with Device(driver) as device:
        at = driver.guest.place(2048)
        usual = driver.add([(at, 12, 1), (at + 12, 1514, 1)])
        assert (device.transmit([frame(1, 9000), frame(2, 64)]), device.q.stop) == (0, TOO_LONG)
        assert driver.returned() == []
        assert device.transmit([frame(2, 64)]) == 1
        assert driver.returned() == [(usual, 76)]
        assert driver.guest.read(at, 76) == bytes(10) + b"\1\0" + frame(2, 64)


def test_a_descriptor_shorter_than_the_header_is_no_long_one():
    """A length less the header's, as an unsigned number, would be as long as can be."""
    driver = PackedDriver(memory(), 16)
    with Device(driver) as device:
        driver.guest.write(EDGE - 32, b"\xa5" * 64)
        bad = [driver.add([(EDGE - 32, n, 1)]) for n in (0, 1, 11)]
        assert (device.transmit([frame(1, 64)] * 4), device.q.stop) == (0, NO_BUFFERS)
        assert driver.returned() == [(i, 0) for i in bad]
        assert driver.guest.read(EDGE - 32, 64) == b"\xa5" * 64
