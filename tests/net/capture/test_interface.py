"""Time stamps of any resolution become nanoseconds exactly, rounded down."""

import struct

import pytest

from tests.net.capture import files
from tests.net.capture.rig import Rig

TICKS = [0, 1, 999, 10**9 - 1, 10**9, (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig()


def wrapped(value: int) -> int:
    return struct.unpack("<q", struct.pack("<Q", value % (1 << 64)))[0]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("base", [10, 2])
def test_every_power_of_ten_and_two_is_exact(rig, base, order):
    data, expected = files.section(order), []
    for power in range(128):
        code = bytes([power | (128 if base == 2 else 0)])
        data += files.interface(extra=files.options((9, code), order=order), order=order)
        for ticks in TICKS:
            data += files.enhanced(b"", ticks, power, order=order)
            expected.append(wrapped(ticks * 10**9 // base**power))
    assert [p.time for p in rig.read(data).packets] == expected


@pytest.mark.parametrize("offset", [0, 1, -1, 1_700_000_000, -(1 << 33), (1 << 63) - 1])
def test_an_offset_in_seconds_is_added(rig, offset):
    extra = files.options((14, struct.pack("<q", offset)), (9, b"\x03"))
    data = files.section() + files.interface(extra=extra) + files.enhanced(b"", 1_234)
    assert rig.read(data).packets[0].time == wrapped(1_234_000_000 + offset * 10**9)


def test_an_interface_that_says_nothing_counts_microseconds(rig):
    data = files.section() + files.interface() + files.enhanced(b"", 1_700_000_000_123_456)
    assert rig.read(data).packets[0].time == 1_700_000_000_123_456_000


def test_each_interface_keeps_its_own_resolution(rig):
    data = files.section() + files.interface(extra=files.options((9, b"\x09"))) + files.interface()
    data += files.enhanced(b"", 5, 0) + files.enhanced(b"", 5, 1) + files.enhanced(b"", 6, 0)
    assert [p.time for p in rig.read(data).packets] == [5, 5_000, 6]


def test_options_beyond_their_block_are_a_fault_and_those_before_count(rig):
    bad = files.option(9, b"\x09") + struct.pack("<HH", 2, 500)
    data = files.section() + files.interface(extra=bad) + files.enhanced(b"", 7)
    found = rig.read(data)
    assert ([p.time for p in found.packets], found.faults, found.damage) == ([7], 1, None)
