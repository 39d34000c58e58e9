"""The tags of packets: which of them belong together and must not be on two workers at once.

A packet's tag is its flow hash, or what a user's function says of it: that is run here, packet by packet, in its compiled
form, as a stage without outputs; what it says is read out of its state.
"""

import numpy as np

from wirespeed.core.packet import HASHED, Packet, data
from wirespeed.core.stage import FUNCTION_ERROR, Head, Outbox, drop
from wirespeed.engine.distribute.reasons import SAID_DROP, STOPPED
from wirespeed.engine.function.runtime import FunctionState, stopping
from wirespeed.jit.intrinsics import call_stage, load_handle, load_i64, store_i64, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.hashing import flow_hash

i64, u32 = np.int64, np.uint32
DROP = -1  # the verdict


@kernel
def flow_tags(handles, tags, n):
    """Write the flow hash of each packet to ``tags``, u4[n]."""
    for i in range(n):
        p = Packet(load_handle(handles + 8 * i))
        hashed = p.hash if p.flags & HASHED else flow_hash(data(p), i64(p.length), i64(p.link))
        store_u32(tags + 4 * i, hashed)


@kernel
def function_tags(code, own, state, handles, tags, n):
    """Ask the function at ``code``, whose state is ``own``, for each packet's tag; how many are not dropped.

    These move to the front of ``handles``.  ``state`` is that of the stage that drops.
    """
    f = FunctionState(own)
    f.head.stop, f.head.zeros, f.head.scratch = Head(state).stop, Head(state).zeros, Head(state).scratch
    kept = i64(0)
    for i in range(n):
        handle = load_i64(handles + 8 * i)
        verdict = i64(0)
        if call_stage(code, own, handles + 8 * i, i64(1)) == 0:
            Outbox(f.head.drops).length = 0  # it has no output to send the packet to, and it is not its to drop
            verdict = f.verdict
            if f.failed != 0 or verdict == DROP:
                reason = i64(STOPPED) if stopping(state) else i64(FUNCTION_ERROR)
                drop(state, handle, reason if f.failed != 0 else i64(SAID_DROP))
                continue
        store_i64(handles + 8 * kept, handle)
        store_u32(tags + 4 * kept, u32(verdict & 0xFFFFFFFF))
        kept += 1
    return kept
