"""Where a packet is sent: ports and the reserved ones among them."""

import numpy as np

from wirespeed.jit.intrinsics import load_u8, load_u64
from wirespeed.jit.kernel import kernel
from wirespeed.switch import ops as op
from wirespeed.switch.fields import (
    ALL,
    CONTROLLER,
    FLOOD,
    IN_PORT,
    LOCAL,
    NORMAL,
    W_METADATA,
    W_PORT,
)
from wirespeed.switch.memory import (
    LINK_DOWN,
    NO_PLACE,
    PORT,
    PORT_DOWN,
    PORT_NO_FLOOD,
    PORT_NO_FORWARD,
    PortRecord,
    Shared,
)
from wirespeed.switch.translate.edit import commit
from wirespeed.switch.translate.translation import put, seen

i64, u32, u64 = np.int64, np.uint32, np.uint64
WHOLE = 0xFFFF  # bytes for a controller, where nobody says how many


@kernel(inline=True)
def in_port(t):
    """The number of the port that the flow came in by."""
    return i64(load_u64(t.flow + 8 * W_PORT) & u64(0xFFFFFFFF))


@kernel(inline=True)
def place_of(shared, number):
    """The place of a port by its number; NO_PLACE when there is none."""
    if number < 0x10000:
        return i64(load_u8(shared.port_places + number))
    return shared.local if number == LOCAL else i64(NO_PLACE)


@kernel
def send(t, place, most):
    """Send the packet as it is now to the port at a place, if it forwards."""
    port = PortRecord(Shared(t.shared).ports + PORT * place)
    if place == NO_PLACE or port.present == 0 or port.flags & PORT_NO_FORWARD:
        return
    if port.flags & (PORT_DOWN | LINK_DOWN) and port.mirrors_out == 0:
        return  # mirrors see what would have gone there
    commit(t)
    if port.mirrors_out != 0:
        t.mirrored = 1
    put(t, op.OUT | 2 << 16 | place << 32)
    put(t, most)
    seen(t)


@kernel
def _flood(t, all_ports):
    shared = Shared(t.shared)
    source = in_port(t)
    for place in range(shared.n_ports):
        port = PortRecord(shared.ports + PORT * place)
        if port.present != 0 and i64(port.number) != source and (all_ports or not port.flags & PORT_NO_FLOOD):
            send(t, place, i64(0))


@kernel
def tell(t, most, reason, extra, cookie):
    """Send a copy of the packet as it is now to the controller."""
    commit(t)
    put(t, op.CONTROLLER | 4 << 16 | most << 32)
    put(t, u64(reason) | u64(t.table) << u64(8) | u64(extra) << u64(32))
    put(t, cookie)
    put(t, load_u64(t.flow + 8 * W_METADATA))
    seen(t)


@kernel
def output(t, number, most, reason, cookie):
    """Send to a port by its number, a reserved one included (but for TABLE, which is a look-up).

    A packet is not sent back by the port that it came in by, unless that is what IN_PORT asks for.
    """
    if number == IN_PORT:
        send(t, place_of(Shared(t.shared), in_port(t)), most)
    elif number == NORMAL:
        commit(t)
        put(t, op.NORMAL | 1 << 16 | place_of(Shared(t.shared), in_port(t)) << 32)
        seen(t)
    elif number == FLOOD:
        _flood(t, False)
    elif number == ALL:
        _flood(t, True)
    elif number == CONTROLLER:
        tell(t, i64(WHOLE), reason, i64(0), cookie)
    elif number != in_port(t):
        send(t, place_of(Shared(t.shared), number), most)
