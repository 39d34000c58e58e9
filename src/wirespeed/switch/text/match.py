"""A match as ``ovs-ofctl`` prints it.

Source: ovs-fields(7); the order and the shorthands are those of ``ovs-ofctl -O OpenFlow15 dump-flows``.
"""

from functools import lru_cache
from typing import Protocol

from wirespeed.switch.fields import ARP, FIELDS, ICMP, ICMPV6, IP, IPV6, RARP, SCTP, TCI_PRESENT, TCP, UDP
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.item import WORD_OF

_REGISTERS = tuple(f"reg{n}" for n in range(16))
_TCI = FIELDS["vlan_tci"]
_FRAGMENTS = {what: name for name, what in texts.FRAGMENTS.items()}


class Matching(Protocol):
    """What is printed: two whole numbers over a flow."""

    @property
    def value(self) -> int: ...
    @property
    def mask(self) -> int: ...


class _Printer:
    def __init__(self, value: int, mask: int) -> None:
        self.value, self.mask = value, mask
        self.parts: list[str] = []
        kind, kind_mask = self.get("dl_type")
        proto, proto_mask = self.get("nw_proto")
        self.kind = kind if kind_mask else None
        self.proto = proto if proto_mask == 0xFF else None

    def get(self, name: str) -> tuple[int, int]:
        field = FIELDS[name]
        return field.get(self.value), field.get(self.mask)

    def put(self, name: str, shown: str = "", form: str = "") -> None:
        """Print a field, where the match has any bits of it."""
        value, mask = self.get(name)
        if not mask:
            return
        field = FIELDS[name]
        if form == "number":
            text = str(value) if mask == field.ones else f"{value:#x}/{mask:#x}"
        elif form == "padded":
            text = f"{value:#07x}" + (f"/{mask:#07x}" if mask != field.ones else "")
        else:
            text = texts.show(field, value, mask)
        self.parts.append(f"{shown or name}={text}")


def _vlan(p: _Printer) -> None:
    value, mask = p.get("vlan_tci")
    if not mask:
        return
    if mask & TCI_PRESENT and value & TCI_PRESENT and mask & 0xFFF in (0, 0xFFF) and mask >> 13 in (0, 7):
        if mask & 0xEFFF:
            if mask & 0xFFF:
                p.parts.append(f"dl_vlan={value & 0xFFF}")
            if mask >> 13:
                p.parts.append(f"dl_vlan_pcp={value >> 13}")
            return
    p.parts.append(f"vlan_tci={value:#06x}" + ("" if mask == 0xFFFF else f"/{mask:#06x}"))


def _network(p: _Printer, *, proto_shown: bool) -> None:
    if p.kind in (ARP, RARP):
        p.put("arp_spa")
        p.put("arp_tpa")
        p.put("arp_op")
        p.put("arp_sha")
        p.put("arp_tha")
        return
    if p.kind == IP:
        p.put("nw_src")
        p.put("nw_dst")
    elif p.kind == IPV6:
        p.put("ipv6_src")
        p.put("ipv6_dst")
        p.put("ipv6_label", form="padded")
    if p.kind in (IP, IPV6):
        if proto_shown:
            p.put("nw_proto")
        tos, tos_mask = p.get("nw_tos")
        if tos_mask:
            p.parts.append(f"nw_tos={tos << 2}")
        p.put("nw_ecn")
        p.put("nw_ttl")
    p.put("mpls_label")
    p.put("mpls_tc")
    p.put("mpls_ttl")
    p.put("mpls_bos")
    if p.kind in (IP, IPV6):
        value, mask = p.get("ip_frag")
        if mask:
            p.parts.append(f"nw_frag={_FRAGMENTS.get((value, mask), f'{value:#x}/{mask:#x}')}")


def _transport(p: _Printer) -> None:
    if (p.kind, p.proto) in ((IP, ICMP), (IPV6, ICMPV6)):
        p.put("icmp_type", form="number")
        p.put("icmp_code", form="number")
        if p.proto == ICMPV6:
            p.put("nd_target")
            sort, sort_mask = p.get("icmpv6_type")
            if sort_mask:
                p.put("nd_sll") if sort == 135 else p.put("nd_tll")
    elif p.kind in (IP, IPV6) and p.proto in (TCP, UDP, SCTP):
        p.put("tcp_src", "tp_src", "number")
        p.put("tcp_dst", "tp_dst", "number")
        if p.proto == TCP:
            value, mask = p.get("tcp_flags")
            if mask:
                p.parts.append(f"tcp_flags={texts.tcp_flags_text(value, mask)}")


@lru_cache(4096)
def _text(value: int, mask: int) -> str:
    p = _Printer(value, mask)
    p.put("pkt_mark")
    word = None
    if p.kind is not None:
        word = WORD_OF.get((p.kind, p.proto)) or WORD_OF.get((p.kind, None))
        if word is not None:
            p.parts.append(word)
    proto_shown = (p.kind, p.proto) not in WORD_OF
    for name in _REGISTERS:
        p.put(name)
    p.put("tun_id")
    p.put("metadata")
    p.put("in_port")
    _vlan(p)
    p.put("dl_src")
    p.put("dl_dst")
    if p.kind is not None and word is None:
        p.parts.append(f"dl_type={p.kind:#06x}")
    _network(p, proto_shown=proto_shown)
    _transport(p)
    return ",".join(p.parts)


def match_text(match: Matching) -> str:
    """A match as it is printed; nothing for one of all flows."""
    return _text(match.value, match.mask)
