"""Captures to a file at a rate that is more than everybody keeps, beside tcpdump and dumpcap: packets kept out of sent.

Sender and receiver are the ends of a veth; each capturing program has the measured core for itself and writes into the
same folder, in memory where there is room. What a file holds is told by its size, for all frames are of one size.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import namespaces
from bench.harness import Figure, Options, Row, ToolFailed, affinity, interleave, row_name
from bench.namespaces import Space
from bench.ours_live import Graph
from bench.ours_live import Live as Ours
from bench.peers import testpmd_live
from bench.peers.testpmd_live import Live as Sender

SIZES = (64, 1500)
PEERS = ("tcpdump", "dumpcap")
MEMORY = Path("/dev/shm")
MOST_BYTES = 4 << 30  # that a run writes
LEAD_SECONDS = 1.0  # until a program that was started captures
TRAIL_SECONDS = 0.5  # until what has been received is written
RECORD = {
    "ours": lambda size: 16 + size,
    "tcpdump": lambda size: 16 + size,
    "dumpcap": lambda size: 32 + size + -size % 4,
}


def run(options: Options, huge: bool) -> Iterator[Row]:
    """A row for each peer and size; without peers, of ours alone."""
    sides = ["ours", *(PEERS if options.peer else ())]
    failed = {side: f"not installed: {side}" for side in sides[1:] if not shutil.which(side)}
    for size in SIZES:
        names = {side: row_name("kernel", "capture", f"{size}B", side if options.peer else None) for side in sides}
        if not any(options.wants(names[side]) for side in sides[1:] or sides):
            continue
        if absent := testpmd_live.missing():
            yield Row(names["ours"], "kept", None, note=f"no sender: {absent}")
            continue
        kept: dict[str, list[float]] = defaultdict(list)
        rates: list[float] = []

        def once(side: str, size: int = size, kept: dict[str, list[float]] = kept, rates: list[float] = rates) -> None:
            if side in failed:
                return
            try:
                share, rate = _measure(side, size, options, huge)
            except ToolFailed as error:
                failed[side] = f"failed: {error}"
                return
            kept[side].append(share)
            rates.append(rate)

        interleave(sides, options.runs, once)
        figures = {side: Figure.of(kept[side]) if kept[side] else None for side in sides}
        at = f"{Figure.of(rates).value:.2f} Mpps sent" if rates else ""
        for side in sides[1:] or sides:
            notes = [at, *(f"{one}: {failed[one]}" for one in dict.fromkeys(("ours", side)) if one in failed)]
            peer = side if options.peer else None
            yield Row(
                names[side], "kept", figures["ours"], peer, figures[side] if peer else None,
                "; ".join(filter(None, notes)),
            )  # fmt: skip


def _measure(side: str, size: int, options: Options, huge: bool) -> tuple[float, float]:
    """The share of packets that are in the file, and million packets a second that were sent."""
    other = next((core for core in sorted(os.sched_getaffinity(0)) if core != options.core), options.core)
    with (
        tempfile.TemporaryDirectory(prefix="wirespeed-bench-", dir=_parent()) as folder,
        namespaces.spaces("c") as (space,),
    ):
        file = Path(folder) / "out.pcap"
        space.veth("gen", "in")
        with Sender(space, "tx", [testpmd_live.device("xdp", 9, "gen")], other, huge, size) as sender:
            with _capturing(side, space, file, options.core):
                before, begin = space.packets("gen", "tx"), time.perf_counter()
                sender.start()
                time.sleep(0.5 if options.quick else 1.5)
                sender.stop()
                took = time.perf_counter() - begin
                sent = space.packets("gen", "tx") - before
                time.sleep(TRAIL_SECONDS)
            if not sent:
                raise ToolFailed("nothing was sent")
            return file.stat().st_size // RECORD[side](size) / sent, sent / took / 1e6


@contextmanager
def _capturing(side: str, space: Space, file: Path, core: int) -> Iterator[None]:
    """Within, a program captures; its file is whole at the end."""
    if side == "ours":
        with Ours(space, Graph([["packet:in", f"pcap:{file}"]], core, busy=False)) as ours:
            yield
            ours.stop()
        return
    commands: dict[str, list[str]] = {
        "tcpdump": ["tcpdump", "-i", "in", "-n", "-Z", "root", "-w", str(file)],
        "dumpcap": ["dumpcap", "-i", "in", "-q", "-w", str(file)],
    }
    with affinity({core}):
        process = subprocess.Popen(space.words(*commands[side]), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        time.sleep(LEAD_SECONDS)
        yield
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        if process.returncode:
            raise ToolFailed(f"{side} ended with {process.returncode}: {said.decode(errors='replace')[-200:]}")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _parent() -> Path:
    """Where files go: $WIRESPEED_BENCH_OUT, or memory, or the usual folder for what is passing."""
    chosen = os.environ.get("WIRESPEED_BENCH_OUT")
    if chosen:
        return Path(chosen)
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 * MOST_BYTES
    return MEMORY if roomy else Path(tempfile.gettempdir())
