"""Checksums and super-frames from a guest and to one: what its header says, and what it can be told."""

import struct

import numpy as np
import pytest

from tests.virtio.rings import EDGE, Device, PackedDriver, SplitDriver, memory
from wirespeed.core.packet import PARTIAL
from wirespeed.net.offload import describe
from wirespeed.ports.virtio.queue import ALL_TAKEN, TO_CUT

DRIVERS = pytest.mark.parametrize("driver_type", [SplitDriver, PackedDriver])
CSUM = struct.pack("<BBHHHH", 1, 0, 0, 0, 34, 16)
TSO4 = struct.pack("<BBHHHH", 1, 1, 54, 1000, 34, 16)
TSO4_ECN = struct.pack("<BBHHHH", 1, 0x81, 54, 1000, 34, 16)


def segment(payload, flags=0x10):
    """A TCP segment over IPv4, its checksum left to be done."""
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + payload, 1, 0, 64, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    tcp = struct.pack(">HHIIBBHHH", 80, 8080, 1, 2, 0x50, flags, 1000, 0, 0)
    return bytes.fromhex("0200000000010200000000020800") + ip + tcp + bytes(i & 255 for i in range(payload))


@DRIVERS
@pytest.mark.parametrize("header, size", [(CSUM, 0), (TSO4, 1000), (TSO4_ECN, 1000)], ids=["csum", "tso", "ecn"])
def test_what_a_guest_leaves_to_be_done_stays_with_its_packet(driver_type, header, size):
    driver = driver_type(memory(), 16)
    sent = segment(3000)
    with Device(driver) as device:
        driver.guest.write(EDGE, header + bytes(2) + sent)
        driver.add([(EDGE, 12 + len(sent), 0)])
        driver.add([(EDGE, 7, 0), (EDGE + 7, 5 + len(sent), 0)])
        assert device.receive() == [(sent, PARTIAL, size)] * 2
        assert not device.refused


def partial(device, sent, header):
    """A packet of which this header was said."""
    handle, said = device.packet(sent), np.frombuffer(header, np.uint8)
    assert describe(handle, said.ctypes.data, 10)
    return handle


@DRIVERS
@pytest.mark.parametrize("header, takes", [
    (CSUM, {"guest_csum": 1}), (TSO4, {"guest_csum": 1, "guest_tso4": 1}),
], ids=["csum", "tso"])  # fmt: skip
def test_a_guest_that_takes_them_is_told_and_one_that_does_not_gets_none(driver_type, header, takes):
    driver = driver_type(memory(), 16)
    sent = segment(3000)
    with Device(driver, mergeable=1, **takes) as device:
        chain = driver.add([(EDGE, 4096, 1)])
        assert (device.transmit([partial(device, sent, header)]), device.q.stop) == (1, ALL_TAKEN)
        assert driver.returned() == [(chain, 12 + len(sent))]
        got = driver.guest.read(EDGE, 12 + len(sent))
        assert got[:2] == header[:2] and got[4:10] == header[4:10] and got[10:12] == b"\1\0"
        assert got[12:62] == sent[:50] and got[64:] == sent[52:]  # but for the checksum, which is the pseudo header's
        driver.add([(EDGE, 4096, 1)])
        for name in takes:
            setattr(device.q, name, 0)
            assert (device.transmit([partial(device, sent, header)]), device.q.stop) == (0, TO_CUT)
            setattr(device.q, name, 1)


@DRIVERS
def test_packets_before_one_that_must_be_done_first_are_taken(driver_type):
    driver = driver_type(memory(), 16)
    with Device(driver) as device:
        chain, _ = driver.add([(EDGE, 2048, 1)]), driver.add([(EDGE, 2048, 1)])
        assert device.transmit([segment(10), partial(device, segment(20), CSUM), segment(30)]) == 1
        assert device.q.stop == TO_CUT
        assert driver.returned() == [(chain, 12 + 64)]
