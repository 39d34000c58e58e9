"""What a capture says of itself: its sections and interfaces, with their names and comments, for Python."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wirespeed.jit.libc import copy_out
from wirespeed.net.capture.format import (
    APPLICATION,
    COMMENT,
    HARDWARE,
    INTERFACE_DESCRIPTION,
    INTERFACE_NAME,
    RESOLUTION,
    SECTION,
    SYSTEM,
    TIME_OFFSET,
    TRAILER,
    InterfaceBlock,
    SectionBlock,
)
from wirespeed.net.capture.options import parse
from wirespeed.net.capture.scan import NOTE, Note

MICROSECOND = Fraction(1, 10**6)
NANOSECOND = Fraction(1, 10**9)


@dataclass(frozen=True)
class Section:
    """A section of a pcapng file."""

    swapped: bool
    version: tuple[int, int]
    hardware: str
    system: str
    application: str
    comments: tuple[str, ...]


@dataclass(frozen=True)
class InterfaceDescription:
    """An interface, by its number among all of the file; ``resolution`` is that of its time stamps, in seconds."""

    number: int
    link: int
    snaplen: int
    name: str = ""
    description: str = ""
    comments: tuple[str, ...] = ()
    resolution: Fraction = MICROSECOND
    offset_s: int = 0


def notes(scan: Any, since: int = 0) -> Iterator[tuple[int, Section | InterfaceDescription]]:
    """What the notes of a ``Scan`` record say, from ``since`` bytes on, each with where the next one begins."""
    while since < scan.notes_used:
        note = Note.at(scan.notes + since)
        block = copy_out(scan.notes + since + NOTE, note.size)
        since += (NOTE + note.size + 7) & -8
        yield since, _section(block, note) if note.type == SECTION else _interface(block, note)


def of_pcap(scan: Any) -> InterfaceDescription:
    """The one interface of a pcap file."""
    return InterfaceDescription(0, scan.link, scan.snaplen, resolution=NANOSECOND if scan.scale == 1 else MICROSECOND)


def _text(pairs: list[tuple[int, bytes]], code: int) -> str:
    return next((value.decode("utf-8", "replace") for found, value in pairs if found == code), "")


def _comments(pairs: list[tuple[int, bytes]]) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "replace") for code, value in pairs if code == COMMENT)


def _number(block: bytes, layout: Any, name: str, note: Any) -> int:
    at, size = layout.offset(name), layout.fields[name].size
    return int.from_bytes(block[at : at + size], "big" if note.swapped else "little")


def _section(block: bytes, note: Any) -> Section:
    pairs = parse(block[SectionBlock.size : -TRAILER], bool(note.swapped))
    version = (_number(block, SectionBlock, "major", note), _number(block, SectionBlock, "minor", note))
    hardware, system, application = (_text(pairs, code) for code in (HARDWARE, SYSTEM, APPLICATION))
    return Section(bool(note.swapped), version, hardware, system, application, _comments(pairs))


def _interface(block: bytes, note: Any) -> InterfaceDescription:
    pairs = parse(block[InterfaceBlock.size : -TRAILER], bool(note.swapped))
    resolution, offset = MICROSECOND, 0
    for code, value in pairs:
        if code == RESOLUTION and value:
            resolution = Fraction(1, (2 if value[0] & 128 else 10) ** (value[0] & 127))
        elif code == TIME_OFFSET and len(value) >= 8:
            offset = int.from_bytes(value[:8], "big" if note.swapped else "little", signed=True)
    return InterfaceDescription(
        note.number, _number(block, InterfaceBlock, "link", note), _number(block, InterfaceBlock, "snaplen", note),
        _text(pairs, INTERFACE_NAME), _text(pairs, INTERFACE_DESCRIPTION), _comments(pairs), resolution, offset,
    )  # fmt: skip
