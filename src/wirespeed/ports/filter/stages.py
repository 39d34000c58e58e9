"""The stages around a port's own: what a source gave is sieved, and what a sink is to take.

Theory of operation
-------------------
Both share the state of the port's stage, whose head has the address of the filter's record, and call that stage by its
address.  A source is asked again while less than half of the room is filled and it gave all that it was asked for, so
that a filter that lets little through makes no small bursts; a call ends after some rounds all the same, for others
wait for the worker.  When all was dropped the worker is told that the source has been at work and is to be asked again
at once (by ``due_ns``, which is put back at the next call), or it would fall asleep.
"""

import numpy as np

from wirespeed.core.packet import Packet
from wirespeed.core.stage import FUNCTION_ERROR, WORKED, Head, count_drops, drop
from wirespeed.jit.intrinsics import call_stage, load_handle, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.ports.filter.record import Record, judge

i64, u64 = np.int64, np.uint64
ROUNDS = 16  # bursts that a source is asked for in one call, while nothing matches


@kernel
def sieve(state, record, burst, n):
    """Move the packets that match to the front of a burst, drop the others; return (how many match, bytes dropped)."""
    reason = Record(record).reason
    kept, bytes_dropped = i64(0), i64(0)
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        against = judge(record, handle)
        if against == 0:
            store_i64(burst + 8 * kept, handle)
            kept += 1
        else:
            bytes_dropped += i64(Packet(handle).total)
            drop(state, handle, reason + against - 1)
    return kept, bytes_dropped


@stage
def receive(state, burst, n):
    """Give what the port's own stage gives and the filter matches."""
    h = Head(state)
    r = Record(h.filter)
    if h.due_ns == WORKED:
        h.due_ns = r.due_ns
    kept, got = i64(0), i64(0)
    for _ in range(ROUNDS):
        room = n - kept
        got = call_stage(r.inner, state, burst + 8 * kept, room)
        if got <= 0:
            break
        passed, lost = sieve(state, h.filter, burst + 8 * kept, got)
        h.bytes -= u64(lost)
        kept += passed
        if got < room or 2 * kept >= n:
            break
    if kept == 0:
        if got < 0:
            return got
        if got > 0 and h.done == 0:
            r.due_ns = h.due_ns
            h.due_ns = WORKED
    return kept


@stage
def transmit(state, burst, n):
    """Offer the port's own stage what the filter matches; what it refuses is at the front of the burst."""
    h = Head(state)
    kept, _ = sieve(state, h.filter, burst, n)
    if kept == 0 and n > 0:
        return i64(0)
    left = call_stage(Record(h.filter).inner, state, burst, kept)
    if left < 0:  # it raised, and what it had is lost; the worker would count what was dropped here as well
        count_drops(state, FUNCTION_ERROR, kept)
        left = i64(0)
    return left
