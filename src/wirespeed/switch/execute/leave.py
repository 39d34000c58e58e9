"""How packets leave the executor: to an output, cut or whole, as a copy or themselves; and how they are counted.

The books: ``made`` counts each copy, and takes back each packet that goes without having been sent or dropped.
"""

import numpy as np

from wirespeed.core.clone import copy_packet
from wirespeed.core.free import free_segments
from wirespeed.core.packet import Packet
from wirespeed.core.stage import Head, count_drops, drop, emit
from wirespeed.jit.kernel import kernel
from wirespeed.switch.execute.execution import Execution
from wirespeed.switch.execute.reasons import NUMBERS
from wirespeed.switch.memory import LINK_DOWN, PORT, PORT_DOWN, PORT_NO_FORWARD, PortRecord, Shared

i64 = np.int64
NO_PACKET, NO_TRANSMIT = NUMBERS["no_packet"], NUMBERS["no_transmit"]
CLOSED = PORT_DOWN | PORT_NO_FORWARD | LINK_DOWN


@kernel(inline=True)
def is_open(port):
    """Whether packets may be sent to a port."""
    return port.present != 0 and port.flags & CLOSED == 0


@kernel(inline=True)
def forget(state, e, handle):
    """Free a packet that was sent as a copy, or is one that nobody is to have."""
    e.made -= 1
    free_segments(Head(state).cache, handle)


@kernel(inline=True)
def lose(state, e, reason):
    """Count a copy that could not be made or sent."""
    e.made += 1
    count_drops(state, reason, i64(1))


@kernel
def duplicate(state, e, handle, most):
    """A copy of up to ``most`` bytes of a packet; 0, and one lost, when there was none."""
    new = copy_packet(Head(state).cache, handle, i64(0), most)
    if new != 0:
        e.made += 1
    else:
        lose(state, e, i64(NO_PACKET))
    return new


@kernel(inline=True)
def give(state, e, handle, place):
    """Send a packet itself to the port at a place."""
    output = i64(PortRecord(Shared(e.shared).ports + PORT * place).output)
    if output > 0:
        emit(state, output, handle)
    else:
        drop(state, handle, i64(NO_TRANSMIT))


@kernel
def give_copy(state, execution, handle, place, most):
    """Send a copy of a packet to the port at a place, of ``most`` bytes unless that is 0."""
    e = Execution(execution)
    total = i64(Packet(handle).total)
    new = duplicate(state, e, handle, min(most, total) if most > 0 else total)
    if new != 0:
        give(state, e, new, place)
