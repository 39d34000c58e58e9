"""Capture files: read, parse and count by flow; read, change and write; start-up; peak memory.

Every rate is steady: the packets of a long run less those of a short one, over the difference of their times. Every
tool is a process of its own on the same core, its input in the page cache, its output in one folder (memory if that is
large enough) from which it is removed after each run. What a tool does less than ours, its row says.
"""

import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench import harness, ours, traffic
from bench.harness import Figure, Options, Row, ToolFailed, row_name, say
from bench.peers import Tool, clitools, libraries

KINDS = ("64B", "IMIX")
CASES = ("count", "rewrite")
MEMORY = Path("/dev/shm")


def run(options: Options) -> Iterator[Row]:
    """Measure all of it, row by row."""
    tools = [ours.tool(), *((*libraries.TOOLS, *clitools.TOOLS) if options.peer else ())]
    with _output_folder(options) as folder:
        say(f"captures: {traffic.folder()}; outputs: {folder}; core {options.core}; {options.runs} runs")
        for case in CASES:
            if options.wants(row_name("capture", "startup", case)):
                yield from _startup(options, tools, folder, case)
        for kind in KINDS:
            for case in CASES:
                if options.wants(row_name("capture", case, kind)):
                    yield from _rates(options, tools, folder, kind, case)
        for case in CASES:
            if options.wants(row_name("capture", "memory", case)):
                yield from _memory(options, tools, folder, case)


@contextmanager
def _output_folder(options: Options) -> Iterator[Path]:
    """A folder for what is written: $WIRESPEED_BENCH_OUT, or in memory, or beside the captures."""
    needed = traffic.size_of("IMIX", _longest(options, "IMIX"))
    chosen = os.environ.get("WIRESPEED_BENCH_OUT")
    if chosen:
        parent = Path(chosen)
    elif MEMORY.is_dir() and min(shutil.disk_usage(MEMORY).free, _available_memory() / 2) > 1.5 * needed:
        parent = MEMORY
    else:
        parent = traffic.folder()
        say("outputs go to the disk: this machine has not the memory for them")
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wirespeed-bench-", dir=parent) as folder:
        _touch(Path(folder) / "out.pcap", int(needed))
        yield Path(folder)


