"""What went wrong in other readers of capture files, each with a capture of our own and the public one it came with.

The endless replay with few buffers (case 13, DPDK bug 595) and the gap below a millisecond (case 18, scapy #1246) are
tests of the port.
"""

import pytest

from tests.net.capture import files, model
from tests.net.capture.files import FRAMES
from tests.net.capture.rig import Rig
from wirespeed.net.capture import scan
from wirespeed.net.capture.reader import CaptureReader


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig()


def times_of(path) -> list[int]:
    with CaptureReader(path) as reader:
        return [time for burst in reader for time in burst.time.tolist()]


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_magic_number_of_nanoseconds_is_known(rig, order):
    """scapy #195, dpkt PR220: a capture of nanoseconds was refused."""
    data = files.pcap_header(order, 0xA1B23C4D) + files.pcap_record(b"x", 1_700_000_000, 123_456_789, order=order)
    assert rig.read(data).packets[0].time == 1_700_000_000_123_456_789


def test_the_public_captures_of_nanoseconds_keep_them(captures):
    folder = captures / "PcapPlusPlus/Tests/Pcap++Test/PcapExamples"
    for name in ("nanosecs.pcap", "nanosecs_big_endian.pcap"):
        assert any(time % 1000 for time in times_of(folder / name))


def test_each_interface_has_its_own_resolution(rig):
    """dpkt #681: only the first interface's resolution was used."""
    data = (
        files.section()
        + files.interface(extra=files.options((9, b"\x09")))
        + files.interface(extra=files.options((9, b"\x06")))
    )
    data += files.enhanced(b"", 1_700_000_000_123_456_789, 0) + files.enhanced(b"", 1_700_000_000_123_456, 1)
    assert [p.time for p in rig.read(data).packets] == [1_700_000_000_123_456_789, 1_700_000_000_123_456_000]


def test_the_public_capture_with_two_resolutions_is_of_one_day(captures):
    times = times_of(captures / "zeek/pcapng-multi-interface.pcapng")
    assert len(times) == 6
    assert max(times) - min(times) < 86400 * 10**9


def test_link_types_are_told_packet_by_packet(rig):
    """libpcap #1252: two link types in one file were refused."""
    data = files.section() + files.interface(1) + files.interface(113)
    data += files.enhanced(b"a", 0, 0) + files.enhanced(b"b", 0, 1) + files.enhanced(b"c", 0, 0)
    assert [p.link for p in rig.read(data).packets] == [1, 113, 1]


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("pcapng-test-generator/output_le/basic/test006.pcapng", {1, 0}),
        ("PcapPlusPlus/Tests/Pcap++Test/PcapExamples/pcapng-example.pcapng", {1, 113}),
    ],
)
def test_the_public_captures_with_two_link_types_are_read(captures, name, links):
    with CaptureReader(captures / name) as reader:
        assert {link for burst in reader for link in burst.link.tolist()} == links


@pytest.mark.parametrize("size", [0, 8, 12, 16])
def test_an_interface_that_is_too_short_is_damage_and_packets_before_it_are_kept(rig, size):
    """scapy #2787: an interface's block without its fields ended in an error of the unpacking."""
    good = files.pcapng(FRAMES[:2])
    found = rig.read(good + files.block(1, b"")[:4] + size.to_bytes(4, "little") + bytes(max(0, size - 8)) + bytes(40))
    assert [p.data for p in found.packets] == FRAMES[:2]
    assert found.damage == (scan.BLOCK_SIZE, len(good), 3)


def test_the_public_capture_with_options_beyond_their_block_keeps_its_packet(captures):
    with CaptureReader(captures / "libpcap/shb-option-too-long.pcapng") as reader:
        assert [len(p) for p in reader.packets()] == [64]
        assert reader.damage is None
        assert (reader.faults, reader.fault.offset) == (3, 0)


def test_a_capture_of_the_other_byte_order_is_read(rig):
    """packETH PR17: a capture of a MIPS router was unreadable."""
    assert rig.read(files.pcap(FRAMES, ">")).packets == rig.read(files.pcap(FRAMES)).packets


def test_the_public_captures_of_the_other_byte_order_are_read(captures):
    folder = captures / "PcapPlusPlus/Tests/Pcap++Test/PcapExamples"
    for name, count in (("nanosecs_big_endian.pcap", 10), ("microsecs_big_endian.pcap", 13)):
        expected = model.read((folder / name).read_bytes()).packets
        assert times_of(folder / name) == [p.time for p in expected]
        assert len(expected) == count


@pytest.mark.parametrize("start", [2**31 - 5, 2**32 - 5])
def test_case_16_packets_are_counted_beyond_31_and_32_bits(rig, start):
    """libpcap #1087, suricata PR5061, zeek PR2988: counters of 31 or 32 bits ended the loop or began anew."""
    rig.begin()
    rig.record.packets = start
    assert len(rig.push(files.pcap(FRAMES))) == 8
    assert rig.record.packets == start + 8
