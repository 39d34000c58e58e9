"""``ws.fragment(mtu)``: what is longer than a link carries becomes IP fragments; super-frames become frames first."""

from wirespeed.core.number import whole
from wirespeed.engine.transform.cutting import CuttingElement, cut_packets
from wirespeed.engine.transform.segment import LEAST_MTU
from wirespeed.jit.kernel import stage


@stage
def fragment_packets(state, burst, n):
    """Make frames, and fragments of those that are too long."""
    return cut_packets(state, burst, n, True)


class Fragment(CuttingElement):
    """Made by :func:`fragment`."""

    stage = fragment_packets


def fragment(mtu: int) -> Fragment:
    """A stage behind which no IP datagram is longer than ``mtu`` bytes, its header included, and super-frames are cut.

    IPv4 datagrams that must not be fragmented are dropped as ``needs_fragment``; IPv6 ones are fragmented as their
    source would.  What is not IP passes when it has at most ``mtu`` bytes behind its Ethernet header.
    """
    return Fragment("fragment", whole(mtu, "fragment: mtu", LEAST_MTU))
