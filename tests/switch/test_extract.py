"""What the switch takes from a frame, against slices in Python, and against what Open vSwitch says of the same frames."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import TORTURE
from tests.oracles.corpus import files
from tests.switch import models, ovs_flow
from tests.switch.wild_frames import damaged_frames, whole_frames
from wirespeed.net.capture.reader import CaptureReader
from wirespeed.switch.extract import parse
from wirespeed.switch.fields import FIELDS, FLOW_SIZE, W_DERIVED, W_LABEL, W_MPLS2

i64 = np.int64
N = 1_000_000 if TORTURE else 20_000
GUARD = 0xA5
DERIVED = 0xFFFFFFFFFFFFFFFF << 64 * W_DERIVED
# What Open vSwitch does not print: our own words, the types of tags, how many labels there are, and the port.
UNPRINTED = DERIVED | 0xFFFFFFFF << 64 * W_LABEL + 32 | 0xFFFFFFFF << 64 * W_MPLS2 + 32 | 0xFFFFFFFF
SORT = FIELDS["tcp_src"].mask | FIELDS["tcp_dst"].mask


class Parser:
    """The kernel, on frames at the end of memory: behind each one stands what it must not use."""

    def __init__(self) -> None:
        self.flow = np.zeros(FLOW_SIZE // 8, np.uint64)

    def __call__(self, frame: bytes, whole: int | None = None) -> int:
        self.flow[:] = 0
        content = np.frombuffer(frame + bytes([GUARD]) * 64, np.uint8)
        whole = len(frame) if whole is None else whole
        parse(i64(self.flow.ctypes.data), i64(content.ctypes.data), i64(len(frame)), i64(whole))
        return int.from_bytes(self.flow.tobytes(), "little")


flow_of = Parser()


def as_model(frame: bytes, whole: int | None = None) -> int:
    return models.number_of(models.flow_of(frame, whole))


def told(flow: int) -> dict[str, int]:
    return {name: field.get(flow) for name, field in FIELDS.items() if field.get(flow)}


def test_fields_of_whole_frames_are_those_of_the_model() -> None:
    for frame in whole_frames():
        assert flow_of(frame) & ~DERIVED == as_model(frame), frame.hex()


def test_fields_of_damaged_frames_are_those_of_the_model() -> None:
    for frame in damaged_frames(1, N):
        assert flow_of(frame) & ~DERIVED == as_model(frame), frame.hex()


@given(st.binary(min_size=0, max_size=200), st.sampled_from([0x0800, 0x86DD, 0x0806, 0x8847, 0x8100, 0]))
def test_fields_of_noise_are_those_of_the_model(noise: bytes, kind: int) -> None:
    frame = bytes(12) + kind.to_bytes(2) + noise
    assert flow_of(frame) & ~DERIVED == as_model(frame)


def test_no_frame_has_a_field_that_depends_on_bytes_behind_it() -> None:
    for frame in whole_frames():
        for length in range(len(frame)):
            cut = frame[:length]
            assert flow_of(cut) & ~DERIVED == as_model(cut), cut.hex()


def test_of_the_beginning_of_a_packet_lengths_are_believed_as_far_as_the_packet_goes() -> None:
    for frame in whole_frames():
        for length in range(14, len(frame), 3):
            assert flow_of(frame[:length], len(frame)) & ~DERIVED == as_model(frame[:length], len(frame)), frame.hex()


@pytest.mark.parametrize(("ttl", "floor"), [(0, 0), (1, 1), (14, 14), (15, 15), (16, 15), (255, 15)])
def test_a_time_to_live_counts_up_to_fifteen(ttl: int, floor: int) -> None:
    frame = bytearray(next(frame for frame in whole_frames() if frame[12:15] == b"\x08\0\x45"))
    frame[22] = ttl
    assert flow_of(bytes(frame)) >> 64 * W_DERIVED + 32 & 15 == floor


@ovs_flow.needs_ofctl
def test_fields_of_all_sorts_are_those_that_open_vswitch_takes_from_the_same_frames(tmp_path: Path) -> None:
    assert _differing(tmp_path, [*whole_frames(), *damaged_frames(2, N)]) == []


@ovs_flow.needs_ofctl
def test_fields_of_public_captures_are_those_that_open_vswitch_takes(tmp_path: Path, captures: Path) -> None:
    frames: dict[bytes, None] = {}
    for name in files():
        taken = 0
        with CaptureReader(captures / name) as reader:
            for packet in reader.packets():
                if packet.link == 1 and len(packet.data) == packet.wire and 14 <= packet.wire <= 65535:
                    frames[packet.data] = None
                    taken += 1
                if taken >= (1000 if TORTURE else 100):
                    break
    assert len(frames) > 500
    assert _differing(tmp_path, list(frames)) == []


def _differing(directory: Path, frames: list[bytes]) -> list[tuple[str, dict[str, int], str]]:
    """Frames of which we and Open vSwitch say different things, with both."""
    capture = directory / "frames.pcap"
    ovs_flow.write_capture(capture, frames)
    lines = ovs_flow.flows_of(capture)
    assert len(lines) == len(frames)
    found = []
    for frame, line in zip(frames, lines, strict=True):
        ours, theirs = flow_of(frame) & ~UNPRINTED, ovs_flow.number_of(line)
        kind, proto = FIELDS["dl_type"].get(ours), FIELDS["nw_proto"].get(ours)
        if (kind, proto) in ((0x0800, 58), (0x86DD, 1), (0x0800, 2)):  # no rule can ask for the sort of these
            ours, theirs = ours & ~SORT, theirs & ~SORT
        if ours != theirs:
            found.append((frame.hex(), told(ours ^ theirs), line))
    return found[:5]
