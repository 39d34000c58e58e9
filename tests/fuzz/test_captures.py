"""What must hold for any bytes holds for every packet of the public captures: among it, find agrees with dissect."""

from pathlib import Path

import pytest

from tests.fuzz import frame_check, runner
from tests.oracles import corpus
from wirespeed.net.capture.reader import CaptureReader

FILES = corpus.files() or [""]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> runner.Bench:
    return runner.frame_bench(runner.Progress(str(tmp_path_factory.mktemp("fuzz") / "progress")))


@pytest.mark.parametrize("name", FILES)
def test_every_packet_of_a_capture_is_taken_soundly(captures: Path, bench: runner.Bench, name: str) -> None:
    at = bench.record.ctypes.data
    with CaptureReader(captures / name) as reader:
        for burst in reader:
            for i in range(len(burst)):
                link, length = int(burst.link[i]), int(burst.captured[i])
                broken = frame_check.check_at(at, int(burst.address[i]), length, link)
                assert not broken, f"{frame_check.INVARIANTS[broken]}: link type {link}, {burst.data(i).hex()}"


@pytest.mark.parametrize(
    "second, whole, broken",
    [
        ((14, 20, 50), 1, 0),
        ((15, 20, 50), 1, frame_check.BEGIN),
        ((13, 20, 50), 1, frame_check.BEGIN),
        ((14, 20, 61), 1, frame_check.END),
        ((14, 20, 50), 0, frame_check.WHOLE),
        ((14, 37, 50), 1, frame_check.FITS),
        ((14, 0, 50), 1, frame_check.FITS),
    ],
)
def test_headers_out_of_place_are_seen(
    bench: runner.Bench, second: tuple[int, int, int], whole: int, broken: int
) -> None:
    _, records, *_ = bench.memory
    records[:3] = [(1, 1, 0, 0, 14, 60), (13, whole, 0, *second), (24, 1, 0, second[0] + second[1], 20, second[2])]
    assert frame_check.shape_at(bench.record.ctypes.data, 3, 60) == broken