def _touch(path: Path, size: int) -> None:
    """Write so much once: a virtual machine gets its memory page by page, and the first tool would wait for it."""
    chunk = bytes(1 << 20)
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(size // len(chunk)):
                file.write(chunk)
    finally:
        path.unlink(missing_ok=True)


def _available_memory() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024.0
    return 0.0


def _longest(options: Options, kind: str) -> int:
    default = ours.tool()
    return traffic.affordable(kind, (default.quick_shares if options.quick else default.shares)[1])


def _shares(options: Options, tool: Tool, kind: str) -> tuple[int, int]:
    """The packets of a tool's short and long run, fewer where the disk is too small."""
    short, long = tool.quick_shares if options.quick else tool.shares
    long = traffic.affordable(kind, long)
    return min(short, long // 2), long


class _Runner:
    """Runs tools on captures and keeps the seconds of those that worked and the reasons of those that did not."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._target = folder / "out.pcap"
        self.seconds: dict[tuple[Tool, int], list[float]] = defaultdict(list)
        self.failed: dict[Tool, str] = {}

    def once(self, tool: Tool, case: str, kind: str, packets: int) -> None:
        """One run, its output checked for its size and removed again."""
        if tool in self.failed:
            return
        source = traffic.capture(kind, packets)
        try:
            finished = harness.run_timed(tool.commands[case](source, self._target), {self._options.core})
            if tool.reports and (seen := json.loads(finished.output)["packets"]) != packets:
                raise ToolFailed(f"saw {seen} of {packets} packets")
            if case == "rewrite" and (written := self._target.stat().st_size) != source.stat().st_size:
                raise ToolFailed(f"wrote {written} bytes from a file of {source.stat().st_size}")
            self.seconds[tool, packets].append(finished.seconds)
        except (ToolFailed, OSError) as error:
            self.failed[tool] = f"failed: {error}"
            say(f"{tool.name} {case}: {error}")
        finally:
            self._target.unlink(missing_ok=True)


def _able(tools: list[Tool], case: str, runner: _Runner) -> list[Tool]:
    """The tools that have this case and are there; why the others are not is kept with the runner."""
    able = [tool for tool in tools if case in tool.commands]
    for tool in able:
        if reason := tool.missing():
            runner.failed[tool] = reason
            say(reason)
    return able


def _rates(options: Options, tools: list[Tool], folder: Path, kind: str, case: str) -> Iterator[Row]:
    runner = _Runner(options, folder)
    able = _able(tools, case, runner)
    shares = {tool: _shares(options, tool, kind) for tool in able}
    for packets in sorted({packets for pair in shares.values() for packets in pair}):
        traffic.read_through(traffic.capture(kind, packets))

    def once(tool: Tool) -> None:
        for _ in range(tool.repeats):
            for packets in shares[tool]:
                runner.once(tool, case, kind, packets)
        if tool not in runner.failed:
            long = median(runner.seconds[tool, shares[tool][1]])
            say(f"{case} {kind} {tool.name}: {shares[tool][1]:,} packets in {long:.2f} s")

    harness.interleave(able, options.runs, once)
    figures: dict[Tool, Figure | None] = {}
    for tool in able:
        short, long = (runner.seconds[tool, packets] for packets in shares[tool])
        figures[tool] = harness.steady(shares[tool], short, long) if tool not in runner.failed else None
        if figures[tool] is None:
            runner.failed.setdefault(tool, "too short to tell start-up from work")
    yield from _compare(row_name("capture", case, kind), "Mpps", able, figures, runner.failed)


def _startup(options: Options, tools: list[Tool], folder: Path, case: str) -> Iterator[Row]:
    """The whole of a process that meets one packet; the first runs bring programs and compiled kernels into caches."""
    runner = _Runner(options, folder)
    able = _able(tools, case, runner)
    once = partial(runner.once, case=case, kind="64B", packets=1)
    harness.interleave(able, 1, once)
    runner.seconds.clear()
    harness.interleave(able, options.runs, once)
    figures = {tool: Figure.of(runner.seconds[tool, 1]) if tool not in runner.failed else None for tool in able}
    yield from _compare(row_name("capture", "startup", case), "s", able, figures, runner.failed)


def _memory(options: Options, tools: list[Tool], folder: Path, case: str) -> Iterator[Row]:
    """The most a process holds for the longest capture: memory of its own, and pages of files mapped into it."""
    runner = _Runner(options, folder)
    packets = _longest(options, "IMIX")
    source, target = traffic.capture("IMIX", packets), folder / "out.pcap"
    able = [tool for tool in _able(tools, case, runner) if _shares(options, tool, "IMIX")[1] == packets]
    held: dict[Tool, list[harness.Memory]] = defaultdict(list)
    for tool in able:
        if tool in runner.failed:
            continue
        try:
            held[tool].append(harness.run_sampled(tool.commands[case](source, target), {options.core}))
        except ToolFailed as error:
            runner.failed[tool] = f"failed: {error}"
        finally:
            target.unlink(missing_ok=True)
    size = f"{source.stat().st_size / 1e9:.1f} GB file"
    for part in ("anonymous", "mapped"):
        figures = {tool: Figure.of([getattr(one, part) for one in held[tool]]) if held[tool] else None for tool in able}
        name = row_name("capture", "memory", f"{case}-IMIX-{part}")
        yield from _compare(name, "MB", able, figures, runner.failed, size)


def _compare(
    name: str,
    unit: str,
    able: list[Tool],
    figures: dict[Tool, Figure | None],
    failed: dict[Tool, str],
    remark: str = "",
) -> Iterator[Row]:
    """A row for each peer, or one of ours alone."""
    own, *peers = able
    first = [remark] if remark else []
    if own in failed:
        first.append(f"ours: {failed[own]}")
    if not peers:
        yield Row(name, unit, figures[own], note="; ".join(first))
    for tool in peers:
        notes = [*first, *filter(None, (failed.get(tool), tool.remark))]
        yield Row(row_name(name, tool.name), unit, figures[own], tool.name, figures[tool], "; ".join(notes))
