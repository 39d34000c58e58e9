"""The test for a protocol directly above a link layer, for each link type.

A protocol is an EtherType, or a service access point of LLC where it is at most 1500: the two share one range of numbers
as they do in Ethernet's type field.
"""

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter import link_type
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.block import Condition, any_of, both, constant, either, test
from wirespeed.net.filter.error import FilterError, LinkError
from wirespeed.net.filter.layers import HEADER, KIND, LABEL, LLC, PAYLOAD, PREVIOUS, Layers
from wirespeed.net.filter.vocabulary import WLAN_DATA, WLAN_TYPE_MASK

SLL_NOVELL, SLL_LLC = 0x0001, 0x0004  # LINUX_SLL_P_802_3 and _802_2
ATM_LLC, ATM_TYPE_MASK = 0x02, 0x0F  # of SunATM's pseudo header
LANE_CONTROL = 0xFF00  # the LANE header of a control frame
JUNIPER_MAGIC, JUNIPER_MASK = 0x4D474300, 0xFFFFFF00
BSD_INET, BSD_INET6 = 2, (24, 28, 30)  # AF_INET, and AF_INET6 of NetBSD and OpenBSD, FreeBSD, and macOS
LINUX_INET6 = 10
SOLARIS_INET, SOLARIS_INET6 = 2, 26


def limited(value: int, most: int, called: str) -> int:
    """A number, if it is not too large."""
    if value > most:
        raise FilterError(f"{called} {value} is greater than the maximum {most}")
    return value


def is_kind(layers: Layers, protocol: int) -> Condition:
    """The link layer carries a protocol."""
    link = layers.link
    if layers.labels:
        return _behind_labels(layers, protocol)
    if link in link_type.ETHERNETS:
        check = None if layers.in_tunnel else previous_check(layers)
        kind = _ethernet(layers, protocol)
        return kind if check is None else both(check, kind)
    if link in link_type.HDLCS:
        limited(protocol, 0xFFFF, "HDLC protocol")
        return layers.equal(KIND, 0, 2, protocol << 8 | protocol if protocol == et.SAP_ISO else protocol)
    if link in link_type.WLANS:
        data = layers.equal(HEADER, 0, 1, WLAN_DATA, WLAN_TYPE_MASK)
        return both(data, _llc(layers, protocol))
    if link in link_type.LLCS:
        return _llc(layers, protocol)
    if link == "SUNATM":
        return both(layers.equal(HEADER, 0, 1, ATM_LLC, ATM_TYPE_MASK), _llc(layers, protocol))
    if link == "LINUX_SLL":
        return _cooked(layers, protocol)
    if link in link_type.PPPS or link == "PPP_BSDOS":
        return _ppp(layers, protocol)
    if link in ("SLIP", "SLIP_BSDOS", "RAW", "IPV4", "IPV6", "LTALK"):
        return _by_nature(layers, protocol)
    if link in link_type.LOOPBACKS or link == "PFLOG":
        return _family(layers, protocol)
    if link in link_type.ARCNETS:
        return layers.equal(KIND, 0, 1, et.ARCNET[protocol]) if protocol in et.ARCNET else constant(False)
    if link == "FRELAY":
        return _frame_relay(layers, protocol)
    if link in link_type.JUNIPERS:
        return layers.equal(HEADER, 0, 4, JUNIPER_MAGIC, JUNIPER_MASK)
    if link == "IPNET":
        family = {et.IP: SOLARIS_INET, et.IPV6: SOLARIS_INET6}.get(protocol)
        return constant(False) if family is None else layers.equal(KIND, 0, 1, family)
    if layers.kind.constant is None or link == "MFR":
        raise LinkError(f"the protocol above the link layer cannot be told on link type {link}")
    return layers.equal(KIND, 0, 2, limited(protocol, 0xFFFF, "EtherType"))


def previous_check(layers: Layers) -> Condition | None:
    """What must hold of the layer outside for this one to be there at all."""
    if layers.in_tunnel:
        return tunnel_check(layers)
    if layers.previous == "SUNATM":
        return layers.unequal(PREVIOUS, 4, 2, LANE_CONTROL)
    return None


def tunnel_check(layers: Layers) -> Condition:
    """A tunnel's inner packet has a link layer at all: its payload does not begin where it begins itself."""
    assert layers.header.cell and layers.payload.cell
    header, payload = layers.number(layers.header.cell), layers.number(layers.payload.cell)
    return test([(op.LD | op.MEM, header), (op.LDX | op.MEM, payload)], op.JEQ, None, positive=False)


def is_version(layers: Layers, where: int, version: int) -> Condition:
    """The IP header at a place has a version."""
    return layers.equal(where, 0, 1, version << 4, 0xF0)


def is_nlpid(layers: Layers, identifier: int) -> Condition:
    """Frame Relay: an unnumbered frame with an ISO identifier."""
    return layers.equal(HEADER, 2, 2, 0x03 << 8 | identifier)


def is_last_label(layers: Layers, positive: bool = True) -> Condition:
    """The label before this place is the last of its stack."""
    return layers.has_bits(LABEL, 2, 1, 0x01, positive)


def _behind_labels(layers: Layers, protocol: int) -> Condition:
    versions = {et.IP: 4, et.IPV6: 6}
    if protocol not in versions:
        raise FilterError("behind MPLS labels only ip and ip6 can be told")
    return both(is_last_label(layers), is_version(layers, PAYLOAD, versions[protocol]))


def _snap(layers: Layers, organisation: int, protocol: int) -> Condition:
    block = bytes((et.SAP_SNAP, et.SAP_SNAP, 0x03)) + organisation.to_bytes(3) + protocol.to_bytes(2)
    return layers.bytes_equal(LLC, 0, block)


