"""How long a stage waits for one packet to go on, when it may be that it never can.

Theory of operation
-------------------
What stands before a packet that does not go on now (a full queue, a pool whose packets are elsewhere) mostly goes away
by itself, so the packet is tried again; all that is behind it waits.  But nobody says when it does not go away: an
interface may refuse a packet each time, and another port may keep the pool's packets for good.  So waiting for one
packet is bounded: after PATIENCE_NS without one that went on it is dropped, and for ten times as long there is no
patience with others, so that at most a tenth of the time is waited in vain.

The bound is a time and not a number of tries, for a try comes after 100 ns while the worker spins and after a millisecond
while it sleeps; what is waited for takes the time that it takes.

Thread rule: a record belongs to one worker.
"""

import numpy as np

from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns

i64 = np.int64
PATIENCE_NS = 1_000_000

Patience = layout(
    "PacketPatience",
    [
        ("since", "i8"),  # when the packet that waits was tried first, or 0: the stage sets it so when one went on
        ("lost_until", "i8"),
    ],
)


@kernel
def is_patient(patience):
    """Whether to try again the packet that does not go on now; else it is to be dropped."""
    p = Patience(patience)
    now = monotonic_ns()
    if now < p.lost_until:
        return False
    if p.since == 0:
        p.since = now
    if now - p.since < PATIENCE_NS:
        return True
    p.since = 0
    p.lost_until = now + 10 * PATIENCE_NS
    return False
