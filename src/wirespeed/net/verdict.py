"""Whether the checksums in a frame are right: of each IPv4 header and of what IP carries, inside tunnels too.

*Source:* as :mod:`wirespeed.net.checksum`; RFC 2784 (GRE), RFC 8754 (segment routing), RFC 5095 and RFC 6275 (other
routing headers, home addresses), RFC 6935 (zero UDP checksums of tunnels over IPv6).
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import ipv4_sum, l4_sum, ones_sum, pseudo_ipv4, pseudo_ipv6, sctp_right
from wirespeed.net.dissect import LAYER, dissect
from wirespeed.net.internet import find_option
from wirespeed.net.layer import (
    DSTOPTS,
    GRE,
    ICMP,
    ICMPV6,
    IPV4,
    IPV6,
    LAYER_CUT,
    LAYER_FIRST_FRAGMENT,
    MAX_LAYERS,
    NAMES,
    NONE,
    ROUTING,
    SCTP,
    TCP,
    UDP,
    Layer,
)
from wirespeed.net.protocol import PROTO_ICMPV6, PROTO_TCP, PROTO_UDP
from wirespeed.net.transport import tunnel

i64 = np.int64

NO_CHECKSUM = 0  # the layer has none
ABSENT = 1  # it could have one, and its sender gave none
GOOD = 2
WRONG = 3
UNVERIFIABLE = 4  # not all that it covers is in the frame
HOME_ADDRESS_OPTION = 0xC9  # RFC 6275, 6.3
VERDICTS = ("none", "absent", "good", "bad", "unverifiable")


@kernel(inline=True)
def _verdict(right):
    return i64(GOOD) if right else i64(WRONG)


@kernel(inline=True)
def _around(records, i):
    """The index of the IP header around layer ``i``, -1 where there is none, and the flags of the layers from it on."""
    flags = i64(0)
    for k in range(i - 1, -1, -1):
        layer = Layer(records + LAYER * k)
        flags |= layer.flags
        if layer.kind == IPV4 or layer.kind == IPV6:
            return k, flags
    return i64(-1), flags


@kernel(inline=True)
def _last_stop(at, size):
    """Where the routing header of ``size`` bytes at ``at`` holds the last destination; 0 if it does not say."""
    kind = load_u8(at + 2)
    if size < 24:
        return i64(0)
    if kind == 0 or kind == 2:  # the last of the addresses is the last to be visited
        return at + size - 16
    return at + 8 if kind == 4 else i64(0)  # segment routing has them in reverse


@kernel
def _addresses(frame, records, ip, i):
    """The addresses of source and destination that count for layer ``i`` in the IPv6 packet of layer ``ip``.

    That is the home address of a mobile node that has one, and the last destination; 0 where it cannot be told.
    """
    source = frame + i64(Layer(records + LAYER * ip).offset) + 8
    destination = source + 16
    for k in range(ip + 1, i):
        layer = Layer(records + LAYER * k)
        at, size = i64(layer.offset), i64(layer.length)
        if layer.kind == ROUTING and load_u8(frame + at + 3):  # segments are left
            destination = _last_stop(frame + at, size)
        elif layer.kind == DSTOPTS:
            place = find_option(frame, at + 2, at + size, i64(HOME_ADDRESS_OPTION), i64(16))
            source = frame + place if place else source
    return source, destination


@kernel(inline=True)
def _sum_right(frame, records, ip, i, protocol, size):
    """The verdict on a ones' complement sum with pseudo header over the ``size`` bytes of layer ``i``."""
    at = frame + i64(Layer(records + LAYER * i).offset)
    outer = Layer(records + LAYER * ip)
    header = frame + i64(outer.offset)
    if outer.kind == IPV4:
        return _verdict(l4_sum(at, size, pseudo_ipv4(header, protocol, size)) == 0xFFFF)
    source, destination = _addresses(frame, records, ip, i)
    if destination == 0:
        return i64(UNVERIFIABLE)
    return _verdict(l4_sum(at, size, pseudo_ipv6(source, destination, protocol, size)) == 0xFFFF)


@kernel(inline=True)
def _udp(frame, records, ip, i, size, flags):
    """The verdict on a UDP datagram with ``size`` bytes of IP behind it."""
    at = frame + i64(Layer(records + LAYER * i).offset)
    if load_be16(at + 6) == 0:
        # Over IPv6 only a tunnel may leave it out.
        may = Layer(records + LAYER * ip).kind == IPV4 or tunnel(i64(load_be16(at + 2))) != NONE
        return i64(ABSENT) if may else i64(WRONG)
    length = i64(load_be16(at + 4))
    if length > size or 0 < length < 8 or flags & LAYER_FIRST_FRAGMENT:
        return i64(UNVERIFIABLE)
    return _sum_right(frame, records, ip, i, i64(PROTO_UDP), length if length else size)


@kernel
def verdict(frame, length, records, i):
    """The verdict on the checksum of the layer of index ``i`` among those that ``dissect`` wrote to ``records``."""
    layer = Layer(records + LAYER * i)
    kind, at = layer.kind, frame + i64(layer.offset)
    size = (i64(Layer(records + LAYER * (i - 1)).end) if i else length) - i64(layer.offset)
    if not layer.whole:
        return i64(NO_CHECKSUM)
    if kind == IPV4:
        ihl = i64(load_u8(at) & 15)
        return _verdict(ipv4_sum(at, ihl) == 0xFFFF) if 4 * ihl <= size else i64(UNVERIFIABLE)
    if kind != TCP and kind != UDP and kind != ICMP and kind != ICMPV6 and kind != SCTP and kind != GRE:
        return i64(NO_CHECKSUM)
    ip, flags = _around(records, i)
    if ip < 0 or (kind == GRE and not load_u8(at) & 0x80):
        return i64(NO_CHECKSUM)
    if kind == UDP:
        return _udp(frame, records, ip, i, size, flags)
    if flags & (LAYER_CUT | LAYER_FIRST_FRAGMENT):
        return i64(UNVERIFIABLE)
    if kind == TCP:
        return _sum_right(frame, records, ip, i, i64(PROTO_TCP), size)
    if kind == ICMPV6:
        return _sum_right(frame, records, ip, i, i64(PROTO_ICMPV6), size)
    if kind == SCTP:
        return _verdict(sctp_right(at, size))
    return _verdict(ones_sum(at, size) == 0xFFFF)


def verdicts(frame: bytes, link: int = 1) -> list[tuple[str, str]]:
    """The verdict on each header of a frame that has a checksum: (name, good, bad, absent or unverifiable)."""
    data = np.frombuffer(frame, np.uint8) if frame else np.zeros(1, np.uint8)
    records = np.zeros(MAX_LAYERS, Layer.dtype)
    at, to = data.ctypes.data, records.ctypes.data
    n = dissect(at, len(frame), link, to, MAX_LAYERS)
    found = ((NAMES[records[i]["kind"]], VERDICTS[verdict(at, len(frame), to, i)]) for i in range(n))
    return [(name, word) for name, word in found if word != "none"]
