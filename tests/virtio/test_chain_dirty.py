"""The log of written pages: each page that a packet or the used ring was written to, and no other, and nothing beyond."""

import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtio.exchanges import cuts, lengths, place_pieces
from tests.virtio.rings import EDGE, PAGE, Device, Guest, PackedDriver, SplitDriver, frame
from wirespeed.ports.vhost_user.dirty import mark, write_marks

HOME = 1 << 16  # the rings are apart from the buffers


def guest():
    made = Guest((HOME, 64 * PAGE), (EDGE - 128 * PAGE, 128 * PAGE), (EDGE, 128 * PAGE))
    made.next[2] += 4 * PAGE
    return made


def set_bits(log):
    return {int(i) for i in np.flatnonzero(np.unpackbits(log, bitorder="little"))}


def pages(address, size):
    return set(range(address // PAGE, (address + size - 1) // PAGE + 1)) if size else set()


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("driver_type", [SplitDriver, PackedDriver])
def test_the_pages_that_were_written_are_those_in_the_log(driver_type, data):
    assert mmap.PAGESIZE == 4096
    driver = driver_type(guest(), 16, data.draw(st.sampled_from([0, 13])))
    log = np.zeros((EDGE + 128 * PAGE) // PAGE // 8, np.uint8)
    with Device(driver, mergeable=1, log=1, log_base=log.ctypes.data, log_size=log.size) as device:
        ring = driver.desc if driver.packed else driver.used
        device.q.log_used, device.q.used_guest = 1, ring
        for number in range(data.draw(st.integers(1, 4))):
            log[:] = 0
            size = data.draw(lengths)
            sent, expected, left = frame(number, size), set(), 12 + size
            while left > 0:
                room = data.draw(st.integers(max(1, left // 4), 10000))
                pieces = [
                    (a + (EDGE - HOME if a < EDGE - 128 * PAGE else 0), n)
                    for a, n in place_pieces(driver.guest, data.draw(cuts(room)), data.draw(st.booleans()))
                ]
                if driver.add([(a, n, 1) for a, n in pieces]) is None:
                    break
                for address, length in pieces:
                    expected |= pages(address, max(0, min(length, left)))
                    left -= length
            if left > 0:
                break
            assert device.transmit([sent]) == 1
            assert driver.returned()
            if driver.packed:
                assert set_bits(log) == expected | pages(ring, 256)
            else:
                assert set_bits(log) == expected | pages(ring, 4 + 8 * 16)


def test_what_lies_beyond_the_log_is_not_logged():
    driver = SplitDriver(guest(), 16)
    log = np.zeros(32, np.uint8)
    with Device(driver, log=1, log_base=log.ctypes.data + 8, log_size=11) as device:
        mark(device.queue, np.uint64(80 * PAGE), 1000 * PAGE)
        mark(device.queue, np.uint64(2**64 - 1), 1)
        write_marks(device.queue)
        assert set_bits(log) == set(range(64 + 80, 64 + 88))


def test_more_words_than_there_is_room_for_are_logged_all_the_same():
    driver = SplitDriver(guest(), 16)
    log = np.zeros(1024, np.uint8)
    with Device(driver, log=1, log_base=log.ctypes.data, log_size=log.size) as device:
        for page in range(0, 8192, 64):
            mark(device.queue, np.uint64(page * PAGE), 1)
        write_marks(device.queue)
        assert set_bits(log) == set(range(0, 8192, 64))
        assert device.q.marked == 0
