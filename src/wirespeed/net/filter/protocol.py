"""The primitives that name a protocol: proto, protochain, and words such as tcp or isis that stand alone.

*Source:* pcap-filter(7); RFC 791, RFC 8200 section 4 (extension headers), RFC 4302 (AH); ISO 10589 (IS-IS).
"""

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter import link_type
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.block import Block, Condition, any_of, both, either
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.kind import is_kind, is_nlpid, limited
from wirespeed.net.filter.layers import IPV6_HEADER, PAYLOAD, PLAIN, Cell, Layers
from wirespeed.net.filter.names import Names

OVER_BOTH = ("sctp", "tcp", "udp", "ah", "esp", "pim")
OVER_IPV4 = ("icmp", "igmp", "igrp", "vrrp", "carp")
ISIS_TYPE_MOST = 0x1F
EXTENSIONS = (et.HOP_BY_HOP, et.DESTINATION, et.ROUTING, et.FRAGMENT)


def abbreviation(layers: Layers, word: str) -> Condition:
    """A protocol's word that stands alone."""
    if word in et.ETHERTYPES:
        return is_kind(layers, et.ETHERTYPES[word])
    if word in et.SAPS:
        return is_kind(layers, et.SAPS[word])
    if word in OVER_BOTH:
        return proto(layers, None, et.IP_PROTOCOLS[word])
    if word in OVER_IPV4:
        return proto(layers, "ip", et.IP_PROTOCOLS[word])
    if word == "icmp6":
        return proto(layers, "ip6", et.IP_PROTOCOLS[word])
    if word in et.ISO:
        return proto(layers, "iso", et.ISO[word])
    if word in et.ISIS_PDUS:
        return any_of(*(proto(layers, "isis", kind) for kind in et.ISIS_PDUS[word]))
    raise FilterError(f"'{word}' cannot stand alone; write what of it is wanted")


def proto(layers: Layers, protocol: str | None, value: int) -> Condition:
    """A protocol above another one, by its number."""
    match protocol:
        case None:
            return either(proto(layers, "ip", value), proto(layers, "ip6", value))
        case "link":
            return is_kind(layers, value)
        case "ip":
            limited(value, 0xFF, "protocol number")
            return both(is_kind(layers, et.IP), layers.equal(PAYLOAD, 9, 1, value))
        case "ip6":
            limited(value, 0xFF, "protocol number")
            direct = layers.equal(PAYLOAD, 6, 1, value)
            fragment = both(layers.equal(PAYLOAD, 6, 1, et.FRAGMENT), layers.equal(PAYLOAD, IPV6_HEADER, 1, value))
            return both(is_kind(layers, et.IPV6), either(direct, fragment))
        case "iso":
            limited(value, 0xFF, "ISO protocol")
            if layers.link == "FRELAY":
                return is_nlpid(layers, value)
            if layers.link in link_type.HDLCS:
                # Cisco's HDLC puts a byte of padding before an ISO packet.
                carried = is_kind(layers, et.SAP_ISO << 8 | et.SAP_ISO)
                return both(carried, layers.equal(PLAIN, 1, 1, value))
            return both(is_kind(layers, et.SAP_ISO), layers.equal(PLAIN, 0, 1, value))
        case "isis":
            limited(value, ISIS_TYPE_MOST, "IS-IS PDU type")
            at = 5 if layers.link in link_type.HDLCS else 4
            return both(proto(layers, "iso", et.ISIS), layers.equal(PLAIN, at, 1, value, ISIS_TYPE_MOST))
    raise FilterError(f"'{protocol}' does not go with 'proto'")


def named(names: Names, protocol: str | None, name: str, word: str) -> int:
    """The number of a protocol by its name."""
    value: int | None = None
    if protocol in (None, "ip", "ip6"):
        value = names.protocol(name)
    elif protocol == "link":
        value = et.MORE_ETHERTYPES.get(name, et.SAPS.get(name))
    elif protocol == "iso":
        value = et.ISO.get(name)
    if value is None:
        raise FilterError(f"unknown '{f'{protocol} ' if protocol else ''}{word}' value '{name}'")
    return value


def chain(layers: Layers, protocol: str | None, value: int) -> Condition:
    """A protocol anywhere in a chain of headers, which the program follows in a loop."""
    if protocol is None:
        return either(chain(layers, "ip", value), chain(layers, "ip6", value))
    if protocol not in ("ip", "ip6"):
        raise FilterError(f"'{protocol}' does not go with 'protochain'")
    limited(value, 0xFF, "protocol number")
    if layers.payload.cell is not None:
        raise FilterError("'protochain' is not supported behind headers of varying length")
    base = layers.start(PAYLOAD)[1]
    is_ipv4 = protocol == "ip"
    carried = is_kind(layers, et.IP if is_ipv4 else et.IPV6)
    kept = Cell()
    word = layers.number(kept)
    # A is the protocol of the header at base + X, and grows with each header: a load beyond the packet ends it.
    first = Block(layers.load(PAYLOAD, 9 if is_ipv4 else 6, 1))
    first.statements += layers.ipv4_length_to_x() if is_ipv4 else [(op.LDX | op.IMM, IPV6_HEADER)]
    found = Block(test=(op.JMP | op.JEQ | op.K, value))
    first.yes = found
    last = Block(test=(op.JMP | op.JEQ | op.K, value))  # A that is not the value any more: always no
    stop = Block(test=(op.JMP | op.JEQ | op.K, et.NO_NEXT), yes=last)
    found.no = stop
    previous = stop
    if not is_ipv4:
        step = _step(base, word, unit=8, more=1, again=found)
        for kind in EXTENSIONS:
            previous.no = Block(test=(op.JMP | op.JEQ | op.K, kind), yes=step)
            previous = previous.no
    step = _step(base, word, unit=4, more=2, again=found)
    previous.no = Block(test=(op.JMP | op.JEQ | op.K, et.AUTHENTICATION), yes=step, no=last)
    layers.release(kept)
    return both(carried, Condition(first, [(found, True), (last, True)], [(last, False)]))


def _step(base: int, word: int, unit: int, more: int, again: Block) -> Block:
    """Go on behind a header whose length, in units and less some, is its second byte."""
    return Block(
        [
            (op.LD | op.IND | op.B, base),
            (op.ST, word),
            (op.LD | op.IND | op.B, base + 1),
            (op.ALU | op.ADD | op.K, more),
            (op.ALU | op.MUL | op.K, unit),
            (op.ALU | op.ADD | op.X, 0),
            (op.MISC | op.TAX, 0),
            (op.LD | op.MEM, word),
        ],
        yes=again,
    )
