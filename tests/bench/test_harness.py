"""The benches' arithmetic, rows and traffic: a figure is only as good as these."""

import json
import os
import sys
from pathlib import Path

import pytest

from bench import capture, harness, traffic
from bench.harness import Figure, Options, Row, ToolFailed
from bench.peers import Tool, clitools, libraries, testpmd

OPTIONS = Options(peer=True, quick=True, runs=1, core=min(os.sched_getaffinity(0)))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESPEED_BENCH_DIR", str(tmp_path / "captures"))


def test_a_figure_is_the_median_with_its_spread() -> None:
    assert Figure.of([3.0, 1.0, 2.0, 10.0]) == Figure(2.5, 1.0, 10.0, 4)


def test_a_steady_rate_leaves_out_the_start_up() -> None:
    start, each = 2.0, 1e-7
    short, long = [start + 1e6 * each] * 3, [start + 1e7 * each] * 3
    figure = harness.steady((1_000_000, 10_000_000), short, long)
    assert figure is not None
    assert figure.value == pytest.approx(10.0)
    assert [figure.low, figure.high] == pytest.approx([10.0, 10.0])
    assert figure.n == 3


def test_one_disturbed_run_does_not_move_a_steady_rate() -> None:
    figure = harness.steady((1_000_000, 10_000_000), [1.0, 1.0, 5.0], [1.9, 1.9, 1.9])
    assert figure is not None
    assert figure.value == pytest.approx(10.0)


def test_runs_that_do_not_differ_give_no_rate() -> None:
    assert harness.steady((10, 100), [1.0, 1.0, 1.1], [1.0, 0.9, 1.2]) is None


@pytest.mark.parametrize(
    ("unit", "ours", "theirs", "expected"),
    [("Mpps", 20.0, 10.0, 2.0), ("cycles/packet", 5.0, 25.0, 5.0), ("s", 2.0, 1.0, 0.5), ("MB", 0.0, 1.0, None)],
)
def test_a_speedup_above_one_means_that_ours_is_better(
    unit: str, ours: float, theirs: float, expected: float | None
) -> None:
    assert harness.speedup(unit, ours, theirs) == expected


def test_rows_are_json_objects_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    rows = [
        Row("capture.count.64B.dpkt", "Mpps", Figure.of([50.0]), "dpkt", Figure.of([0.1, 0.2, 0.4])),
        Row("capture.count.64B.absent", "Mpps", None, "absent", None, "not installed: absent"),
        Row("forward.one_hop.64B", "cycles/packet", Figure.of([7.0])),
    ]
    harness.write_json(path, rows)
    first, second, third = (json.loads(line) for line in path.read_text().splitlines())
    assert {key: first[key] for key in ("name", "unit", "ours", "peer", "theirs", "speedup")} == {
        "name": "capture.count.64B.dpkt",
        "unit": "Mpps",
        "ours": 50.0,
        "peer": "dpkt",
        "theirs": 0.2,
        "speedup": 250.0,
    }
    assert (first["theirs_min"], first["theirs_max"], first["theirs_n"]) == (0.1, 0.4, 3)
    assert (second["ours"], second["theirs"], second["speedup"]) == (None, None, None)
    assert second["note"] == "not installed: absent"
    assert (third["peer"], third["speedup"]) == (None, None)


def test_rounds_are_interleaved_and_turn_about() -> None:
    seen: list[str] = []
    harness.interleave(["a", "b"], 3, seen.append)
    assert seen == ["a", "b", "b", "a", "a", "b"]


def test_a_measured_process_runs_on_its_core_and_the_harness_keeps_its_own() -> None:
    before = os.sched_getaffinity(0)
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    finished = harness.run_timed([sys.executable, "-c", code], {OPTIONS.core})
    assert json.loads(finished.output) == [OPTIONS.core]
    assert finished.seconds > 0
    assert os.sched_getaffinity(0) == before


def test_a_program_that_fails_is_reported_with_its_last_words() -> None:
    with pytest.raises(ToolFailed, match="ended with 3: sorry"):
        harness.run_timed([sys.executable, "-c", "import sys; print('sorry', file=sys.stderr); sys.exit(3)"], {0})


def test_peak_memory_tells_anonymous_from_mapped(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(64_000_000))
    hold = f"""
import mmap, time
file = open({str(big)!r}, "rb")
own = b"x" * 32_000_000
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(mapped[i] for i in range(0, len(mapped), 4096))
time.sleep(0.3)
"""
    memory = harness.run_sampled([sys.executable, "-c", hold], {OPTIONS.core})
    assert 32 <= memory.anonymous < 60
    assert 64 <= memory.mapped < 100


