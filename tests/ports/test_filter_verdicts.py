"""libpcap's own verdicts on its captures, of filters on the data path: which packets leave a port, by its expected list."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from wirespeed.core.frame import Packet
from wirespeed.engine.run import run
from wirespeed.ports import make
from wirespeed.ports.memory import MemoryPort


def read(file: Path, **options: Any) -> list[Packet]:
    """The packets that a capture port gives."""
    with MemoryPort() as memory:
        assert run(make("pcap", str(file), options) >> memory).balanced
        return memory.pull()


def test_a_capture_gives_the_packets_that_libpcap_says_match(captures: Path) -> None:
    expected = json.loads((captures / "_expected" / "libpcap" / "libpcap_filter_expect.json").read_text())
    files = {path.name: path for path in (*captures.glob("tcpdump/*"), *captures.glob("libpcap/filter/*"))}
    whole: dict[str, list[Packet]] = {}
    told, wrong = 0, defaultdict(list)
    for case in expected["apply"]:
        name = case["savefile"]
        # A port has no netmask, for there is none on the wire; names ending in .test are in libpcap's own /etc/hosts.
        if name not in files or case["netmask"] or ".test" in case["expr"]:
            continue
        if name not in whole:
            whole[name] = read(files[name])
        verdicts = case["results"]
        assert len(verdicts) == len(whole[name])
        wanted = [packet for packet, verdict in zip(whole[name], verdicts, strict=True) if verdict]
        if read(files[name], filter=case["expr"]) != wanted:
            wrong[name].append(case["expr"])
        told += len(verdicts)
    assert dict(wrong) == {}
    assert told > 600
