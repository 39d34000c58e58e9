"""Values of fields as text: numbers, addresses, ports, fragments, flags.

Theory of operation
-------------------
A form has a reader, text to (value, mask), and a printer.  The mask of a value without one is all ones.  Ports may be
written by name, so readers are given a function from names to numbers.

Source: ovs-fields(7).
"""

import re
from collections.abc import Callable
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from wirespeed.errors import GraphError
from wirespeed.switch.fields import ANY, FRAG_ANY, FRAG_LATER, IN_PORT, PORT_NAMES, Field

PortNumber = Callable[[str], int | None]
MOST_PORT = 0xFEFF  # the highest number of a port in OpenFlow 1.0, which OpenFlow's switches keep to
_RESERVED_16 = 0xFFF8  # from here on a number of 16 bits is a reserved port's
_NAMES = {number: name for name, number in PORT_NAMES.items()}
_PORTS = PORT_NAMES | {"NONE": ANY}
_BOTH = FRAG_ANY | FRAG_LATER
FRAGMENTS = {
    "no": (0, _BOTH),
    "yes": (FRAG_ANY, FRAG_ANY),
    "first": (FRAG_ANY, _BOTH),
    "later": (_BOTH, _BOTH),
    "not_later": (0, FRAG_LATER),
}
TCP_FLAGS = ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]")
_FLAG = re.compile(r"([+-])([a-z]+|\[[0-9a-f]+\])")


class BadValueError(GraphError):
    """A text that is no value; the reader of the whole text says where."""


def number(text: str, most: int, what: str = "a number") -> int:
    """A number in decimal, hexadecimal or (with a leading 0) octal."""
    try:
        value = int(text) if text.isdecimal() and (text[0] != "0" or text == "0") else _based(text)
    except ValueError:
        raise BadValueError(f"{text!r} is not {what}") from None
    if not 0 <= value <= most:
        raise BadValueError(f"{text} is not {what} from 0 to {most:#x}")
    return value


def _based(text: str) -> int:
    if "_" in text:
        raise ValueError
    return int(text, 8) if re.fullmatch("0[0-7]+", text) else int(text, 0)


def port(text: str, port_number: PortNumber | None = None, *, ours: bool = False) -> int:
    """A port by number or name; ``ours`` reads a whole number as it is, such as Python's."""
    name = text.strip('"')
    if name == text:
        if text.isdecimal() and len(text) < 6:
            value = int(text)
            if value <= MOST_PORT:
                return value
            if _RESERVED_16 <= value <= 0xFFFF:
                return value | 0xFFFF0000
        reserved = _PORTS.get(text.upper())
        if reserved is not None:
            return reserved
    found = port_number(name) if port_number is not None else None
    if found is not None:
        return found
    try:
        value = _based(text)
    except ValueError:
        raise BadValueError(f"no port {text!r}; write its number, its name or one of {', '.join(PORT_NAMES)}") from None
    return check_port(value)


def check_port(value: int) -> int:
    """The number of a port; one of 16 bits that is reserved becomes one of 32."""
    if 0 <= value <= MOST_PORT or IN_PORT <= value <= ANY:
        return value
    if _RESERVED_16 <= value <= 0xFFFF:
        return value | 0xFFFF0000
    raise BadValueError(f"a port's number is 0 to {MOST_PORT} or a reserved one, got {value}")


def port_text(value: int) -> str:
    """A port as it is printed."""
    return _NAMES.get(value) or str(value)


def mac(text: str) -> int:
    """An Ethernet address."""
    if len(text) == 17 and text[2] == text[5] == text[8] == text[11] == text[14] == ":":
        parts = text.replace(":", "")
        if len(parts) == 12:
            try:
                return int.from_bytes(bytes.fromhex(parts))
            except ValueError:
                pass
    groups = text.split(":")
    if len(groups) != 6 or not all(re.fullmatch("[0-9a-fA-F]{1,2}", group) for group in groups):
        raise BadValueError(f"{text!r} is not an Ethernet address such as 02:00:00:00:00:01")
    return int.from_bytes(bytes(int(group, 16) for group in groups))


def mac_text(value: int) -> str:
    """An Ethernet address as it is printed."""
    return value.to_bytes(6).hex(":")


def ipv4(text: str) -> int:
    """An IPv4 address."""
    try:
        return int.from_bytes(inet_pton(AF_INET, text))
    except (OSError, ValueError):
        raise BadValueError(f"{text!r} is not an IPv4 address") from None


