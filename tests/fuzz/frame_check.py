"""What must hold for any bytes whatever that are taken for a frame; a kernel that checks it for a batch of them.

Each frame lies twice between pages that nobody may touch: right before the upper one, where a byte read too far ends
the process, and right behind the lower one with other bytes behind it.  All that is said of it must be the same.
"""

import numpy as np

from tests.fuzz.inputs import INPUT, Input
from wirespeed.jit.intrinsics import copy, equal, fill, load_be16, load_be32, load_be64, load_u8, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net import bits as b
from wirespeed.net.checksum import fill_icmp, fill_ipv4, fill_sctp, fill_tcp, fill_udp, pseudo_ipv4
from wirespeed.net.dissect import LAYER, dissect
from wirespeed.net.flow import FRAGMENT, PORTS, five_tuple
from wirespeed.net.hashing import flow_hash, hash_words, symmetric_hash
from wirespeed.net.layer import (
    ICMP,
    IPV4,
    LAST_NETWORK,
    LAYER_BAD,
    LAYER_CUT,
    LAYER_FIRST_FRAGMENT,
    LAYER_LATER_FRAGMENT,
    MAX_LAYERS,
    SCTP,
    TCP,
    UDP,
    VLAN,
    Layer,
)
from wirespeed.net.parse import find
from wirespeed.net.protocol import PROTO_TCP, PROTO_UDP
from wirespeed.net.toeplitz import rss
from wirespeed.net.verdict import GOOD, UNVERIFIABLE, WRONG, verdict
from wirespeed.net.walk import KIND_BIT, NETWORK

i64, u64 = np.int64, np.uint64

SLACK = 256  # bytes of rubbish before and behind a frame, where there is no page that nobody may touch

Bench = layout(
    "FuzzBench",
    [
        ("low", "i8"),  # address behind the lower page
        ("high", "i8"),  # address of the upper page
        ("records", "i8"),  # address of Layer[MAX_LAYERS]
        ("others", "i8"),  # the same once more
        ("keys", "i8"),  # a Toeplitz table
        ("progress", "i8"),  # address of an i8 that survives the process: the number of the input under way
        ("violated", "i8"),  # the invariant that the last input broke, or 0
    ],
)

INVARIANTS = (
    "none",
    "the headers are the same whatever lies around the frame",
    "each header begins where the one before ends",
    "what a header carries ends inside of what the one before carries",
    "only the last header is not whole",
    "each header but the last fits into what is there",
    "fewer records, where there is room for fewer, are the first ones",
    "find has the bits, offsets and ends that follow from all headers",
    "what is not wanted changes nothing of what is",
    "the verdicts are the same whatever lies around the frame",
    "the five-tuple is the same whatever lies around the frame",
    "the five-tuple is what stands in the headers",
    "both directions of a flow have one symmetric hash",
    "a checksum that was filled in is right",
)
SAME, BEGIN, END, WHOLE, FITS, ROOM, FOUND, WANTED, VERDICT, FLOW, TUPLE, HASH, FILLED = (
    i64(n) for n in range(1, len(INVARIANTS))
)
# Constants, so that each becomes code of its own, as it does for users.
ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT = (
    i64(want)
    for want in (
        b.ETH | b.IPV4, b.IPV4 | b.TCP, b.IPV4 | b.IPV6 | b.UDP, b.VLAN | b.VLAN2 | b.IPV6, b.FLAGS, b.PAYLOAD,
        b.ARP | b.MPLS | b.FRAGMENT6 | b.VXLAN | b.GENEVE, b.ICMP | b.ICMPV6 | b.SCTP | b.GRE | b.PAYLOAD,
    )
)  # fmt: skip


@kernel
def shape(e, n, length):
    """Whether the ``n`` records lie one behind the other and one inside of the other."""
    at, end = i64(0), length
    for i in range(n):
        layer = Layer(e.records + LAYER * i)
        if i64(layer.offset) != at:
            return BEGIN
        if i64(layer.end) > end:
            return END
        if i < n - 1 and layer.whole == 0:
            return WHOLE
        at = i64(layer.offset) + i64(layer.length)
        end = i64(layer.end)
        if i < n - 1 and (layer.length == 0 or at > end):
            return FITS
    return i64(0)


@kernel
def shape_at(bench, n, length):
    """:func:`shape`, for tests of it."""
    return shape(Bench(bench), n, length)


@kernel(inline=True)
def flag_bits(flags):
    """The flags of a layer as :func:`find` gives them."""
    found = b.CUT if flags & LAYER_CUT else 0
    found |= b.BAD if flags & LAYER_BAD else 0
    found |= b.FIRST_FRAGMENT if flags & LAYER_FIRST_FRAGMENT else 0
    return found | (b.LATER_FRAGMENT if flags & LAYER_LATER_FRAGMENT else 0)


