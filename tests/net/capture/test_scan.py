"""The scan finds what the obvious reader finds, in whatever pieces the bytes come."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.capture import files, model
from tests.net.capture.files import FRAMES, SAMPLES
from tests.net.capture.rig import Rig
from wirespeed.net.capture import scan, window
from wirespeed.net.capture.scan import Scan
from wirespeed.net.capture.scanner import find

each_sample = pytest.mark.parametrize("name", SAMPLES)


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig()


def test_the_samples_are_whole_and_differ():
    for name, data in SAMPLES.items():
        found = model.read(data)
        assert found.damage is None and not found.faults, name
        assert len(found.packets) >= 7, name
    assert len(set(SAMPLES.values())) == len(SAMPLES)


@each_sample
def test_a_whole_file_is_read_as_the_model_reads_it(rig, name):
    assert rig.read(SAMPLES[name]) == model.read(SAMPLES[name])


@each_sample
def test_a_file_in_two_pieces_is_read_the_same_wherever_it_is_cut(rig, name):
    data = SAMPLES[name]
    whole = model.read(data)
    for cut in range(len(data) + 1):
        assert rig.read(data, cut) == whole, f"cut at {cut}"


@each_sample
def test_a_file_that_comes_byte_by_byte_is_read_the_same(rig, name):
    data = SAMPLES[name]
    assert rig.read(data, *range(1, len(data))) == model.read(data)


@each_sample
def test_a_file_that_ends_early_gives_what_is_whole_and_says_where_it_ends(rig, name):
    data = SAMPLES[name]
    for end in range(len(data)):
        assert rig.read(data[:end]) == model.read(data[:end]), f"the first {end} bytes"


@each_sample
def test_nothing_behind_the_last_byte_is_looked_at(rig, name):
    data = SAMPLES[name]
    for end in range(len(data) + 1):
        rig.at_the_edge(data[:end])
        assert rig.report(rig.found()) == model.read(data[:end])


frames = st.lists(st.binary(max_size=80), max_size=12)
orders = st.sampled_from("<>")
ticks = st.integers(0, (1 << 64) - 1)


@st.composite
def pcaps(draw) -> bytes:
    order, magic = draw(orders), draw(st.sampled_from([0xA1B2C3D4, 0xA1B23C4D]))
    out = files.pcap_header(order, magic, draw(st.integers(0, 0xFFFFFFFF)), draw(st.integers(0, 0xFFFFFFFF)))
    word = st.integers(0, 0xFFFFFFFF)
    for data in draw(frames):
        out += files.pcap_record(data, draw(word), draw(word), draw(word), order)
    return out


option_lists = st.lists(st.tuples(st.integers(1, 0xFFFF), st.binary(max_size=9)), max_size=3)


@st.composite
def pcapngs(draw) -> bytes:
    out = b""
    for _ in range(draw(st.integers(1, 3))):
        order = draw(orders)
        made = files.section(order, extra=files.options(*draw(option_lists), order=order))
        count = draw(st.integers(1, 3))
        for _ in range(count):
            extra = draw(option_lists) + [(9, bytes([draw(st.integers(0, 255))]))]
            snaplen = draw(st.sampled_from([0, 5, 65535]))
            made += files.interface(draw(st.integers(0, 300)), snaplen, files.options(*extra, order=order), order)
        for data in draw(frames):
            number, extra = draw(st.integers(0, count - 1)), files.options(*draw(option_lists), order=order)
            kind = draw(st.sampled_from(["enhanced", "old", "simple", "other"]))
            wire = draw(st.none() | st.integers(0, 0xFFFFFFFF))
            if kind == "enhanced":
                made += files.enhanced(data, draw(ticks), number, wire, extra, order)
            elif kind == "old":
                made += files.old_packet(data, draw(ticks), number, wire, extra, order)
            elif kind == "simple":
                made += files.simple(data, order=order)
            else:
                made += files.block(draw(st.integers(7, 0x7FFFFFFF)), data, order)
        out += made
    return out


@given(data=pcaps() | pcapngs(), cuts=st.lists(st.floats(0, 1), max_size=4), end=st.floats(0, 1) | st.just(1.0))
def test_any_file_is_read_as_the_model_reads_it(rig, data, cuts, end):
    data = data[: int(end * len(data))]
    places = sorted(int(cut * len(data)) for cut in cuts)
    expected = model.read(data)
    assert rig.read(data, *places) == expected
    rig.at_the_edge(data)
    assert rig.report(rig.found()) == expected


@given(frames=st.lists(st.binary(max_size=40), max_size=4), noise=st.binary(min_size=1, max_size=40))
def test_rubbish_behind_good_packets_leaves_them_good(rig, frames, noise):
    for make in (files.pcap, files.pcapng):
        data = make(frames) + noise
        found = rig.read(data)
        assert found == model.read(data)
        assert [p.data for p in found.packets[: len(frames)]] == frames


def test_frames_of_every_size_up_to_the_largest_are_read_whole(rig):
    sizes = [65535, 65536, 262_144, 262_145, window.CHUNK, 524_280, scan.window.LARGEST_BLOCK - (1 << 18), 1, 0, 64]
    frames = [bytes([i]) * size for i, size in enumerate(sizes)]
    for make in (files.pcap, files.pcapng):
        data = make(frames)
        found = rig.read(data, *range(0, len(data), 100_003))
        assert [p.data for p in found.packets] == frames
        assert found.damage is None and not found.faults


def test_a_snap_length_that_lies_costs_no_byte(rig):
    data = files.pcap_header(snaplen=10) + files.pcap_record(FRAMES[5])
    assert rig.read(data).packets[0].data == FRAMES[5]


def test_a_record_that_claims_more_than_a_gigabyte_is_damage_at_its_place(rig):
    good = files.pcap(FRAMES[:3])
    found = rig.read(good + files.pcap_record(b"", 1)[:8] + b"\0\0\0\x54" + b"\0\0\0\x54" + bytes(100))
    assert [p.data for p in found.packets] == FRAMES[:3]
    assert found.damage == (scan.FRAME_TOO_LARGE, len(good), 4)


def test_frames_of_usb_that_are_too_long_are_passed_over(rig):
    long = bytes((1 << 20) + 1)
    data = files.pcap([FRAMES[0], long, FRAMES[3]], link=189)
    found = rig.read(data)
    assert found == model.read(data)
    assert [p.data for p in found.packets] == [FRAMES[0], FRAMES[3]]
    assert (found.faults, rig.record.too_long, found.damage) == (1, 1, None)
    cut = rig.read(data[: 24 + 76 + 16 + len(long) - 1])
    assert cut.damage == (scan.CUT_SHORT, 24 + 76, 2)


def test_a_block_larger_than_any_is_passed_over_and_its_end_looked_at(rig):
    large = bytes(scan.window.LARGEST_BLOCK)
    before = files.pcapng(FRAMES[:1])
    for trailer, faults in ((None, 0), (12, 1)):
        data = before + files.block(0x0BAD, large, trailer=trailer) + files.enhanced(FRAMES[3])
        found = rig.read(data)
        assert [p.data for p in found.packets] == [FRAMES[0], FRAMES[3]]
        assert (found.faults, found.damage) == (faults, None)
    cut = rig.read(before + files.block(0x0BAD, large)[:-1])
    assert cut.damage == (scan.CUT_SHORT, len(before), 2)


def test_a_section_or_interface_larger_than_any_is_damage(rig):
    large = bytes(scan.window.LARGEST_BLOCK)
    before = files.pcapng(FRAMES[:1])
    for block in (files.section(extra=large), files.interface(extra=large)):
        assert rig.read(before + block).damage == (scan.BLOCK_TOO_LARGE, len(before), 2)


def test_counters_go_on_beyond_31_and_32_bits(rig):
    for start in (2**31 - 5, 2**32 - 5):
        rig.begin()
        rig.record.packets = start
        assert len(rig.push(files.pcap(FRAMES * 2) + b"x")) == 16
        rig.end()
        rig.found()
        assert rig.record.packets == start + 16
        assert rig.record.damage.packet == start + 17


def test_offsets_of_a_large_file_go_on_beyond_32_bits(tmp_path, rig):
    path = tmp_path / "sparse.pcapng"
    with path.open("wb") as file:
        file.write(files.pcapng(FRAMES[:1]))
        size = 0xFFFFFFF0
        file.write(files.block(0x0BAD, b"", size=size)[:8])
        file.seek(size - 12, os.SEEK_CUR)
        file.write(size.to_bytes(4, "little") + files.enhanced(FRAMES[3]) + b"12345")
    end = path.stat().st_size - 5
    assert end > 1 << 32
    with path.open("rb") as file:
        rig.begin(window.FILE, file.fileno())
        assert [p.data for p in rig.found()] == [FRAMES[0], FRAMES[3]]
    assert (rig.record.damage.what, rig.record.damage.offset, rig.record.faults) == (scan.CUT_SHORT, end, 0)


def test_a_read_that_fails_is_told_with_its_error(rig):
    rig.begin(window.FILE, 12345)
    assert rig.found() == []
    assert (rig.record.damage.what, rig.record.damage.errno) == (scan.READ_ERROR, 9)


def test_a_stream_without_bytes_gives_nothing_and_does_not_wait(rig):
    reader, writer = os.pipe()
    try:
        rig.begin(window.STREAM, reader)
        assert rig.found() == []
        for piece in (SAMPLES["pcapng"][:50], SAMPLES["pcapng"][50:]):
            os.write(writer, piece)
            packets = rig.found()
            assert not rig.record.damage.what
        os.close(writer)
        assert rig.report(packets + rig.found()) == model.read(SAMPLES["pcapng"])
    finally:
        os.close(reader)


def test_one_call_looks_through_a_bounded_piece_of_a_file(tmp_path, rig):
    path = tmp_path / "blocks.pcapng"
    path.write_bytes(
        files.section() + files.block(0x0BAD, bytes(1 << 20)) * 20 + files.interface() + files.enhanced(b"x")
    )
    with path.open("rb") as file:
        rig.begin(window.FILE, file.fileno())
        assert find(rig.address) == 0
        assert 0 < rig.record.window.offset < 20 << 20
        calls = 1
        while not find(rig.address):
            calls += 1
            assert calls < 100
    assert calls > 1


def test_interfaces_that_sections_repeat_keep_their_numbers(rig):
    part = files.pcapng(FRAMES[:1])
    other = files.section() + files.interface(113) + files.enhanced(FRAMES[0])
    found = rig.read(part * 3 + other + part)
    assert [p.interface for p in found.packets] == [0, 0, 0, 1, 2]
    assert [p.link for p in found.packets] == [1, 1, 1, 113, 1]
    assert (rig.record.known, rig.record.sections) == (3, 5)


def test_more_interfaces_than_there_can_be_are_damage(rig):
    many = b"".join(files.interface(extra=files.options((2, b"%d" % i))) for i in range(scan.INTERFACES + 1))
    found = rig.read(files.section() + many + files.enhanced(b"x"))
    assert found.packets == []
    assert found.damage is not None and found.damage[0] == scan.TOO_MANY_INTERFACES
    same = files.interface() * (scan.INTERFACES + 1)
    assert rig.read(files.section() + same).damage[0] == scan.TOO_MANY_INTERFACES


def test_notes_that_no_longer_fit_are_counted_and_packets_go_on(rig):
    large = files.options((1, b"x" * 60_000))
    sections = b"".join(
        files.section(extra=files.options((1, b"%d" % i)) + large) + files.interface() + files.enhanced(b"%d" % i)
        for i in range(100)
    )
    found = rig.read(sections)
    assert [p.data for p in found.packets] == [b"%d" % i for i in range(100)]
    assert rig.record.notes_lost > 0
    assert rig.record.notes_used <= scan.NOTES_ROOM


def test_the_scan_s_memory_is_bounded_by_its_layout():
    assert scan.MEMORY < 16 << 20
    assert Scan.size < 1024
