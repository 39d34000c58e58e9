"""Addresses as text and as the integers that headers hold.

A MAC address is a 48-bit integer, an IPv4 address one of 32 bits, an IPv6 address one of 128 bits or, in a header, two
halves of 64.  *Source:* IEEE 802-2014, 8.1 (MAC text), RFC 4291 and RFC 5952 (IPv6 text).
"""

import ipaddress
import re

BROADCAST = 0xFFFF_FFFF_FFFF
GROUP = 1 << 40  # the bit that is sent first: set in multicast addresses and broadcast (IEEE 802-2014, 8.2.2)
LOCAL = 1 << 41  # set where no manufacturer gave the address out

_SEPARATED = re.compile(r"[0-9a-fA-F]{1,2}(?:([:-])[0-9a-fA-F]{1,2})(?:\1[0-9a-fA-F]{1,2}){4}")
_DOTTED = re.compile(r"[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}")
_PLAIN = re.compile(r"[0-9a-fA-F]{12}")


def mac(text: str) -> int:
    """The integer of a MAC address: ``02:00:00:00:00:01``, with ``-``, as ``0200.0000.0001`` or as 12 digits."""
    if _SEPARATED.fullmatch(text):
        return int("".join(octet.zfill(2) for octet in re.split("[:-]", text)), 16)
    if _DOTTED.fullmatch(text) or _PLAIN.fullmatch(text):
        return int(text.replace(".", ""), 16)
    raise ValueError(f"a MAC address has six octets such as 02:00:00:00:00:01, got {text!r}")


def mac_text(address: int) -> str:
    """A MAC address as six octets with colons."""
    return int(address).to_bytes(6, "big").hex(":")


def ipv4(text: str) -> int:
    """The integer of an IPv4 address in dotted form."""
    return int(ipaddress.IPv4Address(text))


def ipv4_text(address: int) -> str:
    """An IPv4 address in dotted form."""
    return str(ipaddress.IPv4Address(int(address)))


def ipv6(text: str) -> int:
    """The 128-bit integer of an IPv6 address."""
    return int(ipaddress.IPv6Address(text))


def ipv6_halves(text: str) -> tuple[int, int]:
    """The two 64-bit halves of an IPv6 address, as the fields ``src_hi`` and ``src_lo`` hold them."""
    return divmod(ipv6(text), 1 << 64)


def ipv6_text(high: int, low: int) -> str:
    """The IPv6 address of two halves, in its one recommended form."""
    return str(ipaddress.IPv6Address(int(high) << 64 | int(low)))
