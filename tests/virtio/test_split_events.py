"""Notifications, of both formats: the guest is told when it wants to be, by the specification's own words."""

import os
import struct
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtio.rings import EDGE, Device, PackedDriver, SplitDriver, memory
from wirespeed.ports.vhost_user.notify import waiting, want_kicks

DRIVERS = pytest.mark.parametrize("driver_type", [SplitDriver, PackedDriver])


@contextmanager
def bell(device):
    """The descriptor by which the device tells the guest."""
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    device.q.call = fd
    try:
        yield lambda: _rings(fd)
    finally:
        os.close(fd)


def _rings(fd):
    try:
        return os.eventfd_read(fd)
    except BlockingIOError:
        return 0


def pass_frames(driver, device, n):
    for _ in range(n):
        driver.add([(EDGE, 76, 0)])
    assert len(device.frames()) == n
    assert len(driver.returned()) == n


@DRIVERS
def test_who_wants_to_be_told_is_told_once_a_burst_and_who_does_not_is_not(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver) as device, bell(device) as rings:
        pass_frames(driver, device, 5)
        assert rings() == 1
        no = struct.pack("<H", 1)
        driver.guest.write(driver.avail + (2 if driver.packed else 0), no)
        pass_frames(driver, device, 5)
        assert rings() == 0
        assert device.frames() == [] and rings() == 0
        assert (device.q.notified, device.q.suppressed) == (1, 1)


@DRIVERS
def test_a_whole_round_of_the_ring_in_one_burst_is_told(driver_type):
    driver = driver_type(memory(), 16, 3)
    with Device(driver) as device, bell(device) as rings:
        for _ in range(3):
            pass_frames(driver, device, 16)
            assert rings() == 1


def test_a_guest_without_a_descriptor_is_not_told():
    driver = SplitDriver(memory(), 16)
    with Device(driver) as device:
        pass_frames(driver, device, 1)
        assert (device.q.notified, device.q.suppressed) == (0, 1)


@settings(max_examples=50)
@given(st.sampled_from([0, 65530, 65535]), st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 16)), max_size=8))
def test_with_event_indexes_a_split_ring_tells_when_the_index_passes_the_event(base, steps):
    driver = SplitDriver(memory(), 16, base)
    with Device(driver, event_idx=1) as device, bell(device) as rings:
        used, first = base, True
        for offset, n in steps:
            event = (used + offset) & 0xFFFF
            driver.guest.write(driver.avail + 4 + 2 * 16, struct.pack("<H", event))
            pass_frames(driver, device, n)
            passed = event in {(used + i) & 0xFFFF for i in range(n)}
            assert rings() == int(passed or first)
            used, first = (used + n) & 0xFFFF, False


@settings(max_examples=50)
@given(st.integers(0, 31), st.lists(st.tuples(st.integers(-12, 12), st.integers(1, 12)), max_size=8))
def test_with_event_indexes_a_packed_ring_tells_when_the_descriptor_is_passed(base, steps):
    driver = PackedDriver(memory(), 16, base)
    with Device(driver, event_idx=1) as device, bell(device) as rings:
        used, first = base, True
        for offset, n in steps:
            event = used + offset
            wrap = 1 ^ (event // 16 & 1)
            driver.guest.write(driver.avail, struct.pack("<HH", event % 16 | wrap << 15, 2))
            pass_frames(driver, device, n)
            # A place is an event of this round or, with the other wrap counter, of the one before.
            passed = used <= event < used + n
            assert rings() == int(passed or first)
            used, first = used + n, False


@DRIVERS
@pytest.mark.parametrize("event_idx", [0, 1])
def test_a_guest_is_asked_to_ring_or_not_to(driver_type, event_idx):
    driver = driver_type(memory(), 16, 65530)
    with Device(driver, event_idx=event_idx) as device:
        assert not waiting(device.queue)
        assert not want_kicks(device.queue, True)
        flags = driver.used + (2 if driver.packed else 0)
        event = driver.used + 4 + 8 * 16
        if driver.packed or not event_idx:
            assert driver.guest.word(flags) == 0
        else:
            assert driver.guest.word(event) == 65530
        assert not want_kicks(device.queue, False)
        if driver.packed or not event_idx:
            assert driver.guest.word(flags) == 1
        else:
            assert driver.guest.word(event) == 65529
        driver.add([(EDGE, 76, 0)])
        assert waiting(device.queue) and want_kicks(device.queue, True)
