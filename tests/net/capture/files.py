"""Capture files for tests: written by hand, field by field, apart from the library's layouts."""

import struct
from collections.abc import Iterable

PAD = b"\0\0\0"


def pcap_header(
    order: str = "<", magic: int = 0xA1B2C3D4, link: int = 1, snaplen: int = 65535, version=(2, 4)
) -> bytes:
    return struct.pack(order + "IHHiIII", magic, *version, 0, 0, snaplen, link)


def pcap_record(data: bytes, seconds: int = 0, fraction: int = 0, wire: int | None = None, order: str = "<") -> bytes:
    return struct.pack(order + "IIII", seconds, fraction, len(data), len(data) if wire is None else wire) + data


def pcap(frames: Iterable[bytes], order: str = "<", magic: int = 0xA1B2C3D4, link: int = 1) -> bytes:
    """A file with a packet a second."""
    records = (pcap_record(frame, i, i, order=order) for i, frame in enumerate(frames))
    return pcap_header(order, magic, link) + b"".join(records)


def modified(frames: Iterable[bytes], order: str = "<") -> bytes:
    """A file of the modified form: eight more bytes in each record's header."""
    out = pcap_header(order, 0xA1B2CD34)
    for i, frame in enumerate(frames):
        out += struct.pack(order + "IIII", i, i, len(frame), len(frame)) + b"\1\0\0\0\0\x08\0\0" + frame
    return out


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + PAD[: -len(value) % 4]


def options(*pairs: tuple[int, bytes], order: str = "<", end: bool = True) -> bytes:
    return b"".join(option(*pair, order) for pair in pairs) + (bytes(4) if end and pairs else b"")


def block(kind: int, body: bytes, order: str = "<", size: int | None = None, trailer: int | None = None) -> bytes:
    body += PAD[: -len(body) % 4]
    size = len(body) + 12 if size is None else size
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size if trailer is None else trailer)


def section(order: str = "<", version=(1, 0), extra: bytes = b"") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, *version, -1) + extra, order)


def interface(link: int = 1, snaplen: int = 0, extra: bytes = b"", order: str = "<") -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, snaplen) + extra, order)


def enhanced(
    data: bytes, ticks: int = 0, number: int = 0, wire: int | None = None, extra: bytes = b"", order: str = "<",
    captured: int | None = None,
) -> bytes:  # fmt: skip
    captured = len(data) if captured is None else captured
    ticks &= (1 << 64) - 1
    head = struct.pack(
        order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, captured, len(data) if wire is None else wire
    )
    return block(6, head + data + PAD[: -len(data) % 4] + extra, order)


def simple(data: bytes, wire: int | None = None, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", len(data) if wire is None else wire) + data, order)


def old_packet(
    data: bytes, ticks: int = 0, number: int = 0, wire: int | None = None, extra: bytes = b"", order: str = "<"
) -> bytes:
    head = struct.pack(
        order + "HHIIII",
        number,
        0xFFFF,
        ticks >> 32,
        ticks & 0xFFFFFFFF,
        len(data),
        len(data) if wire is None else wire,
    )
    return block(2, head + data + PAD[: -len(data) % 4] + extra, order)


def pcapng(frames: Iterable[bytes], order: str = "<") -> bytes:
    """A file with one interface and a packet a microsecond."""
    packets = (enhanced(frame, i, order=order) for i, frame in enumerate(frames))
    return section(order) + interface(order=order) + b"".join(packets)


FRAMES = [bytes([i]) * size for i, size in enumerate([60, 0, 1, 64, 65, 1514, 3, 128])]

# One small file of each kind, by name: what is to hold for any capture is tested with all of them.
SAMPLES: dict[str, bytes] = {
    "pcap": pcap(FRAMES),
    "pcap of the other byte order": pcap(FRAMES, ">"),
    "pcap of nanoseconds": pcap(FRAMES, magic=0xA1B23C4D),
    "pcap of nanoseconds, other order": pcap(FRAMES, ">", magic=0xA1B23C4D),
    "modified pcap": modified(FRAMES),
    "modified pcap, other order": modified(FRAMES, ">"),
    "old pcap, lengths exchanged": pcap_header(version=(2, 2))
    + b"".join(struct.pack("<IIII", 7, i, len(f) + 4, len(f)) + f for i, f in enumerate(FRAMES)),
    "pcap 2.3, lengths exchanged at times": pcap_header(version=(2, 3))
    + b"".join(
        struct.pack("<IIII", 7, i, *((len(f) + 9, len(f)) if i % 2 else (len(f), len(f) + 9))) + f
        for i, f in enumerate(FRAMES)
    ),
    "pcap with bits above the link type": pcap(FRAMES, link=0x34000065),
    "pcapng": pcapng(FRAMES),
    "pcapng of the other byte order": pcapng(FRAMES, ">"),
    "pcapng of all blocks": (
        section(extra=options((1, b"a section"), (2, b"hardware"), (4, b"this test")))
        + interface(extra=options((2, b"lan0"), (9, b"\x09"), (1, b"an interface")))
        + interface(113, 96, options((9, b"\x94"), (14, struct.pack("<q", -3600))))
        + block(10, b"secrets")
        + enhanced(FRAMES[0], 1_700_000_000_123_456_789, extra=options((1, "größer".encode()), (2, b"\1\0\0\0")))
        + block(0x0BAD, b"anything at all")
        + enhanced(FRAMES[3], 5 << 20, 1, wire=99)
        + simple(FRAMES[4])
        + block(4, b"names")
        + old_packet(FRAMES[6], 77, 1, extra=options((1, b"an old one")))
        + block(5, b"statistics")
        + section(">")
        + interface(
            1,
            extra=options(
                (
                    9,
                    b"\x06",
                ),
                order=">",
            ),
            order=">",
        )
        + enhanced(FRAMES[7], 99, extra=options((4, bytes(7) + b"\2"), (1, b"x"), order=">"), order=">")
        + simple(FRAMES[2], order=">")
        + section()
        + interface(extra=options((2, b"lan0"), (9, b"\x09"), (1, b"an interface")))
        + enhanced(FRAMES[0], 12)
    ),
}
