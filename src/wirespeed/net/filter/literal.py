"""Numbers and addresses as a filter expression writes them.

*Source:* pcap-filter(7); RFC 4291 section 2.2 (IPv6); DECnet Phase IV, where an area has 6 bits and a node 10.
"""

import re
import socket

from wirespeed.net.filter.error import FilterError

_QUAD = re.compile(r"(?:0[xX][0-9A-Fa-f]+|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]+|[0-9]+)){3}")
_GROUP = re.compile(r"[0-9A-Fa-f]{1,4}")
_DECNET = re.compile(r"([0-9]+)\.([0-9]+)")


def number(text: str) -> int:
    """A number of 32 bits: decimal, hexadecimal behind 0x, octal behind 0."""
    base, digits, called = 10, text, "decimal"
    if text[:2] in ("0x", "0X"):
        base, digits, called = 16, text[2:], "hexadecimal"
    elif len(text) > 1 and text[0] == "0":
        base, digits, called = 8, text[1:], "octal"
        if not set(digits) <= set("01234567"):
            raise FilterError(f"number {text} contains a digit that is not octal, and begins with 0; leave the 0 out")
    # Python refuses to read very long decimals; what has more digits than 32 bits can have is too large anyway.
    if len(digits.lstrip("0")) > 11 or int(digits, base) > 0xFFFFFFFF:
        raise FilterError(f"{called} number {text} overflows 32 bits")
    return int(digits, base)


def ipv4(text: str) -> tuple[int, int]:
    """An IPv4 address of one to four bytes: its value, and how many bits it has."""
    value = 0
    parts = text.split(".")
    for part in parts:
        if not part.isdecimal() or len(part.lstrip("0")) > 3 or int(part) > 255:
            raise FilterError(f"invalid IPv4 address '{text}': {part!r} is not a number from 0 to 255")
        value = value << 8 | int(part)
    return value, 8 * len(parts)


def is_ipv6_form(text: str) -> bool:
    """True for what has the form of an IPv6 address, whether or not its last four decimals fit bytes."""
    head, gap, tail = text.partition("::")
    groups = [*(head.split(":") if head else []), *(tail.split(":") if tail else [])]
    if not gap and not groups:
        return False
    room = 8 - len(groups)
    if groups and _QUAD.fullmatch(groups[-1]):
        if (not gap and len(groups) == 1) or (gap and not tail):
            return False
        groups, room = groups[:-1], room - 1
    return all(_GROUP.fullmatch(group) for group in groups) and (room >= 1 if gap else room == 0)


def ipv6(text: str) -> int:
    """An IPv6 address: its 128 bits."""
    try:
        return int.from_bytes(socket.inet_pton(socket.AF_INET6, text))
    except OSError:
        raise FilterError(f"invalid IPv6 address '{text}'") from None


def mac(text: str) -> bytes:
    """The six bytes of a hardware address."""
    digits = text.replace(":", " ").replace("-", " ").replace(".", " ").split()
    if len(digits) == 6:
        return bytes(int(part, 16) for part in digits)
    return bytes.fromhex("".join(digits))


def decnet(text: str) -> int:
    """A DECnet address ``area.node``."""
    found = _DECNET.fullmatch(text)
    if not found or len(found[1]) > 4 or len(found[2]) > 5 or int(found[1]) > 63 or int(found[2]) > 1023:
        raise FilterError(f"invalid DECnet address '{text}'; write AREA.NODE, an area up to 63 and a node up to 1023")
    return int(found[1]) << 10 | int(found[2])