def ipv6(text: str) -> int:
    """An IPv6 address."""
    try:
        return int.from_bytes(inet_pton(AF_INET6, text))
    except (OSError, ValueError):
        raise BadValueError(f"{text!r} is not an IPv6 address") from None


def ipv4_text(value: int) -> str:
    """An IPv4 address as it is printed."""
    return inet_ntop(AF_INET, value.to_bytes(4))


def ipv6_text(value: int) -> str:
    """An IPv6 address as it is printed."""
    return inet_ntop(AF_INET6, value.to_bytes(16))


def _prefix(mask: str, bits: int, read: Callable[[str], int]) -> int:
    if mask.isdecimal() and int(mask) <= bits:
        return (1 << bits) - (1 << bits - int(mask))
    return read(mask)


def tcp_flags(text: str) -> tuple[int, int]:
    """Flags as ``+syn-ack``, ``syn|ack`` or a number."""
    if text[:1] in ("+", "-"):
        if _FLAG.sub("", text):
            raise BadValueError(f"{text!r} is not a list of flags such as +syn-ack")
        value = mask = 0
        for sign, name in _FLAG.findall(text):
            bit = _flag(name)
            mask |= bit
            value |= bit if sign == "+" else 0
        return value, mask
    if text[:1].isdecimal():
        whole, _, masked = text.partition("/")
        mask = number(masked, 0xFFF) if masked else 0xFFF
        return number(whole, 0xFFF), mask
    return sum({_flag(name) for name in text.split("|")}), 0xFFF


def _flag(name: str) -> int:
    if name not in TCP_FLAGS:
        raise BadValueError(f"no TCP flag {name!r}; there are {', '.join(TCP_FLAGS)}")
    return 1 << TCP_FLAGS.index(name)


def tcp_flags_text(value: int, mask: int) -> str:
    """Flags as they are printed."""
    if mask == 0xFFF:
        return "|".join(name for i, name in enumerate(TCP_FLAGS) if value >> i & 1) or "0"
    return "".join(("+" if value >> i & 1 else "-") + name for i, name in enumerate(TCP_FLAGS) if mask >> i & 1)


def _frag(text: str) -> tuple[int, int]:
    if text not in FRAGMENTS:
        raise BadValueError(f"{text!r} is not a kind of fragment; there are {', '.join(FRAGMENTS)}")
    return FRAGMENTS[text]


_ADDRESSES: dict[str, tuple[Callable[[str], int], int]] = {"ipv4": (ipv4, 32), "ipv6": (ipv6, 128)}


def read(field: Field, text: str, port_number: PortNumber | None = None) -> tuple[int, int]:
    """(value, mask) of a field, of as many bits as it is written with."""
    form, ones = field.form, (1 << field.width) - 1
    if form == "port":
        return port(text, port_number), ones
    if form == "tcp_flags":
        return tcp_flags(text)
    if form == "frag":
        return _frag(text)
    whole, slash, masked = text.partition("/")
    if form in _ADDRESSES:
        address, bits = _ADDRESSES[form]
        value = address(whole)
        mask = _prefix(masked, bits, address) if slash else ones
    elif form == "mac":
        value = mac(whole)
        mask = mac(masked) if slash else ones
    else:
        value = number(whole, ones)
        mask = number(masked, ones) if slash else ones
    return value & mask, mask


def show(field: Field, value: int, mask: int) -> str:
    """A value of a field as set_field prints it."""
    form, ones = field.form, (1 << field.width) - 1
    if form == "port":
        return port_text(value)
    if form in _ADDRESSES:
        return _address(form, value, mask)
    if form == "mac":
        return mac_text(value) + (f"/{mac_text(mask)}" if mask != ones else "")
    hexadecimal = form == "hex" and field.name != "vlan_vid"
    return (short_hex(value) if hexadecimal else str(value)) + (f"/{short_hex(mask)}" if mask != ones else "")


def _address(form: str, value: int, mask: int) -> str:
    bits, text = (32, ipv4_text) if form == "ipv4" else (128, ipv6_text)
    ones = mask.bit_count()
    if ones == bits:
        return text(value)
    contiguous = mask == (1 << bits) - (1 << bits - ones)
    return f"{text(value)}/{ones if contiguous else text(mask)}"


def address_text(field: Field, value: int, mask: int) -> str:
    """An address, with its mask where it has one."""
    return _address(field.form, value, mask)


def short_hex(value: int) -> str:
    """Hexadecimal, but 0 as it is."""
    return f"{value:#x}" if value else "0"
