"""The Python libraries dpkt and scapy, doing the same two jobs; ``python -m bench.peers.libraries LIBRARY JOB IN OUT``.

Each is used as its documentation shows, in its quickest form: no name is looked up in vain, the checksum of a changed
header is mended by difference (RFC 1624) as ours is, not computed anew.
"""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from bench.peers import Command, Tool

Flows = dict[tuple[object, ...], list[int]]
Result = tuple[int, int]  # packets, flows


def _add(flows: Flows, key: tuple[object, ...], size: int) -> None:
    entry = flows.get(key)
    if entry is None:
        flows[key] = [1, size]
    else:
        entry[0] += 1
        entry[1] += size


def one_hop_less(checksum: int) -> int:
    """An IPv4 header's checksum after its time to live went down by one (RFC 1624, equation 3)."""
    total = checksum + 0x0100
    return (total & 0xFFFF) + (total >> 16)


def dpkt_count(source: Path, _: Path) -> Result:
    """Count packets and bytes of each flow."""
    import dpkt
    from dpkt.ethernet import Ethernet
    from dpkt.ip import IP
    from dpkt.tcp import TCP
    from dpkt.udp import UDP

    flows: Flows = {}
    packets = 0
    with source.open("rb") as file:
        for _time, frame in dpkt.pcap.Reader(file):
            packets += 1
            ip = Ethernet(frame).data
            if isinstance(ip, IP) and isinstance(ip.data, UDP | TCP):
                _add(flows, (ip.src, ip.dst, ip.p, ip.data.sport, ip.data.dport), len(frame))
    return packets, len(flows)


def dpkt_rewrite(source: Path, target: Path) -> Result:
    """Forward IPv4 with one hop less to live; drop the rest."""
    import dpkt
    from dpkt.ethernet import Ethernet
    from dpkt.ip import IP

    packets = 0
    with source.open("rb") as file, target.open("wb") as out:
        writer = dpkt.pcap.Writer(out)
        for time, frame in dpkt.pcap.Reader(file):
            packets += 1
            packet = Ethernet(frame)
            ip = packet.data
            if isinstance(ip, IP) and ip.ttl > 1:
                ip.ttl -= 1
                ip.sum = one_hop_less(ip.sum)
                writer.writepkt(bytes(packet), time)
    return packets, 0


def scapy_count(source: Path, _: Path) -> Result:
    """Count packets and bytes of each flow."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.layers.inet import IP, TCP, UDP
    from scapy.layers.l2 import Ether  # noqa: F401  (registers Ethernet with the reader)
    from scapy.utils import PcapReader

    flows: Flows = {}
    packets = 0
    with PcapReader(str(source)) as reader:
        for packet in reader:
            packets += 1
            ip = packet.payload
            if isinstance(ip, IP) and isinstance(ip.payload, UDP | TCP):
                _add(flows, (ip.src, ip.dst, ip.proto, ip.payload.sport, ip.payload.dport), packet.wirelen)
    return packets, len(flows)


def scapy_rewrite(source: Path, target: Path) -> Result:
    """Forward IPv4 with one hop less to live; drop the rest."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.layers.inet import IP
    from scapy.layers.l2 import Ether  # noqa: F401  (registers Ethernet with the reader)
    from scapy.utils import PcapReader, PcapWriter

    packets = 0
    with PcapReader(str(source)) as reader, PcapWriter(str(target)) as writer:
        for packet in reader:
            packets += 1
            ip = packet.payload
            if isinstance(ip, IP) and ip.ttl > 1:
                ip.ttl -= 1
                ip.chksum = one_hop_less(ip.chksum)
                writer.write(packet)
    return packets, 0


JOBS: dict[tuple[str, str], Callable[[Path, Path], Result]] = {
    ("dpkt", "count"): dpkt_count,
    ("dpkt", "rewrite"): dpkt_rewrite,
    ("scapy", "count"): scapy_count,
    ("scapy", "rewrite"): scapy_rewrite,
}


def _command(library: str, job: str) -> Command:
    return lambda source, target: [
        sys.executable, "-m", "bench.peers.libraries", library, job, str(source), str(target)
    ]  # fmt: skip


TOOLS = (
    Tool(
        "dpkt",
        "python:dpkt",
        {job: _command("dpkt", job) for job in ("count", "rewrite")},
        shares=(100_000, 300_000),
        quick_shares=(5_000, 20_000),
        reports=True,
    ),
    Tool(
        "scapy",
        "python:scapy",
        {job: _command("scapy", job) for job in ("count", "rewrite")},
        shares=(10_000, 30_000),
        quick_shares=(1_000, 4_000),
        reports=True,
    ),
)

if __name__ == "__main__":
    library, job, source, target = sys.argv[1:]
    packets, flows = JOBS[library, job](Path(source), Path(target))
    print(json.dumps({"packets": packets, "flows": flows}))
