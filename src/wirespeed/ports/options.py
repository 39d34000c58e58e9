"""Options of ports: how ``rate=1.5Mpps`` is read, and what is said when it cannot be.

A class of ports declares ``OPTIONS: dict[str, Option]`` and reads what it was given with :func:`read`.  A value may
come from a port word, as text, or from Python, as text or as a value; both go through the same parser.  A parser
takes the value and returns what it means or raises :class:`Wanted`; :func:`read` makes of it the one error style::

    pcap option rate: got '10 apples', wanted a number with pps or bps; try rate=1.5Mpps

Numbers are read exactly, as fractions: ``0.1pps`` is one packet in ten seconds and not a binary float near it.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from wirespeed.errors import GraphError
from wirespeed.net.address import mac

Parser = Callable[[Any], Any]

# At most two digits of exponent and 40 characters, so that no text makes a number with a billion digits.
_NUMBER = re.compile(r"\s*(\d[\d_]*(?:\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?\s*([A-Za-zµ/]*)\s*")
_LONGEST = 40
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_SIZES = {prefix + b: unit for prefix, unit in (_PREFIXES | _BINARY).items() for b in ("", "b")}
_TIMES = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "": 10**9,
    "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9,
}  # fmt: skip
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")


class Wanted(ValueError):
    """Raised by a parser: what it wanted, in words, and an example that it would take."""

    def __init__(self, wanted: str, example: str) -> None:
        super().__init__(f"wanted {wanted}; try {example}")
        self.wanted = wanted
        self.example = example


class Rate(NamedTuple):
    """Packets (``pps``) or bits of frames (``bps``) in a second."""

    value: Fraction
    unit: Literal["pps", "bps"]

    def __str__(self) -> str:
        for prefix, unit in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
            if self.value >= unit:
                return f"{float(self.value / unit):g}{prefix}{self.unit}"
        return f"{float(self.value):g}{self.unit}"


@dataclass(frozen=True)
class Option:
    """One option of a port: the word for its type, its default as a user would write it, a sentence, its parser.

    A default of None means that the option is not set, and is handed on as None.  ``many`` says that the value is a
    list with commas: in a port word, what follows goes on with it until an option is named (``size=64,594,flows=9``).
    """

    type: str
    default: Any
    sentence: str
    parse: Parser
    many: bool = False


def read(kind: str, declared: Mapping[str, Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every declared option, in that order: what was given, else the default.

    Raises :class:`GraphError` for an option that is not declared or cannot be read.
    """
    for name in given:
        if name not in declared:
            raise GraphError(f"{kind} has no option {name!r}; the options are {', '.join(declared)}")
    return {name: _value(kind, name, option, given.get(name)) for name, option in declared.items()}


def _value(kind: str, name: str, option: Option, given: Any) -> Any:
    value = option.default if given is None else given
    if value is None:
        return None
    try:
        return option.parse(value)
    except Wanted as e:
        raise refused(kind, name, value, e.wanted, e.example) from None


def refused(kind: str, name: str, got: Any, wanted: str, example: str) -> GraphError:
    """The error for an option's value, in the one style; for what only several options together show, too."""
    shown = repr(got)
    shown = shown if len(shown) <= 200 else f"{shown[:197]}..."
    return GraphError(f"{kind} option {name}: got {shown}, wanted {wanted}; try {name}={example}")