@kernel
def expected(e, n, length):
    """What :func:`find` should say, but the protocol, by the records of all headers."""
    layers, vlan, vlan2, mpls, l3, fragment6, l4 = i64(0), i64(0), i64(0), i64(0), i64(0), i64(0), i64(0)
    payload, end = i64(0), length
    for i in range(n):
        layer = Layer(e.records + LAYER * i)
        kind, at = i64(layer.kind), i64(layer.offset)
        if kind <= LAST_NETWORK and layers & NETWORK:
            break
        layers |= flag_bits(layer.flags)
        if layer.whole == 0:
            break
        bit = KIND_BIT[kind]
        if kind == VLAN and layers & b.VLAN:
            bit = i64(0) if layers & b.VLAN2 else i64(b.VLAN2)
            vlan2 = at if bit else vlan2
        elif kind == VLAN:
            vlan = at
        mpls = at if bit & b.MPLS and not layers & b.MPLS else mpls
        l3 = at if bit & NETWORK else l3
        fragment6 = at if bit & b.FRAGMENT6 and not layers & b.FRAGMENT6 else fragment6
        l4 = at if bit & (b.TRANSPORT & ~(b.VXLAN | b.GENEVE)) else l4
        layers |= bit
        payload = min(at + i64(layer.length), i64(layer.end))
        end = i64(layer.end) if kind < TCP else end
    return layers, vlan, vlan2, mpls, l3, fragment6, l4, payload, end


@kernel(inline=True)
def same_where(bits, one, two):
    """Whether two results of :func:`find` agree in the offsets that ``bits`` give a meaning."""
    same = one[1] == two[1] or not bits & b.VLAN
    same &= one[2] == two[2] or not bits & b.VLAN2
    same &= one[3] == two[3] or not bits & b.MPLS
    same &= one[4] == two[4] or not bits & NETWORK
    same &= one[5] == two[5] or not bits & b.FRAGMENT6
    return same and (one[6] == two[6] or not bits & b.TRANSPORT)


@kernel(inline=True)
def agrees(frame, length, link, whole, want):
    """Whether :func:`find` says of what is wanted what it says, in ``whole``, when everything is."""
    found = find(frame, length, link, want)
    bits = whole[0] & want
    ends = not want & b.PAYLOAD or (found[7] == whole[7] and found[8] == whole[8])
    return found[0] == bits and same_where(bits, found, whole) and ends


@kernel
def located(e, n, frame, length, link):
    """Whether :func:`find` says what the records say, whatever is wanted."""
    wanted = expected(e, n, length)
    whole = find(frame, length, link, b.EVERYTHING)
    if whole[0] != wanted[0] or not same_where(wanted[0], whole, wanted):
        return FOUND
    if whole[7] != wanted[7] or whole[8] != wanted[8]:
        return FOUND
    good = agrees(frame, length, link, whole, ONE) and agrees(frame, length, link, whole, TWO)
    good = good and agrees(frame, length, link, whole, THREE) and agrees(frame, length, link, whole, FOUR)
    good = good and agrees(frame, length, link, whole, FIVE) and agrees(frame, length, link, whole, SIX)
    good = good and agrees(frame, length, link, whole, SEVEN) and agrees(frame, length, link, whole, EIGHT)
    return i64(0) if good else WANTED


@kernel(inline=True)
def ends(frame, bits, l3):
    """The four words of the addresses, read plainly."""
    ip, none = frame + l3, u64(0)
    if bits & b.IPV4:
        return none, u64(load_be32(ip + 12)), none, u64(load_be32(ip + 16))
    if bits & b.IPV6:
        return load_be64(ip + 8), load_be64(ip + 16), load_be64(ip + 24), load_be64(ip + 32)
    return none, none, none, none


@kernel(inline=True)
def last_word(frame, found):
    """The fifth word of a five-tuple, and its flags, read plainly."""
    bits, l4, protocol = found[0], found[6], found[9]
    version = i64(4) if bits & b.IPV4 else i64(6) if bits & b.IPV6 else i64(0)
    if version == 0:
        return u64(0), i64(0)
    ported = bits & (b.TCP | b.UDP | b.SCTP) != 0
    ports = u64(load_be32(frame + l4)) if ported else u64(0)
    flags = (PORTS if ported else 0) | (FRAGMENT if bits & (b.FIRST_FRAGMENT | b.LATER_FRAGMENT) else 0)
    return ports << u64(32) | u64(version << 8) | u64(protocol), i64(flags)


