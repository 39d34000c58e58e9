"""The primitives that begin with a word of their own, other than those of ATM and SS7.

*Source:* pcap-filter(7); IEEE 802.2 section 5.4 (LLC control field); pflog(4).
"""

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter import link_type, tunnel, wlan
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter import vocabulary as words
from wirespeed.net.filter.block import Condition, both, constant, either, test
from wirespeed.net.filter.error import FilterError, LinkError
from wirespeed.net.filter.host import OFFSETS_MAC, OFFSETS_MAC8, mac8_host, mac_host
from wirespeed.net.filter.kind import ATM_LLC, ATM_TYPE_MASK, is_kind, limited, previous_check
from wirespeed.net.filter.layers import HEADER, KIND, LLC, PAYLOAD, Layers
from wirespeed.net.filter.lexer import NUMBER, Token
from wirespeed.net.filter.syntax import Word

OUTGOING = 4  # PACKET_OUTGOING and LINUX_SLL_OUTGOING
PF_ACTION, PF_REASON, PF_INTERFACE, PF_RULESET, PF_RULE, PF_SUBRULE, PF_DIRECTION = 2, 3, 4, 20, 36, 40, 60
PF_NAME_MOST = 15
LLC_RAW = 0xFFFF  # Novell's "raw" frames, which have no LLC behind their length


def word_condition(layers: Layers, node: Word, netmask: int | None) -> Condition:
    """The condition of a primitive."""
    number = node.arguments[0].value if node.arguments else None
    match node.word:
        case "less":
            return test([(op.LD | op.W | op.LEN, 0)], op.JGT, number, positive=False)
        case "greater":
            return test([(op.LD | op.W | op.LEN, 0)], op.JGE, number)
        case "byte":
            return _byte(layers, node.arguments)
        case "broadcast":
            return _broadcast(layers, node.protocol, netmask)
        case "multicast":
            return _multicast(layers, node.protocol)
        case "inbound" | "outbound":
            return _directed(layers, node.word)
        case "ifindex":
            return _interface(layers, node.arguments[0].value)
        case "vlan":
            return tunnel.vlan(layers, number)
        case "mpls":
            return tunnel.mpls(layers, number)
        case "pppoes":
            return tunnel.pppoe(layers, number)
        case "geneve":
            return tunnel.geneve(layers, number)
        case "vxlan":
            return tunnel.vxlan(layers, number)
        case "pppoed":
            return is_kind(layers, et.PPPOED)
        case "llc":
            return _llc(layers, node.arguments[0].text if node.arguments else None)
        case "type" | "subtype" | "dir":
            return _wlan_type(layers, node)
    return _pflog(layers, node)


def _byte(layers: Layers, arguments: tuple[Token, ...]) -> Condition:
    """``byte INDEX SIGN VALUE``: a byte of the link layer's header."""
    index, sign, value = arguments[0].value, arguments[1].text, arguments[2].value
    limited(value, 0xFF, "byte argument")
    match sign:
        case "=":
            return layers.equal(HEADER, index, 1, value)
        case "<":
            return layers.compare(HEADER, index, 1, op.JGE, value, positive=False)
        case ">":
            return layers.compare(HEADER, index, 1, op.JGT, value)
    operation = op.AND if sign == "&" else op.OR
    return test([*layers.load(HEADER, index, 1), (op.ALU | operation | op.K, value)], op.JEQ, 0, positive=False)


def _broadcast(layers: Layers, protocol: str | None, netmask: int | None) -> Condition:
    if protocol in (None, "link"):
        if layers.link in OFFSETS_MAC8:
            everybody = 0xFF if layers.link == "BACNET_MS_TP" else 0
            return mac8_host(layers, everybody, "dst", "broadcast")
        return mac_host(layers, b"\xff" * 6, "dst", "broadcast")
    if protocol != "ip":
        raise FilterError(f"'{protocol}' does not go with 'broadcast'")
    if netmask is None:
        raise FilterError("'ip broadcast' needs the network's mask, which is not known here; give it as netmask")
    hosts = ~netmask & op.MASK
    either_end = either(layers.equal(PAYLOAD, 16, 4, 0, hosts), layers.equal(PAYLOAD, 16, 4, hosts, hosts))
    return both(is_kind(layers, et.IP), either_end)


