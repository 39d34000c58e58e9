"""How long ``wirespeed switch`` takes from its start to the end of a capture of one packet, by what the kernel cache has."""

import os
import sys
import tempfile
from pathlib import Path

from bench.harness import ToolFailed, run_timed
from bench.switch_frames import SIZE
from bench.traffic import FILE_HEADER


def seconds(rules: list[str], source: Path, core: int, cold: bool) -> float:
    """From the start of the process to its end; ``cold``: with a kernel cache that is empty, which is thrown away."""
    with tempfile.TemporaryDirectory(prefix="wirespeed-bench-start-") as folder:
        where = Path(folder)
        flows, came, left = where / "flows", where / "in.pcap", where / "out.pcap"
        flows.write_text("\n".join(rules) + "\n")
        record = SIZE.to_bytes(4, "little")
        came.write_bytes(FILE_HEADER.tobytes() + bytes(8) + record + record + source.read_bytes()[:SIZE])
        words = [sys.executable, "-m", "wirespeed", "switch", f"--port=1=pcap:{came}", f"--port=2=pcap:{left}"]
        words += [f"--flows={flows}", "--control=none", "--no-live"]
        if cold:
            words = ["env", f"WIRESPEED_CACHE={where}/kernels", *words]
        finished = run_timed(words, os.sched_getaffinity(0))
        if left.stat().st_size <= FILE_HEADER.nbytes:
            raise ToolFailed("the packet did not leave")
        return finished.seconds