@kernel
def flows(e, low, high, length, link):
    """Whether the five-tuple and the hashes are what they should be."""
    one, two = five_tuple(high, length, link), five_tuple(low, length, link)
    if one != two or flow_hash(high, length, link) != flow_hash(low, length, link):
        return FLOW
    if rss(e.keys, high, length, link) != rss(e.keys, low, length, link):
        return FLOW
    found = find(high, length, link, b.EVERYTHING)
    addresses, last = ends(high, found[0], found[4]), last_word(high, found)
    if one[0] != addresses[0] or one[1] != addresses[1] or one[2] != addresses[2] or one[3] != addresses[3]:
        return TUPLE
    if one[4] != last[0] or one[5] != last[1]:
        return TUPLE
    back = (one[4] & u64(0xFFFFFFFF)) | (one[4] >> u64(48)) << u64(32) | (one[4] >> u64(32)) << u64(48)
    if hash_words(one[2], one[3], one[0], one[1], back, one[5], True) != symmetric_hash(high, length, link):
        return HASH
    return i64(0)


@kernel
def fill_in(e, frame, i, at, size):
    """Fill in the checksum of header ``i`` at an address, of ``size`` bytes with what it carries; False if not done."""
    kind = Layer(e.records + LAYER * i).kind
    if kind == IPV4:
        fill_ipv4(at, i64(load_u8(at) & 15))
    elif kind == ICMP:
        fill_icmp(at, size, i64(0))
    elif kind == SCTP:
        fill_sctp(at, size)
    elif i > 0 and Layer(e.records + LAYER * (i - 1)).kind == IPV4 and (kind == TCP or kind == UDP):
        ip = frame + i64(Layer(e.records + LAYER * (i - 1)).offset)
        if kind == TCP:
            fill_tcp(at, size, pseudo_ipv4(ip, i64(PROTO_TCP), size))
        else:
            told = i64(load_be16(at + 4))
            size = told if told else size
            fill_udp(at, size, pseudo_ipv4(ip, i64(PROTO_UDP), size))
    else:
        return False
    return True


@kernel
def checksums(e, n, low, high, length):
    """Whether the verdicts are sound.  Changes the checksums in the frame at ``low``."""
    for i in range(n):
        word = verdict(high, length, e.records, i)
        if word != verdict(low, length, e.records, i) or word < 0 or word > UNVERIFIABLE:
            return VERDICT
    for i in range(n):
        word = verdict(low, length, e.records, i)
        if word == GOOD or word == WRONG:
            offset = i64(Layer(e.records + LAYER * i).offset)
            size = (i64(Layer(e.records + LAYER * (i - 1)).end) if i else length) - offset
            if fill_in(e, low, i, low + offset, size) and verdict(low, length, e.records, i) != GOOD:
                return FILLED
    return i64(0)


@kernel
def headers(e, low, high, length, link):
    """Whether the full parse is sound; the negative number of records if it is."""
    n = dissect(high, length, link, e.records, i64(MAX_LAYERS))
    if dissect(low, length, link, e.others, i64(MAX_LAYERS)) != n or not equal(e.records, e.others, n * LAYER):
        return SAME
    broken = shape(e, n, length)
    if broken:
        return broken
    room = n // 2
    if dissect(high, length, link, e.others, room) != room or not equal(e.records, e.others, room * LAYER):
        return ROOM
    return -n


@kernel
def check_frame(e, low, high, length, link):
    """The number of the invariant that a frame breaks, or 0."""
    broken = headers(e, low, high, length, link)
    if broken > 0:
        return broken
    n = -broken
    broken = located(e, n, high, length, link)
    if broken == 0:
        broken = flows(e, low, high, length, link)
    return checksums(e, n, low, high, length) if broken == 0 else broken


@kernel
def check_at(bench, frame, length, link):
    """The number of the invariant that a frame breaks, or 0; it is copied to both edges first."""
    e = Bench(bench)
    low, high = e.low, e.high - length
    copy(low, frame, length)
    copy(high, frame, length)
    fill(low + length, length * 37 + 1, i64(SLACK))
    fill(high - SLACK, length * 91 + 5, i64(SLACK))
    return check_frame(e, low, high, length, link)


@kernel
def check(bench, batch, n):
    """Check ``n`` inputs; return how many are sound before the first that is not."""
    e = Bench(bench)
    for i in range(n):
        given = Input(batch + INPUT * i)
        store_i64(e.progress, given.number)
        e.violated = check_at(bench, given.bytes, i64(given.size), i64(given.link))
        if e.violated != 0:
            return i
    return n