def _multicast(layers: Layers, protocol: str | None) -> Condition:
    if protocol == "ip":
        return both(is_kind(layers, et.IP), layers.equal(PAYLOAD, 16, 1, 0xE0, 0xF0))
    if protocol == "ip6":
        return both(is_kind(layers, et.IPV6), layers.equal(PAYLOAD, 24, 1, 0xFF))
    if protocol not in (None, "link"):
        raise FilterError(f"'{protocol}' does not go with 'multicast'")
    if layers.link in link_type.ARCNETS:
        return mac8_host(layers, 0, "dst", "multicast")

    def group(offset: int) -> Condition:
        return layers.has_bits(HEADER, offset, 1, 0x01)

    if layers.link in link_type.WLANS:
        return wlan.destination(layers, group)
    if layers.link not in OFFSETS_MAC:
        raise layers.refuse("multicast")
    check = previous_check(layers) if layers.link in link_type.ETHERNETS else None
    found = group(OFFSETS_MAC[layers.link][1])
    return found if check is None else both(check, found)


def _directed(layers: Layers, word: str) -> Condition:
    """Which way a packet went, by what the link type says of it or, in the kernel, by the kernel."""
    out = word == "outbound"
    match layers.link:
        case "SLIP":
            return layers.equal(HEADER, 0, 1, 1 if out else 0)
        case "IPNET":
            return layers.equal(HEADER, 2, 2, 1 if out else 2)
        case "LINUX_SLL":
            return layers.compare(HEADER, 0, 2, op.JEQ, OUTGOING, positive=out)
        case "LINUX_SLL2":
            return layers.compare(HEADER, 10, 1, op.JEQ, OUTGOING, positive=out)
        case "PFLOG":
            return layers.equal(HEADER, PF_DIRECTION, 1, 2 if out else 1)
        case "PPP_PPPD":
            return layers.equal(HEADER, 0, 1, 1 if out else 0)
        case "DSA_TAG_BRCM":
            return layers.equal(HEADER, 12, 1, 0x20 if out else 0, 0xE0)
        case "DSA_TAG_DSA":
            return layers.equal(HEADER, 12, 1, 0x40 if out else 0, 0xC0 if out else 0x40)
    if layers.link in link_type.JUNIPERS:
        return layers.equal(HEADER, 3, 1, 0 if out else 1, 0x01)
    if not layers.in_kernel:
        raise LinkError(
            f"'{word}' is told by the kernel only on link type {layers.link}: not for files and other ports"
        )
    return test([(op.LD | op.ABS | op.H, op.AD_PKTTYPE)], op.JEQ, OUTGOING, positive=out)


def _interface(layers: Layers, index: int) -> Condition:
    if layers.link == "LINUX_SLL2":
        return layers.equal(HEADER, 4, 4, index)
    if not layers.in_kernel:
        raise LinkError(
            f"'ifindex' is told by the kernel only on link type {layers.link}: not for files and other ports"
        )
    return test([(op.LD | op.ABS | op.W, op.AD_IFINDEX)], op.JEQ, index)


