"""Community ID, the name of a flow that monitoring tools agree on (version 1).

On the control path only: it takes a SHA-1 a flow.  *Source:* https://github.com/corelight/community-id-spec.
"""

import base64
import hashlib
import ipaddress

import numpy as np

from wirespeed.net.address import ipv4_text, ipv6_text
from wirespeed.net.dissect import layers
from wirespeed.net.flow import FRAGMENT, PORTS, Flow, five_tuple
from wirespeed.net.protocol import PROTO_ICMP, PROTO_ICMPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP

# The type that answers each type; messages of all others go one way.
_ICMP_ANSWERS = {8: 0, 0: 8, 13: 14, 14: 13, 15: 16, 16: 15, 10: 9, 9: 10, 17: 18, 18: 17}
_ICMPV6_ANSWERS = {128: 129, 129: 128, 133: 134, 134: 133, 135: 136, 136: 135, 130: 131, 131: 130, 144: 145, 145: 144,
                   139: 140, 140: 139}  # fmt: skip
_ANSWERS = {PROTO_ICMP: _ICMP_ANSWERS, PROTO_ICMPV6: _ICMPV6_ANSWERS}


def community_id(
    source: str, destination: str, protocol: int, sport: int | None = None, dport: int | None = None, seed: int = 0
) -> str:
    """The Community ID of a flow, such as ``1:wCb3OG7yAFWelaUydu0D+125CLM=``.

    For ICMP and ICMPv6 ``sport`` and ``dport`` are type and code; for protocols without ports leave them out.
    """
    ends = (_packed(source), sport), (_packed(destination), dport)
    if sport is None or dport is None:
        first, last = sorted(ends, key=lambda end: end[0])
        return _identifier(seed, first[0] + last[0] + bytes([protocol, 0]))
    if protocol in _ANSWERS:
        answer = _ANSWERS[protocol].get(sport)
        ends = ends if answer is None else (ends[0], (ends[1][0], answer))
        one_way = answer is None
    else:
        one_way = protocol not in (PROTO_TCP, PROTO_UDP, PROTO_SCTP)
    (a, left), (b, right) = ends if one_way else sorted(ends)
    ports = int(left or 0).to_bytes(2, "big") + int(right or 0).to_bytes(2, "big")
    return _identifier(seed, a + b + bytes([protocol, 0]) + ports)


def frame_community_id(frame: bytes, link: int = 1, seed: int = 0) -> str | None:
    """The Community ID of a frame's outer flow; None where there is no IP.  Fragments have the one without ports."""
    data = np.frombuffer(frame or b"\0", np.uint8)
    *words, flags = five_tuple(data.ctypes.data, len(frame), link)
    flow = Flow(np.array(words, np.uint64).tobytes())
    if flow.version == 0:
        return None
    ends = _text(flow.version, flow.src_hi, flow.src_lo), _text(flow.version, flow.dst_hi, flow.dst_lo)
    found = [header for header in layers(frame, link) if header.whole and header.name in ("icmp", "icmpv6")]
    if flow.proto in _ANSWERS and found and not flags & FRAGMENT:
        at = found[0].offset
        return community_id(*ends, flow.proto, frame[at], frame[at + 1], seed)
    if flags & PORTS and not flags & FRAGMENT:
        return community_id(*ends, flow.proto, flow.sport, flow.dport, seed)
    return community_id(*ends, flow.proto, seed=seed)


def _text(version: int, high: int, low: int) -> str:
    return ipv4_text(low) if version == 4 else ipv6_text(high, low)


def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def _identifier(seed: int, data: bytes) -> str:
    digest = hashlib.sha1(seed.to_bytes(2, "big") + data, usedforsecurity=False).digest()
    return "1:" + base64.b64encode(digest).decode()
