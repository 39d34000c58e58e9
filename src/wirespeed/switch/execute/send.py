"""Sending to a port, with the mirrors that select what goes out there."""

import numpy as np

from wirespeed.core.packet import Packet
from wirespeed.core.stage import drop
from wirespeed.jit.kernel import kernel
from wirespeed.switch.execute.execution import Execution
from wirespeed.switch.execute.leave import duplicate, forget, give, give_copy, is_open
from wirespeed.switch.execute.mirror import mirror, mirror_copy
from wirespeed.switch.execute.reasons import NUMBERS
from wirespeed.switch.memory import PORT, PortRecord, Shared

i64, u64 = np.int64, np.uint64
PORT_CLOSED = NUMBERS["port_down"]


@kernel
def _send_mirrored(state, execution, handle, place, most, last):
    """Send a packet, or a copy, then mirror what went out.  The packet itself goes out whether or not it is mirrored.

    To a port that is closed nothing goes, but mirrors see what would have.
    """
    e = Execution(execution)
    port = PortRecord(Shared(e.shared).ports + PORT * place)
    bits = port.mirrors_out
    if not is_open(port):
        mirror(state, execution, handle, place, bits)
        if last:
            drop(state, handle, i64(PORT_CLOSED))
        return
    if not last or most > 0:
        give_copy(state, execution, handle, place, most)
        mirror(state, execution, handle, place, bits)
        if last:
            forget(state, e, handle)
        return
    copied = duplicate(state, e, handle, i64(Packet(handle).total))
    give(state, e, handle, place)
    if copied != 0:
        mirror_copy(state, execution, copied, place, bits)


@kernel(inline=True)
def send(state, execution, handle, place, most, last):
    """Send a packet to the port at a place, of ``most`` bytes unless that is 0.  With ``last``, it is gone then."""
    e = Execution(execution)
    cut = most > 0 and most < i64(Packet(handle).total)
    port = PortRecord(Shared(e.shared).ports + PORT * place)
    if port.mirrors_out & ~e.mirrored != u64(0) or (port.mirrors_out != u64(0) and not is_open(port)):
        _send_mirrored(state, execution, handle, place, most if cut else i64(0), last)
    elif last and not cut:
        give(state, e, handle, place)
    else:
        give_copy(state, execution, handle, place, most)
        if last:
            forget(state, e, handle)