@pytest.mark.parametrize("kind", ["64B", "IMIX"])
def test_the_captures_checksums_are_those_scapy_computes(kind: str) -> None:
    utils = pytest.importorskip("scapy.utils")
    ether = pytest.importorskip("scapy.layers.l2").Ether
    inet = pytest.importorskip("scapy.layers.inet")
    sizes = set()
    for frame, meta in utils.RawPcapReader(str(traffic.capture(kind, 300))):
        assert meta.wirelen == len(frame)
        sizes.add(len(frame))
        packet = ether(frame)
        fresh = packet.copy()
        del fresh[inet.IP].chksum
        del fresh[inet.UDP].chksum
        assert bytes(fresh) == frame
        assert packet[inet.UDP].dport != 53
    assert sizes == ({64} if kind == "64B" else {64, 594, 1518})


@pytest.mark.parametrize("kind", ["64B", "IMIX"])
def test_a_short_capture_is_the_beginning_of_a_longer_one(kind: str) -> None:
    short = traffic.capture(kind, traffic.BLOCK + 100).read_bytes()
    long = traffic.capture(kind, traffic.BLOCK + 3_000).read_bytes()
    assert long.startswith(short)
    assert len(long) > len(short)


def test_imix_is_7_4_1_and_flows_are_many() -> None:
    utils = pytest.importorskip("scapy.utils")
    frames = [frame for frame, _ in utils.RawPcapReader(str(traffic.capture("IMIX", 24_000)))]
    shares = [sum(len(frame) == size for frame in frames) / len(frames) * 12 for size in (64, 594, 1518)]
    assert shares == [pytest.approx(7, abs=0.3), pytest.approx(4, abs=0.3), pytest.approx(1, abs=0.2)]
    flows = {int.from_bytes(frame[26:38], "big") for frame in frames}
    assert 0.85 * traffic.FLOWS < len(flows) <= traffic.FLOWS


def test_a_small_disk_means_a_smaller_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    room = traffic.RESERVE_BYTES + 100_001_000
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": room}))
    assert traffic.affordable("64B", 10_000_000) == 1_250_000
    assert traffic.affordable("64B", 1_000_000) == 1_000_000


@pytest.mark.parametrize("tool", [*libraries.TOOLS, *clitools.TOOLS], ids=lambda tool: tool.name)
def test_each_tool_does_its_job(tool: Tool, tmp_path: Path) -> None:
    if tool.missing():
        pytest.skip(f"{tool.needs} is not installed")
    for case in tool.commands:
        runner = capture._Runner(OPTIONS, tmp_path)
        runner.once(tool, case, "64B", 100)
        assert runner.failed == {}
        assert len(runner.seconds[tool, 100]) == 1


def test_the_libraries_change_one_hop_and_keep_the_checksum_valid(tmp_path: Path) -> None:
    utils = pytest.importorskip("scapy.utils")
    ether = pytest.importorskip("scapy.layers.l2").Ether
    pytest.importorskip("dpkt")
    source = traffic.capture("64B", 50)
    results = []
    for library in ("dpkt", "scapy"):
        target = tmp_path / f"{library}.pcap"
        assert libraries.JOBS[library, "rewrite"](source, target) == (50, 0)
        results.append([frame for frame, _ in utils.RawPcapReader(str(target))])
    assert results[0] == results[1]
    for frame in results[0]:
        packet = ether(frame)
        assert packet.ttl == 63
        fresh = packet.copy()
        del fresh.chksum
        assert bytes(fresh) == frame


def test_an_absent_peer_is_a_row_that_says_so(tmp_path: Path) -> None:
    ours = Tool("wirespeed", "python:nowhere_to_be_found", {"count": lambda a, b: ["true"]})
    absent = Tool("absent", "no-such-program", {"count": lambda a, b: ["no-such-program"]})
    (row,) = capture._rates(OPTIONS, [ours, absent], tmp_path, "64B", "count")
    assert row.name == "capture.count.64B.absent"
    assert row.record()["note"] == "ours: not installed: nowhere_to_be_found; not installed: no-such-program"
    assert row.speedup is None


def test_a_session_of_testpmd_forwards_in_each_mode_and_fills_its_buffers() -> None:
    if testpmd.missing():
        pytest.skip(f"{testpmd.PROGRAM} is not installed")
    core = OPTIONS.core
    with testpmd.Session(core, core, traffic.capture("64B", 1_000), huge=False) as session:
        for mode in ("io", "csum"):
            assert session.measure(mode, 0.05).mpps > 0
        session.fill()
        for mode in ("macswap", "5tswap"):
            assert session.measure(mode, 0.05).cycles_per_packet > 0