def _number(value: Any) -> tuple[Fraction, str] | None:
    """A number and the unit behind it; None for what is neither a number nor the text of one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | Fraction):
        return Fraction(value), ""
    if isinstance(value, float):
        value = float.__repr__(value)  # NumPy's own shows its type as well
    elif hasattr(value, "__index__"):
        return Fraction(value.__index__()), ""
    found = _NUMBER.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST else None
    if not found:
        return None
    digits, exponent, unit = found.groups()
    return Fraction(digits.replace("_", "").rstrip(".") + (exponent or "")), unit


def _whole(value: Any, units: Mapping[str, int]) -> int | None:
    """A number times its unit, when that is a whole number; units are named in small letters."""
    got = _number(value)
    if got is None or got[1].lower() not in units:
        return None
    product = got[0] * units[got[1].lower()]
    return int(product) if product.denominator == 1 else None


def _within(least: int, most: int | None) -> str:
    return f"from {least} to {most}" if most is not None else f"of {least} or more"


def count(least: int = 0, most: int | None = None, example: str = "1M") -> Parser:
    """A parser of counts: ``1000``, ``1e6``, ``1.5k``, ``1M``, ``2G``."""

    def parse(value: Any) -> int:
        number = _whole(value, _PREFIXES)
        if number is None or number < least or (most is not None and number > most):
            raise Wanted(f"a whole number {_within(least, most)}", example)
        return number

    return parse


def size(least: int = 0, most: int | None = None, example: str = "100MB") -> Parser:
    """A parser of sizes in bytes: ``1500``, ``64kB`` (1000 each), ``64KiB`` (1024 each), ``100MB``, ``2GB``."""

    def parse(value: Any) -> int:
        number = _whole(value, _SIZES)
        if number is None or number < least or (most is not None and number > most):
            raise Wanted(f"a number of bytes {_within(least, most)}, with kB, MB, GB, KiB, MiB or GiB", example)
        return number

    return parse


def duration(least_ns: int = 0, most_ns: int = 1 << 62, example: str = "10ms") -> Parser:
    """A parser of times: ``60s``, ``10ms``, ``250us``, ``100ns``, ``5min``, ``2h``; a plain number is seconds.

    What it returns is a whole number of nanoseconds, the nearest one.
    """

    def parse(value: Any) -> int:
        got = _number(value)
        number = round(got[0] * _TIMES[got[1]]) if got and got[1] in _TIMES else -1
        if not least_ns <= number <= most_ns:
            bound = f" from {least_ns} to {most_ns} ns" if (least_ns, most_ns) != (0, 1 << 62) else ""
            raise Wanted(f"a time{bound}, with ns, us, ms, s, min, h or d", example)
        return number

    return parse


def rate(value: Any) -> Rate:
    """Parse ``1.5Mpps``, ``0.5pps``, ``10mbps`` or a :class:`Rate`, into a :class:`Rate`; k, M, G, T in either case."""
    if isinstance(value, tuple) and len(value) == 2:
        number, unit = _number(value[0]), str(value[1])
    else:
        number = _number(value)
        unit = number[1] if number else ""
    prefix, word = unit[:-3].lower(), unit[-3:].lower()
    if number is None or number[0] <= 0 or prefix not in _PREFIXES or word not in ("pps", "bps"):
        raise Wanted("a number with pps or bps", "1.5Mpps")
    exact = number[0] * _PREFIXES[prefix]
    if not Fraction(1, 10**9) <= exact <= 10**15:
        raise Wanted("a rate from 1e-9 to 1e15, with pps or bps", "1.5Mpps")
    return Rate(exact, "pps" if word == "pps" else "bps")


def flag(value: Any) -> bool:
    """Parse yes, true, on, 1 or no, false, off, 0."""
    word = str(value).lower()
    if word in _YES or word in _NO:
        return word in _YES
    raise Wanted("yes or no", "yes")


def choice(*words: str) -> Parser:
    """A parser that takes one of a few words."""

    def parse(value: Any) -> str:
        if value in words:
            return str(value)
        raise Wanted(f"one of {', '.join(words)}", words[0])

    return parse


def either(parser: Parser, *words: str) -> Parser:
    """A parser that takes one of a few words as they are, and what ``parser`` takes."""

    def parse(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return value
        try:
            return parser(value)
        except Wanted as e:
            raise Wanted(f"{', '.join(words)} or {e.wanted}", e.example) from None

    return parse


def address(value: Any) -> str:
    """Parse an IPv4 or IPv6 address."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        raise Wanted("an IPv4 or IPv6 address", "10.0.0.1") from None


def mac_address(value: Any) -> int:
    """Parse an Ethernet address, into an integer of 48 bits."""
    try:
        return mac(str(value))
    except ValueError:
        raise Wanted("an Ethernet address of six octets", "02:00:00:00:00:01") from None


def text(value: Any) -> str:
    """Any text that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise Wanted("a text", "lan0")
