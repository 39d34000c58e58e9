"""The primitives that go into another layer: vlan, mpls, pppoes, geneve, vxlan and ATM's lane.

Theory of operation
-------------------
Each of them tests that the layer is there and moves the places (:mod:`wirespeed.net.filter.layers`) for all that is
compiled after it: ``vlan and ip`` looks for IP behind the tag.  In the kernel the first tag is not among the packet's
bytes but beside them; a program for the kernel looks in both, and then a word of scratch memory says whether the bytes
have a tag in them.

*Source:* pcap-filter(7); IEEE 802.1Q, RFC 3032 (MPLS), RFC 2516 (PPPoE), RFC 8926 (Geneve), RFC 7348 (VXLAN).
"""

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter import link_type
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.block import Block, Condition, Statement, all_of, any_of, both, either, test
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.kind import is_kind, is_last_label, limited
from wirespeed.net.filter.layers import BEHIND4, BEHIND6, IPV6_HEADER, MPLS_ENTRY, PAYLOAD, Cell, Layers, Place
from wirespeed.net.filter.port import ports4, ports6

TAG = 4
TAG_IDENTIFIER = 0x0FFF
LABEL_SHIFT, LABEL_MOST = 12, 0xFFFFF
GENEVE_PORT, VXLAN_PORT = 6081, 4789
GENEVE_VERSION, GENEVE_OPTIONS = 0xC0, 0x3F
VXLAN_HAS_NUMBER = 0x08
NUMBER_MOST, NUMBER_MASK = 0xFFFFFF, 0xFFFFFF00  # of a virtual network, in the upper bytes of its word
UDP_HEADER, TUNNEL_HEADER, ETHERNET_KIND, ETHERNET_HEADER = 8, 8, 12, 14


def vlan(layers: Layers, identifier: int | None) -> Condition:
    """There is a tag (with an identifier); behind it everything is 4 bytes farther."""
    if layers.labels:
        raise FilterError("'vlan' cannot be used within MPLS")
    wlans = tuple(name for name in link_type.WLANS if name != "PPI")
    if layers.link not in (*link_type.ETHERNETS, *wlans):
        raise layers.refuse("vlan")
    if identifier is not None:
        limited(identifier, TAG_IDENTIFIER, "VLAN tag")
    outermost = layers.link == "EN10MB" and layers.header == layers.outermost_header
    layers.tags += 1
    if layers.in_kernel and outermost and layers.tags == 1:
        return _vlan_beside(layers, identifier)
    condition = _is_tagged(layers)
    if identifier is not None:
        condition = both(condition, layers.equal(PAYLOAD, 0, 2, identifier, TAG_IDENTIFIER))
    layers.payload, layers.kind = layers.payload.plus(TAG), layers.kind.plus(TAG)
    return condition


def _is_tagged(layers: Layers) -> Condition:
    return any_of(*(is_kind(layers, kind) for kind in (et.VLAN, et.VLAN_AD, et.VLAN_QINQ)))


def _vlan_beside(layers: Layers, identifier: int | None) -> Condition:
    """The first tag, which the kernel keeps beside the packet unless something put it into the bytes."""

    def is_beside(positive: bool) -> Condition:
        return test([(op.LD | op.ABS | op.B, op.AD_VLAN_TAG_PRESENT)], op.JEQ, 1, positive)

    within = _is_tagged(layers)
    if identifier is None:
        found = is_beside(True)
    else:
        tag: list[Statement] = [(op.LD | op.ABS | op.H, op.AD_VLAN_TAG), (op.ALU | op.AND | op.K, TAG_IDENTIFIER)]
        found = both(is_beside(True), test(tag, op.JEQ, identifier))
        within = both(within, layers.equal(PAYLOAD, 0, 2, identifier, TAG_IDENTIFIER))
    layers.tag_cell = cell = layers.kept()
    # Whatever follows is 4 bytes farther if there is no tag beside the packet, as it is in the packet's bytes then.
    within.entry.statements[:0] = [(op.LD | op.IMM, TAG), (op.ST, layers.number(cell))]
    layers.payload, layers.kind = Place(layers.payload.constant, cell), Place(layers.kind.constant, cell)
    return either(found, both(is_beside(False), within))


def constant_behind(statements: list[Statement]) -> Condition:
    """Statements that are done on the way to "yes"."""
    # Equal to itself: a test that holds always, whose block stays, for what its statements do.
    return test([*statements, (op.LD | op.IMM, 0)], op.JEQ, 0)


def mpls(layers: Layers, label: int | None) -> Condition:
    """There is a label, the next one of the stack; behind it everything is 4 bytes farther."""
    if layers.labels:
        condition = is_last_label(layers, positive=False)
    elif layers.link in (*link_type.HDLCS, *link_type.ETHERNETS):
        condition = is_kind(layers, et.MPLS)
    elif layers.link == "PPP":
        condition = is_kind(layers, et.PPP_MPLS)
    else:
        raise layers.refuse("mpls")
    if label is not None:
        limited(label, LABEL_MOST, "MPLS label")
        value = layers.equal(PAYLOAD, 0, 4, label << LABEL_SHIFT, LABEL_MOST << LABEL_SHIFT)
        condition = both(condition, value)
    layers.skip = None if layers.skip is None else layers.skip + MPLS_ENTRY
    layers.skip_plain = None if layers.skip_plain is None else layers.skip_plain + MPLS_ENTRY
    layers.labels += 1
    return condition


