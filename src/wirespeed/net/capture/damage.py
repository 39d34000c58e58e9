"""What was wrong with a capture, and where, as values and in words."""

import os
from dataclasses import dataclass
from typing import Any

from wirespeed.net.capture import scan as s

_SENTENCES = {
    s.NOT_A_CAPTURE: "begins with the bytes {detail:08x}, which no capture file does",
    s.EMPTY: "holds no bytes",
    s.CUT_SHORT: "ends in the middle of {place}",
    s.READ_ERROR: "could not be read on: {error}",
    s.FRAME_TOO_LARGE: "claims a frame of {detail} bytes, more than there are",
    s.BLOCK_SIZE: "has a block of {detail} bytes, less than it needs",
    s.SECTION_ORDER: "has a section whose byte order is {detail:#010x}, which is none",
    s.FRAME_BEYOND_BLOCK: "claims a frame of {detail} bytes, more than its block holds",
    s.NO_INTERFACE: "names interface {detail}, which is not described",
    s.TOO_MANY_INTERFACES: f"describes more than {s.INTERFACES} interfaces",
    s.BLOCK_TOO_LARGE: "describes a section or an interface in {detail} bytes, more than is looked at",
    s.TRAILER: "has a block whose size at the end is not the {detail} at its beginning",
    s.OPTIONS: "has options that go on beyond their block",
    s.VERSION: "has a section of a version that is not known",
    s.TOO_LONG: "has a frame of {detail} bytes, which is passed over",
}
_PLACES = {s.UNKNOWN: "its header", s.PCAP: "a record", s.PCAPNG: "a block"}


@dataclass(frozen=True)
class Damage:
    """One thing that was wrong.  ``offset`` is that of the record's first byte, ``packet`` counts from 1."""

    what: int
    offset: int
    packet: int
    errno: int = 0
    sentence: str = ""

    def __str__(self) -> str:
        return f"{self.sentence}, at packet {self.packet}, byte {self.offset}" if self.packet else self.sentence


def read_mark(mark: Any) -> Damage | None:
    """The damage or fault that a ``Mark`` notes, if any."""
    if not mark.what:
        return None
    place = _PLACES.get(mark.detail, "a record")
    text = _SENTENCES[mark.what].format(detail=mark.detail, place=place, error=os.strerror(mark.errno))
    return Damage(mark.what, mark.offset, mark.packet, mark.errno, text)


def of_scan(record: Any) -> tuple[Damage | None, Damage | None]:
    """The damage at which a scan ended (or an earlier pass of it), and the first fault that it passed over."""
    return read_mark(record.before) or read_mark(record.damage), read_mark(record.fault)
