"""What fuzzing begins with: frames and capture files, of the public captures where they are, and some of our own."""

import itertools
import random
import struct
from pathlib import Path

from tests.conftest import captures_directory
from tests.fuzz.inputs import CAPACITY
from tests.fuzz.mutation import Maker
from tests.net import stacks
from tests.oracles import corpus as public
from wirespeed.net.capture.reader import CaptureReader

DEMO = Path(__file__).resolve().parents[2] / "src/wirespeed/data/demo.pcap"
OF_ONE_FILE = 24  # frames
LINKS = [0, 1, 1, 1, 9, 12, 14, 101, 108, 113, 228, 229, 276, 147]

# EtherTypes, IP protocols, versions, lengths, fragment words, ports of tunnels, options; as 16 bits, or their low byte.
FRAME_WORDS = [
    *range(9), 11, 12, 17, 19, 20, 21, 28, 39, 40, 41, 43, 44, 46, 47, 50, 51, 58, 59, 60, 64, 127, 128, 132, 135, 137,
    139, 140, 255, 256, 0x0600, 0x05FF, 0x0800, 0x0806, 0x86DD, 0x8100, 0x88A8, 0x9100, 0x8847, 0x8848, 0x8863, 0x8864,
    0x880B, 0x6558, 0x8035, 0x2000, 0x3FFF, 0x1FFF, 0x4000, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF, 4789, 8472, 6081, 0x45,
    0x46, 0x4F, 0x44, 0x60, 0x50, 0xF0, 0x40, 0xC2, 0xC9, 0xAA, 0xFF03, 0x0021, 0x0057, 0x0281, 0x1100,
]  # fmt: skip
# Sizes at and around every limit, magic numbers, kinds of blocks, options, resolutions, link types.
FILE_WORDS = [
    *range(17), 20, 24, 28, 31, 32, 33, 52, 60, 64, 65, 96, 101, 113, 127, 128, 129, 189, 220, 255, 256, 4096, 0x7FFF,
    0xFFFF, 0x10000, 262144, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + (1 << 18), (1 << 20) + (1 << 18) + 4,
    128 << 20, (128 << 20) + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF, 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34,
    0x0A0D0D0A, 0x1A2B3C4D, 0x8B1F, 0xFD2FB528, 0x587A37FD, 0x685A42, 543, 1_000_000, 1_000_000_000, 2988, 19372,
]  # fmt: skip


def frames() -> Maker:
    """Frames, with their link types."""
    generator = random.Random(1)
    found = [(1, stacks.assembled(stacks.frame(generator))) for _ in range(300)]
    found += [(113, stacks.assembled(stacks.cooked(generator))) for _ in range(30)]
    for path in capture_files():
        with CaptureReader(path) as reader:
            some = list(itertools.islice(reader.packets(), 10 * OF_ONE_FILE))
        found += [(packet.link, packet.data) for packet in some[:: -(-len(some) // OF_ONE_FILE) or 1]]
    return Maker([(link, data) for link, data in found if data], FRAME_WORDS, LINKS, 1)


def files() -> Maker:
    """Capture files, or what of them fits."""
    found = [path.read_bytes()[:CAPACITY] for path in capture_files() if path.suffix != ".gz"]
    return _files(own() + found)


def own_files() -> Maker:
    """Capture files of our own only."""
    return _files(own())


def _files(contents: list[bytes]) -> Maker:
    return Maker([(0, data) for data in contents], FILE_WORDS, [0], 4)


def own() -> list[bytes]:
    """Capture files of every form."""
    made = [pcap(order, magic) for order in "<>" for magic in (0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34)]
    return [*made, pcapng("<"), pcapng(">"), pcapng("<") + pcapng(">"), pcapng(">") + pcapng(">")]


def capture_files() -> list[Path]:
    directory = captures_directory()
    return [DEMO, *(directory / name for name in public.files())] if directory else [DEMO]


def _frame(i: int) -> bytes:
    return stacks.assembled(stacks.frame(random.Random(i)))


def pcap(order: str, magic: int, packets: int = 6) -> bytes:
    """A pcap file in a byte order, of any of the three forms."""
    between = struct.pack(order + "IHBB", 1, 0x0800, 4, 0) if magic == 0xA1B2CD34 else b""
    records = (pcap_record(order, i, _frame(i), between) for i in range(packets))
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, 1) + b"".join(records)


def pcap_record(order: str, number: int, frame: bytes, between: bytes = b"") -> bytes:
    """A record of a pcap file, with what the modified form has between header and frame."""
    head = struct.pack(order + "IIII", 1_700_000_000 + number, 999_999 - number, len(frame), len(frame) + number)
    return head + between + frame


def _block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + size + body + size


def _options(order: str, *pairs: tuple[int, bytes]) -> bytes:
    parts = (struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4) for code, value in pairs)
    return b"".join(parts) + bytes(4)


def pcapng(order: str) -> bytes:
    """A pcapng section in a byte order: interfaces of several clocks and link types, all kinds of packet blocks."""
    number = struct.Struct(order + "I").pack
    section = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + _options(order, (1, b"a section"), (4, b"fuzz"))
    data = _block(order, 0x0A0D0D0A, section)
    for link, resolution in ((1, 6), (1, 9), (113, 0x80 | 20), (101, 3)):
        offset = struct.pack(order + "q", 5)
        options = _options(order, (2, b"eth0"), (9, bytes([resolution])), (14, offset))
        data += _block(order, 1, struct.pack(order + "HHI", link, 0, 96) + options)
    for i in range(4):
        frame = _frame(i)[:90]
        head = struct.pack(order + "IIIII", i, 0x5_0000 + i, 12345 * i, len(frame), len(frame) + 9)
        options = _options(order, (1, b"a comment"), (2, number(1)), (4, bytes(8)))
        data += _block(order, 6, head + frame + bytes(-len(frame) % 4) + options)
        data += _block(order, 3, number(len(frame)) + frame)
        data += _block(order, 2, struct.pack(order + "HHIIII", i, 0, 5, 6, len(frame), len(frame)) + frame)
        data += _block(order, 5, number(0) + bytes(8)) + _block(order, 0xBAD, number(i) * 5)
    return data