def pppoe(layers: Layers, session: int | None) -> Condition:
    """There is a PPPoE session; behind it follows PPP."""
    condition = is_kind(layers, et.PPPOES)
    if session is not None:
        limited(session, 0xFFFF, "PPPoE session number")
        condition = both(condition, layers.equal(PAYLOAD, 2, 2, session))
    if layers.payload.constant is None or layers.skip is None:
        raise layers.refuse("pppoes")
    # PPPoE's header is six bytes; PPP's own address and control bytes are not there.
    inner = layers.payload.plus(layers.skip + 6)
    layers.push("PPP", inner)
    layers.kind, layers.payload = inner, inner.plus(2)
    layers.skip = layers.skip_plain = 0
    return condition


def lane(layers: Layers, condition: Condition) -> Condition:
    """ATM's LAN emulation: behind its two bytes follows Ethernet."""
    inner = Place(6)
    layers.push("EN10MB", inner)
    layers.kind, layers.payload = inner.plus(ETHERNET_KIND), inner.plus(ETHERNET_HEADER)
    layers.skip, layers.skip_plain = 0, 3
    return condition


def geneve(layers: Layers, number: int | None) -> Condition:
    """A Geneve packet (of a virtual network); behind it follows what it carries, with or without Ethernet."""
    found = _over_udp(layers, GENEVE_PORT, (0, GENEVE_VERSION), number, "Geneve VNI")
    start = _tunnel_start(layers)
    kind, header, body = layers.kept(), layers.kept(), layers.kept()
    # The type of what is carried is the third and fourth byte; the options' length, in words, is in the first.
    find: list[Statement] = [
        *start,
        (op.MISC | op.TAX, 0),
        (op.ALU | op.ADD | op.K, 2),
        (op.ST, layers.number(kind)),
        (op.LD | op.IND | op.B, 0),
        (op.ALU | op.AND | op.K, GENEVE_OPTIONS),
        (op.ALU | op.LSH | op.K, 2),
        (op.ALU | op.ADD | op.K, TUNNEL_HEADER),
        (op.ALU | op.ADD | op.X, 0),
        (op.ST, layers.number(header)),
        (op.ST, layers.number(body)),
        (op.LD | op.IND | op.H, 2),
    ]
    ethernet = Block(
        [
            (op.LD | op.MEM, layers.number(header)),
            (op.ALU | op.ADD | op.K, ETHERNET_KIND),
            (op.ST, layers.number(kind)),
            (op.ALU | op.ADD | op.K, 2),
            (op.ST, layers.number(body)),
        ]
    )
    done = constant_behind([])
    first = Block(find, (op.JMP | op.JEQ | op.K, et.TEB), ethernet, done.entry)
    ethernet.yes = done.entry
    offsets = Condition(first, done.yes, done.no)
    _enter(layers, header, kind, body)
    return both(found, offsets)


def vxlan(layers: Layers, number: int | None) -> Condition:
    """A VXLAN packet (of a virtual network); behind it follows Ethernet."""
    found = _over_udp(layers, VXLAN_PORT, (VXLAN_HAS_NUMBER, op.MASK), number, "VXLAN VNI")
    start = _tunnel_start(layers)
    header, kind, body = layers.kept(), layers.kept(), layers.kept()
    offsets = constant_behind(
        [
            *start,
            (op.ALU | op.ADD | op.K, TUNNEL_HEADER),
            (op.ST, layers.number(header)),
            (op.ALU | op.ADD | op.K, ETHERNET_KIND),
            (op.ST, layers.number(kind)),
            (op.ALU | op.ADD | op.K, 2),
            (op.ST, layers.number(body)),
        ]
    )
    _enter(layers, header, kind, body)
    return both(found, offsets)


def _tunnel_start(layers: Layers) -> list[Statement]:
    """A, the length of the IP header with what varies before it, becomes where the tunnel's header begins."""
    assert layers.payload.constant is not None and layers.skip is not None
    return [(op.ALU | op.ADD | op.K, layers.payload.constant + layers.skip + UDP_HEADER)]


def _enter(layers: Layers, header: Cell, kind: Cell, body: Cell) -> None:
    layers.push("EN10MB", Place(0, header))
    layers.kind, layers.payload = Place(0, kind), Place(0, body)
    layers.skip = 0
    layers.in_tunnel = True


def _over_udp(layers: Layers, port: int, first: tuple[int, int], number: int | None, called: str) -> Condition:
    """UDP to a port, a first byte and the network's number; A is then the length of the IP header, as it varies."""
    if number is not None:
        limited(number, NUMBER_MOST, called)

    def carried(where: int) -> Condition:
        condition = layers.equal(where, UDP_HEADER, 1, *first)
        if number is None:
            return condition
        return both(condition, layers.equal(where, UDP_HEADER + 4, 4, number << 8, NUMBER_MASK))

    length6 = layers.fill_x(layers.payload)
    length6 = [*length6, (op.LD | op.IMM, IPV6_HEADER), *([(op.ALU | op.ADD | op.X, 0)] if length6 else [])]
    # X becomes A, so that the last test holds always and A goes with it to what follows.
    over4 = test([*layers.ipv4_length_to_x(), (op.MISC | op.TXA, 0)], op.JEQ, None)
    over6 = test([*length6, (op.MISC | op.TAX, 0)], op.JEQ, None)
    return either(
        all_of(ports4(layers, "dst", port, port, (et.UDP,)), carried(BEHIND4), over4),
        all_of(ports6(layers, "dst", port, port, (et.UDP,)), carried(BEHIND6), over6),
    )
