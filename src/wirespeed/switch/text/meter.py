"""Meters as text, as ``ovs-ofctl add-meter`` reads them and ``dump-meters`` prints them.

Source: ovs-ofctl(8), "Meter Syntax"; OpenFlow 1.5.1, 7.3.4.5.
"""

import re
from dataclasses import dataclass

from wirespeed.errors import GraphError
from wirespeed.switch.match import unknown
from wirespeed.switch.text import value as texts
from wirespeed.tables.meter import BANDS, Band

MOST_METER = 0xFFFF0000
FLAGS = ("kbps", "pktps", "burst", "stats")
_BANDS = re.compile(r"(?:^|[\s,])bands?\s*=")
_BLANK = re.compile(r"[\s,]+")


@dataclass(frozen=True)
class Meter:
    """A meter of kilobits or ``packets`` a second."""

    number: int
    bands: tuple[Band, ...]
    packets: bool = False
    stats: bool = False


def parse_meter(text: str) -> Meter:
    """A meter such as ``meter=1 kbps burst bands=type=drop rate=1000 burst_size=100``."""
    head, *rest = _BANDS.split(text)
    number, flags = None, set()
    for word in _words(head):
        name, _, given = word.partition("=")
        if name == "meter":
            number = _number("meter", given, MOST_METER)
        elif word in FLAGS:
            flags.add(word)
        else:
            raise unknown(word, "part of a meter", ("meter", *FLAGS, "bands"))
    if not number:
        raise GraphError(f"a meter needs a number from 1 to {MOST_METER}: write meter=1")
    if len(flags & {"kbps", "pktps"}) != 1:
        raise GraphError(f"meter {number}: write either kbps or pktps")
    if len(rest) != 1:
        raise GraphError(f"meter {number}: write its bands once: bands=type=drop rate=NUMBER")
    return Meter(number, tuple(_bands(number, rest[0], "burst" in flags)), "pktps" in flags, "stats" in flags)


def _words(text: str) -> list[str]:
    return [word for word in _BLANK.split(text) if word]


def _number(name: str, given: str, most: int) -> int:
    try:
        return texts.number(given, most)
    except texts.BadValueError as error:
        raise GraphError(f"{name}: {error}") from None


def _bands(number: int, text: str, burst: bool) -> list[Band]:
    found: list[dict[str, int]] = []
    for word in _words(text):
        name, _, given = word.partition("=")
        if name == "type":
            if given != "drop":
                raise GraphError(f"meter {number}: bands drop yet: write type=drop, got type={given}")
            found.append({})
        elif name in ("rate", "burst_size") and found:
            found[-1][name] = _number(name, given, 0xFFFFFFFF)
        elif name in ("rate", "burst_size"):
            raise GraphError(f"meter {number}: a band begins with type=drop, got {word}")
        else:
            raise unknown(name, "part of a band", ("type", "rate", "burst_size"))
    if not 1 <= len(found) <= BANDS:
        raise GraphError(f"meter {number}: a meter has 1 to {BANDS} bands, got {len(found)}")
    for band in found:
        if not band.get("rate"):
            raise GraphError(f"meter {number}: a band needs a rate: write rate=NUMBER")
        if ("burst_size" in band) != burst:
            raise GraphError(f"meter {number}: burst and the bands' burst_size go together; write both or neither")
    return [Band(band["rate"], band.get("burst_size", 0)) for band in found]


def meter_text(meter: Meter) -> str:
    """A meter as ``ovs-ofctl dump-meters`` prints it, a line for each band."""
    burst = any(band.burst for band in meter.bands)
    words = [f"meter={meter.number}", "pktps" if meter.packets else "kbps"]
    words += ["burst"] if burst else []
    words += ["stats"] if meter.stats else []
    lines = [" ".join(words) + " bands="]
    lines += [f"type=drop rate={b.rate}" + (f" burst_size={b.burst}" if burst else "") for b in meter.bands]
    return "\n".join(lines)
