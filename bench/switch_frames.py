"""Frames of 64 bytes, UDP over IPv4 with valid checksums, made of arrays of addresses and ports."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.traffic import folder

SIZE = 64
FRAME = np.dtype(
    [
        ("eth_dst", ">u2", 3), ("eth_src", ">u2", 3), ("eth_type", ">u2"),
        ("version_ihl", "u1"), ("tos", "u1"), ("len", ">u2"), ("id", ">u2"), ("frag", ">u2"),
        ("ttl", "u1"), ("proto", "u1"), ("chksum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
        ("sport", ">u2"), ("dport", ">u2"), ("udp_len", ">u2"), ("udp_chksum", ">u2"), ("payload", "u1", 22),
    ]
)  # fmt: skip
assert FRAME.itemsize == SIZE
HOST, GATEWAY = 0x02_00_00_00_00_01, 0x02_00_00_00_00_02
Frames = npt.NDArray[np.uint8]  # of n rows of 64 bytes


def udp(src: Any, dst: Any, sport: Any, dport: Any, *, eth_src: Any = HOST, eth_dst: Any = GATEWAY) -> Frames:
    """Frames of these fields, each an array or one value for all."""
    columns = np.broadcast_arrays(src, dst, sport, dport, np.asarray(eth_src), np.asarray(eth_dst))
    frames = np.zeros(len(columns[0]), FRAME)
    for name, column in zip(("src", "dst", "sport", "dport"), columns, strict=False):
        frames[name] = column
    for name, column in (("eth_src", columns[4]), ("eth_dst", columns[5])):
        for i, shift in enumerate((32, 16, 0)):
            frames[name][:, i] = column.astype(np.uint64) >> np.uint64(shift) & np.uint64(0xFFFF)
    frames["eth_type"], frames["version_ihl"], frames["ttl"], frames["proto"] = 0x0800, 0x45, 64, 17
    frames["len"], frames["udp_len"] = SIZE - 14, SIZE - 34
    frames["chksum"] = _checksum(_words(frames, 14, 34))
    # RFC 768: a pseudo header of addresses, protocol and length comes in, and a sum of zero is sent as all ones.
    checksum = _checksum(_words(frames, 26, SIZE) + np.uint32(17 + SIZE - 34))
    frames["udp_chksum"] = np.where(checksum == 0, 0xFFFF, checksum)
    return frames.view(np.uint8).reshape(-1, SIZE)


def _words(frames: npt.NDArray[np.void], begin: int, end: int) -> Any:
    words = np.ascontiguousarray(frames.view(np.uint8).reshape(-1, SIZE)[:, begin:end]).view(">u2")
    return words.sum(axis=1, dtype=np.uint32)


def _checksum(total: Any) -> Any:
    """The Internet checksum of a sum of words (RFC 1071)."""
    ones = np.uint32(0xFFFF)
    for _ in range(2):
        total = (total & ones) + (total >> np.uint32(16))
    return ~total & ones


def shuffled(frames: Frames, seed: int = 1) -> Frames:
    """The same in an order of chance, always the same one."""
    return frames[np.random.default_rng(seed).permutation(len(frames))]


def saved(name: str, frames: Frames) -> Path:
    """The file that has these frames, and nothing else; made if it is not there yet."""
    digest = hashlib.sha256(frames.tobytes()).hexdigest()[:12]
    path = folder() / f"{name}-{digest}.frames"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        frames.tofile(part)
        part.replace(path)
    return path


def address(text: str) -> int:
    """An IPv4 address as a number."""
    a, b, c, d = map(int, text.split("."))
    return a << 24 | b << 16 | c << 8 | d


def dotted(number: int) -> str:
    """A number as an IPv4 address."""
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
