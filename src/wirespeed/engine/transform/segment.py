"""``ws.segment()``: super-frames become frames, and checksums that were left to be done are computed."""

from wirespeed.core.number import whole
from wirespeed.engine.transform.cutting import NO_LIMIT, CuttingElement, cut_packets
from wirespeed.jit.kernel import stage

LEAST_MTU = 68  # that IPv4 must be able to use: RFC 791, 3.2


@stage
def segment_packets(state, burst, n):
    """Make frames."""
    return cut_packets(state, burst, n, False)


class Segment(CuttingElement):
    """Made by :func:`segment`."""

    stage = segment_packets


def segment(mtu: int | None = None) -> Segment:
    """A stage behind which every packet is one frame with all its checksums.

    With ``mtu``, frames that carry more bytes than that behind their Ethernet header and tags are dropped as
    ``too_long``, and so are super-frames whose frames would.
    """
    return Segment("segment", NO_LIMIT if mtu is None else whole(mtu, "segment: mtu", LEAST_MTU))
