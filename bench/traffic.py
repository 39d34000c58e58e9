"""The captures the benches read: deterministic, with valid checksums, made once and kept in a cache folder.

*Theory of operation.* A capture is a stream of UDP/IPv4 frames in blocks; block ``b`` is drawn with the seed (SEED, b),
so that a short capture is the beginning of a longer one, byte for byte. That makes the difference of a long and a short
run the cost of exactly the packets in between. Flows come in random order, as on a busy link; payloads are zeros.

The layouts stand here once more, apart from the library's: a bench must not lean on what it measures.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.harness import say

SEED = 1
FLOWS = 10_000
BLOCK = 1 << 16
VERSION = 1  # Part of the file names; a change of the content needs a new number.

IMIX = np.array((64,) * 7 + (594,) * 4 + (1518,), np.uint32)  # The usual "simple IMIX", 7:4:1.
MEAN_SIZE = {"64B": 64.0, "IMIX": float(IMIX.mean())}
RESERVE_BYTES = 2_000_000_000  # Left free on the disk, whatever is asked for.

# The file's header (https://www.tcpdump.org/manpages/pcap-savefile.5.html): microseconds, Ethernet.
FILE_HEADER = np.array(
    [(0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)],
    "<u4, <u2, <u2, <i4, <u4, <u4, <u4",
)
# A record's header and the frame's up to the payload; one packet is this and zeros.
RECORD = np.dtype(
    [
        ("seconds", "<u4"), ("microseconds", "<u4"), ("captured", "<u4"), ("length", "<u4"),
        ("eth_dst", "u1", 6), ("eth_src", "u1", 6), ("eth_type", ">u2"),
        ("version_ihl", "u1"), ("tos", "u1"), ("len", ">u2"), ("id", ">u2"), ("frag", ">u2"),
        ("ttl", "u1"), ("proto", "u1"), ("chksum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
        ("sport", ">u2"), ("dport", ">u2"), ("udp_len", ">u2"), ("udp_chksum", ">u2"),
    ]
)  # fmt: skip
RECORD_HEADER = RECORD.fields["eth_dst"][1] if RECORD.fields else 16
IPV4_AT, UDP_AT = RECORD_HEADER + 14, RECORD_HEADER + 34
assert RECORD.itemsize == UDP_AT + 8


def folder() -> Path:
    """Where captures are kept: $WIRESPEED_BENCH_DIR, or the user's cache folder."""
    chosen = os.environ.get("WIRESPEED_BENCH_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wirespeed-bench"


def capture(kind: str, packets: int) -> Path:
    """The capture of so many packets of a kind (``64B`` or ``IMIX``), made if it is not there yet."""
    path = folder() / f"udp-{kind}-{FLOWS}flows-{packets}-v{VERSION}.pcap"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        say(f"making {path.name} (about {size_of(kind, packets) / 1e6:,.0f} MB)")
        part = path.with_suffix(f".part{os.getpid()}")
        try:
            write(part, kind, packets)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    return path


def size_of(kind: str, packets: int) -> float:
    """About how many bytes such a capture has."""
    return FILE_HEADER.nbytes + packets * (RECORD_HEADER + MEAN_SIZE[kind])


def affordable(kind: str, packets: int) -> int:
    """``packets``, or as many halves of it as the disk takes; says so when it is fewer."""
    folder().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder()).free - RESERVE_BYTES
    count = packets
    while count > 1 and size_of(kind, count) > free and not _cached(kind, count):
        count //= 2
    if count < packets:
        say(f"{folder()} has room for {count:,} {kind} packets, not {packets:,}: measuring the smaller share")
    return count


def _cached(kind: str, packets: int) -> bool:
    return (folder() / f"udp-{kind}-{FLOWS}flows-{packets}-v{VERSION}.pcap").exists()


def read_through(path: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    chunk = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(chunk):
            pass


def write(path: Path, kind: str, packets: int) -> None:
    """Write a capture; a million packets of 64 bytes take about half a second."""
    with path.open("wb") as file:
        FILE_HEADER.tofile(file)
        for first in range(0, packets, BLOCK):
            _block(kind, first, min(BLOCK, packets - first)).tofile(file)


def _block(kind: str, first: int, n: int) -> npt.NDArray[np.uint8]:
    """Some packets of one block as they stand in the file; ``first`` is a multiple of BLOCK."""
    random = np.random.default_rng((SEED, first // BLOCK))
    flows = random.integers(0, FLOWS, BLOCK, dtype=np.uint32)[:n]
    sizes = (IMIX[random.integers(0, len(IMIX), BLOCK)] if kind == "IMIX" else np.full(BLOCK, 64, np.uint32))[:n]
    headers = _headers(flows, sizes)
    clock = np.arange(first, first + n, dtype=np.uint64)
    headers["seconds"] = 1_700_000_000 + clock // 1_000_000
    headers["microseconds"] = clock % 1_000_000
    headers["captured"] = headers["length"] = sizes
    ends = np.cumsum(sizes.astype(np.int64) + RECORD_HEADER)
    out = np.zeros(ends[-1], np.uint8)
    starts = ends - sizes - RECORD_HEADER
    out[starts[:, None] + np.arange(RECORD.itemsize)] = _bytes(headers)
    return out


def _headers(flows: npt.NDArray[np.uint32], sizes: npt.NDArray[np.uint32]) -> npt.NDArray[np.void]:
    """Headers of UDP/IPv4 frames of these flows. No port is 53, so that a filter for it matches nothing."""
    packets = np.zeros(len(flows), RECORD)
    spread = flows * np.uint32(2_654_435_761)  # Knuth's multiplicative hash: flows differ in all their fields.
    packets["eth_dst"] = (0x02, 0, 0, 0, 0, 0x02)
    packets["eth_src"] = (0x02, 0, 0, 0, 0, 0x01)
    packets["eth_type"] = 0x0800
    packets["version_ihl"] = 0x45
    packets["len"] = sizes - 14
    packets["ttl"] = 64
    packets["proto"] = 17
    packets["src"] = 0x0A000000 + flows
    packets["dst"] = 0xC0A80000 + (spread >> 16)
    packets["sport"] = 1024 + (spread & 0x7FFF)
    packets["dport"] = 2000 + flows % 8
    packets["udp_len"] = sizes - 34
    packets["chksum"] = _checksum(_words(packets, IPV4_AT, UDP_AT))
    # RFC 768: a pseudo header of addresses, protocol and length comes in, and a sum of zero is sent as all ones.
    pseudo = _words(packets, UDP_AT - 8, UDP_AT) + np.uint32(17) + packets["udp_len"]
    checksum = _checksum(pseudo + _words(packets, UDP_AT, RECORD.itemsize))
    packets["udp_chksum"] = np.where(checksum == 0, 0xFFFF, checksum)
    return packets


def _bytes(packets: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    return packets.view(np.uint8).reshape(len(packets), RECORD.itemsize)


def _words(packets: npt.NDArray[np.void], begin: int, end: int) -> npt.NDArray[np.uint32]:
    """The sum of the 16-bit words from byte ``begin`` to ``end`` of each packet."""
    words = np.ascontiguousarray(_bytes(packets)[:, begin:end]).view(">u2")
    total: npt.NDArray[np.uint32] = words.sum(axis=1, dtype=np.uint32)
    return total


def _checksum(total: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The Internet checksum of a sum of words (RFC 1071)."""
    ones = np.uint32(0xFFFF)
    for _ in range(2):
        total = (total & ones) + (total >> np.uint32(16))
    return ~total & ones
