"""How a header field of a generator's packets varies: what a user writes, read and checked against the template."""

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.net.address import mac
from wirespeed.net.headers import HEADERS, IPv4
from wirespeed.ports.template import TRANSPORTS, Template
from wirespeed.ports.varied_field import IN_IP, IN_TRANSPORT, VariedField

MASK = (1 << 64) - 1
# What decides where headers are or follows from the rest; changing it alone makes a malformed frame.
FIXED = {
    "ipv4.version", "ipv4.ihl", "ipv4.len", "ipv4.proto", "ipv4.chksum", "ipv6.version", "ipv6.plen", "ipv6.nh",
    "fragment.nh", "tcp.dataofs", "tcp.chksum", "udp.len", "udp.chksum", "icmp.chksum", "icmpv6.chksum", "sctp.chksum",
}  # fmt: skip
_SPEC = re.compile(r"(count|random):([^-+/]+)(?:-([^-+/]+)|/(\d{1,3}))?(?:\+(\d{1,20}|0x[0-9a-fA-F]{1,16}))?")


@dataclass(frozen=True)
class Variation:
    """How one field differs: ``header.field``, the ``count`` values ``first + step * i``, counted through or drawn.

    ``turn`` and ``bias`` make the index ``(i + bias) & turn``.  Fields of one ``stream`` draw the same index.
    """

    name: str
    random: bool
    first: int
    count: int
    step: int = 1
    bias: int = 0
    turn: int = MASK
    stream: str = ""

    def write(self, address: int, template: Template, seed: int, worker: int, workers: int) -> int:
        """Make the zeroed memory at ``address`` a :data:`VariedField` for one of several workers; its sums."""
        header, _, name = self.name.partition(".")
        field = HEADERS[header].fields[name]
        offset, size, bits = template.places[header] + field.offset, field.size, field.bits or 8 * field.size
        under, high = _sums(template, offset, size)
        if size == 6:  # Written as the low bytes of eight; a packet has headroom before its first byte.
            offset, size = offset - 2, 8
        record = VariedField.at(address)
        record.offset, record.size, record.shift = offset, size, field.shift
        record.mask = ((1 << bits) - 1) << field.shift
        record.first, record.step, record.count = self.first, self.step, self.count & MASK
        record.bias, record.turn, record.random = self.bias, self.turn, int(self.random)
        record.seed = _seed(seed, self.stream or self.name)
        record.sums, record.high, record.stride, record.serial = under, high, workers, worker
        record.index = worker % self.count
        return under


def _seed(seed: int, stream: str) -> int:
    """Where in SplitMix64's sequence a stream of draws begins: far from those of other names and seeds."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {stream}".encode(), digest_size=8).digest(), "little")


def _sums(template: Template, offset: int, size: int) -> tuple[int, int]:
    """Under which checksums a container lies, and the shift of its words in them."""
    if not template.ip:
        return 0, 0
    network, under = template.places[template.ip], 0
    ihl = 4 * IPv4(template.data, network).ihl if template.ip == "ipv4" else 40
    first, last = (12, 20) if template.ip == "ipv4" else (8, 40)
    if template.ip == "ipv4" and network <= offset < network + ihl:
        under |= IN_IP
    if template.transport:
        pseudo = TRANSPORTS[template.transport] and network + first <= offset < network + last
        if pseudo or offset >= template.places[template.transport]:
            under |= IN_TRANSPORT
    return under, 8 * ((offset - network + size) & 1)


def parse(spec: Any) -> dict[str, str]:
    """The fields of ``vary=``: text ``ipv4.src=count:10.0.0.1-10.0.0.254,udp.sport=random:1024-65535`` or a mapping."""
    if isinstance(spec, Mapping):
        return {str(k): str(v) for k, v in spec.items()}
    found: dict[str, str] = {}
    for part in filter(None, str(spec).split(",")):
        name, _, how = part.partition("=")
        found[name.strip()] = how.strip()
    return found


def variation(name: str, how: str, template: Template) -> Variation:
    """How a field of a template varies, from ``count:`` or ``random:`` and a range; GraphError where it cannot."""
    field_name = _known(name, template)
    header, _, field = field_name.partition(".")
    declared = HEADERS[header].fields[field]
    got = _SPEC.fullmatch(how)
    if not got:
        raise GraphError(
            f"generator option vary: {name} got {how!r}, wanted count: or random: and a range, which is first-last, "
            f"first-last+step or address/prefix; try vary={name}=count:1-100"
        )
    kind, first, last, prefix, step = got.groups()
    low, high = _range(name, first, last, prefix)
    stride = int(step, 0) if step else 1
    most = (1 << (declared.bits or 8 * declared.size)) - 1
    if field_name != name:  # an IPv6 address, of which the lower half can vary
        if low >> 64 != high >> 64:
            raise GraphError(f"generator option vary: {name} got {how!r}; only the lower 64 bits can vary")
        low, high = low & MASK, high & MASK
    if not low <= high <= most or stride < 1:
        raise GraphError(
            f"generator option vary: {name} got {how!r}, wanted a range from 0 to {most} and a step above 0"
        )
    return Variation(field_name, kind == "random", low, (high - low) // stride + 1, stride)


def _known(name: str, template: Template) -> str:
    """The full name of a field that the template has and that may vary."""
    header, dot, field = name.partition(".")
    if header == "ipv6" and field in ("src", "dst"):
        field += "_lo"
    if header not in template.places or not dot or field not in HEADERS[header].fields:
        have = ", ".join(template.places)
        raise GraphError(f"generator option vary: the template has no field {name!r}; its headers are {have}")
    if f"{header}.{field}" in FIXED:
        raise GraphError(f"generator option vary: {name} follows from the frame and cannot vary; vary another field")
    return f"{header}.{field}"


def _range(name: str, first: str, last: str | None, prefix: str | None) -> tuple[int, int]:
    """The first and the last value of a range."""
    try:
        if prefix is None:
            return _value(first), _value(last or first)
        network = ipaddress.ip_network(f"{first}/{prefix}", strict=False)
        return int(network[0]), int(network[-1])
    except ValueError as e:
        raise GraphError(f"generator option vary: {name}: {e}; give numbers or addresses") from None


def _value(text: str) -> int:
    text = text.strip()
    if text.count(":") == 5 and "::" not in text:
        return mac(text)
    if ":" in text or "." in text:
        return int(ipaddress.ip_address(text))
    return int(text, 0)