def _llc(layers: Layers, kind: str | None) -> Condition:
    """LLC is there, with a control field of a kind."""
    link = layers.link
    if link in ("EN10MB", "DSA_TAG_BRCM", "DSA_TAG_DSA"):
        present = both(layers.at_most(KIND, 0, 2, et.LONGEST_LENGTH), layers.unequal(LLC, 0, 2, LLC_RAW))
    elif link == "SUNATM":
        present = layers.equal(HEADER, 0, 1, ATM_LLC, ATM_TYPE_MASK)
    elif link in ("IEEE802", "FDDI", "ATM_RFC1483"):
        present = constant(True)
    elif link in link_type.WLANS:
        present = layers.equal(HEADER, 0, 1, words.WLAN_DATA, words.WLAN_TYPE_MASK)
    else:
        raise layers.refuse("llc")
    match kind.lower() if kind else None:
        case None:
            return present
        case "i":
            return both(present, layers.has_bits(LLC, 2, 1, 0x01, positive=False))
        case "s":
            return both(present, layers.equal(LLC, 2, 1, 0x01, 0x03))
        case "u":
            return both(present, layers.equal(LLC, 2, 1, 0x03, 0x03))
        case name if name in words.LLC_SUPERVISORY or name == "rulenum":
            return both(present, layers.equal(LLC, 2, 1, words.LLC_SUPERVISORY.get(name, 0x05), 0x0F))
        case name if name in words.LLC_UNNUMBERED:
            return both(present, layers.equal(LLC, 2, 1, words.LLC_UNNUMBERED[name], 0xEF))
    raise FilterError(f"unknown LLC type '{kind}'")


def _wlan_type(layers: Layers, node: Word) -> Condition:
    if layers.link not in link_type.WLANS:
        raise layers.refuse(node.word)
    first = node.arguments[0]
    if node.word == "dir":
        value = _value(first, words.WLAN_DIRECTIONS, words.WLAN_DIRECTION_MASK, "802.11 direction")
        return layers.equal(HEADER, 1, 1, value, words.WLAN_DIRECTION_MASK)
    both_masks = words.WLAN_TYPE_MASK | words.WLAN_SUBTYPE_MASK
    if node.word == "subtype":
        name = first.text.lower()
        for kind, subtypes in words.WLAN_SUBTYPES.items():
            if name in subtypes:
                return layers.equal(HEADER, 0, 1, kind | subtypes[name], both_masks)
        raise FilterError(f"unknown 802.11 subtype '{first.text}'")
    kind = _value(first, words.WLAN_TYPES, words.WLAN_TYPE_MASK, "802.11 type")
    if len(node.arguments) == 1:
        return layers.equal(HEADER, 0, 1, kind, words.WLAN_TYPE_MASK)
    subtype = _value(node.arguments[1], words.WLAN_SUBTYPES.get(kind, {}), words.WLAN_SUBTYPE_MASK, "802.11 subtype")
    return layers.equal(HEADER, 0, 1, kind | subtype, both_masks)


def _value(token: Token, names: dict[str, int], mask: int, called: str) -> int:
    """A number within a mask, or one by its name."""
    if token.kind == NUMBER:
        if token.value & ~mask:
            raise FilterError(f"invalid {called} {token.text}; it has the bits {mask:#x} only")
        return token.value
    if token.text.lower() not in names:
        raise FilterError(f"unknown {called} '{token.text}'; known are {', '.join(names)}")
    return names[token.text.lower()]


def _pflog(layers: Layers, node: Word) -> Condition:
    """What PF's log says of a packet."""
    if layers.link != "PFLOG":
        raise LinkError(f"'{node.word}' is supported on link type PFLOG only, not on {layers.link}")
    token = node.arguments[0]
    match node.word:
        case "ifname" | "ruleset":
            name = token.text.encode()
            if len(name) > PF_NAME_MOST:
                raise FilterError(f"a name here has at most {PF_NAME_MOST} characters, got '{token.text}'")
            return layers.bytes_equal(HEADER, PF_INTERFACE if node.word == "ifname" else PF_RULESET, name)
        case "rulenum":
            return layers.equal(HEADER, PF_RULE, 4, token.value)
        case "subrulenum":
            return layers.equal(HEADER, PF_SUBRULE, 4, token.value)
        case "reason":
            return layers.equal(HEADER, PF_REASON, 1, _value(token, words.PF_REASONS, op.MASK, "PF reason"))
    return layers.equal(HEADER, PF_ACTION, 1, _value(token, words.PF_ACTIONS, op.MASK, "PF action"))