def _appletalk(layers: Layers, protocol: int) -> Condition:
    return _snap(layers, 0x080007 if protocol == et.ATALK else 0, protocol)


def _ethernet(layers: Layers, protocol: int) -> Condition:
    """Ethernet: a type, or a length and LLC behind it."""

    def has_length() -> Condition:
        return layers.at_most(KIND, 0, 2, et.LONGEST_LENGTH)

    def has_type() -> Condition:
        return layers.equal(KIND, 0, 2, limited(protocol, 0xFFFF, "EtherType"))

    if protocol in (et.SAP_ISO, et.SAP_IP, et.SAP_NETBEUI):
        return both(has_length(), layers.equal(LLC, 0, 2, protocol << 8 | protocol))
    if protocol == et.SAP_IPX:
        # As a type, in plain LLC, directly behind the length ("raw" 802.3, which begins with a missing checksum), in SNAP.
        plain, raw = layers.equal(LLC, 0, 1, et.SAP_IPX), layers.equal(LLC, 0, 2, 0xFFFF)
        inner = any_of(_snap(layers, 0, et.IPX), plain, raw)
        return either(layers.equal(KIND, 0, 2, et.IPX), both(has_length(), inner))
    if protocol in (et.ATALK, et.AARP):
        return either(has_type(), both(has_length(), _appletalk(layers, protocol)))
    if protocol <= et.LONGEST_LENGTH:
        limited(protocol, 0xFF, "LLC DSAP")
        return both(has_length(), layers.equal(KIND, 2, 1, protocol))
    return has_type()


def _cooked(layers: Layers, protocol: int) -> Condition:
    """Linux's cooked capture: an EtherType, or one of two numbers that say how LLC follows."""

    def is_type(value: int) -> Condition:
        return layers.equal(KIND, 0, 2, value)

    if protocol in (et.SAP_ISO, et.SAP_IP, et.SAP_NETBEUI):
        return both(is_type(SLL_LLC), layers.equal(LLC, 0, 2, protocol << 8 | protocol))
    if protocol == et.SAP_IPX:
        inner = either(layers.equal(LLC, 0, 1, et.SAP_IPX), _snap(layers, 0, et.IPX))
        return any_of(is_type(et.IPX), is_type(SLL_NOVELL), both(is_type(SLL_LLC), inner))
    if protocol in (et.ATALK, et.AARP):
        return either(is_type(protocol), both(is_type(SLL_LLC), _appletalk(layers, protocol)))
    if protocol <= et.LONGEST_LENGTH:
        limited(protocol, 0xFF, "LLC DSAP")
        return both(is_type(SLL_LLC), layers.equal(LLC, 0, 1, protocol))
    return is_type(limited(protocol, 0xFFFF, "EtherType"))


def _llc(layers: Layers, protocol: int) -> Condition:
    """LLC always: a service access point, or the type of SNAP."""
    if protocol in (et.SAP_IP, et.SAP_ISO, et.SAP_NETBEUI):
        return layers.equal(LLC, 0, 2, protocol << 8 | protocol)
    if protocol == et.ATALK:
        return _appletalk(layers, protocol)
    if protocol <= et.LONGEST_LENGTH:
        return layers.equal(LLC, 0, 1, limited(protocol, 0xFF, "LLC DSAP"))
    return layers.equal(LLC, 6, 2, limited(protocol, 0xFFFF, "EtherType"))


def _ppp(layers: Layers, protocol: int) -> Condition:
    if layers.link == "PPP_BSDOS" and protocol == et.IP:
        return any_of(*(layers.equal(KIND, 0, 2, kind) for kind in (et.PPP_IP, et.PPP_VJC, et.PPP_VJNC)))
    return layers.equal(KIND, 0, 2, limited(et.PPP.get(protocol, protocol), 0xFFFF, "PPP protocol"))


def _by_nature(layers: Layers, protocol: int) -> Condition:
    """Link types whose packets tell by themselves what they are, or are of one kind."""
    only = {"IPV4": et.IP, "IPV6": et.IPV6, "LTALK": et.ATALK}.get(layers.link)
    if only is not None:
        return constant(protocol == only)
    versions = {et.IP: 4, et.IPV6: 6}
    return is_version(layers, HEADER, versions[protocol]) if protocol in versions else constant(False)


def _family(layers: Layers, protocol: int) -> Condition:
    """An address family of the system that captured: one of several in a file, Linux's own in its kernel."""
    if protocol not in (et.IP, et.IPV6):
        return constant(False)
    if layers.in_kernel:
        families: tuple[int, ...] = (BSD_INET,) if protocol == et.IP else (LINUX_INET6,)
    else:
        families = (BSD_INET,) if protocol == et.IP else BSD_INET6
    if layers.link == "PFLOG":
        return any_of(*(layers.equal(HEADER, 1, 1, family) for family in families))
    orders = list(families) if layers.link == "LOOP" or not layers.in_kernel else []
    if layers.link != "LOOP":
        # NULL and ENC have it in the byte order of the machine that captured, which may be either one in a file.
        orders += [int.from_bytes(family.to_bytes(4, "little")) for family in families]
    return any_of(*(layers.equal(HEADER, 0, 4, family) for family in orders))


def _frame_relay(layers: Layers, protocol: int) -> Condition:
    if protocol == et.SAP_ISO:
        return any_of(*(is_nlpid(layers, one) for one in (et.CLNP, et.ESIS, et.ISIS)))
    one = {et.IP: et.NLPID_IPV4, et.IPV6: et.NLPID_IPV6}.get(protocol)
    return constant(False) if one is None else is_nlpid(layers, one)
