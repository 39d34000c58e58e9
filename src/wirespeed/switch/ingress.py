"""What stands before the switch on each port: packets are told by which port they came in.

It writes the port's place into each packet and counts; of a port that is not to receive, or is a mirror's output, it drops them.
"""

import numpy as np

from wirespeed.core.packet import Packet
from wirespeed.core.stage import FIRST_REASON, Head, drop
from wirespeed.jit.intrinsics import load_i64
from wirespeed.jit.kernel import stage
from wirespeed.jit.layout import layout
from wirespeed.switch.memory import MIRROR_OUTPUT, PORT_DOWN, PORT_NO_RECEIVE, PortRecord

i64, u16, u64 = np.int64, np.uint16, np.uint64
DROPS = {"port_down": "The port is set down, not to receive, or reserved for a mirror"}

IngressState = layout(
    "SwitchIngress",
    [
        ("head", Head),
        ("port", "i8"),  # address of its PortRecord
        ("place", "i8"),
        # written by the worker
        ("packets", "u8"),
        ("bytes", "u8"),
        (None, 32),
    ],
)


@stage
def arrive(state, burst, n):
    """Note the port that a burst came in by."""
    s = IngressState(state)
    if PortRecord(s.port).flags & (PORT_DOWN | PORT_NO_RECEIVE | MIRROR_OUTPUT):
        for i in range(n):
            drop(state, load_i64(burst + 8 * i), i64(FIRST_REASON))
        return i64(0)
    place, size = u16(s.place), u64(0)
    for i in range(n):
        p = Packet(load_i64(burst + 8 * i))
        p.port = place
        size += u64(p.total)
    s.packets += u64(n)
    s.bytes += size
    return n
