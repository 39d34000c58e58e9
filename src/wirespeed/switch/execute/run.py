"""Doing ops, one after the other, on a packet's own bytes.

Theory of operation
-------------------
The ops of a path are a list with lists in it: those of a CLONE are done with a copy, which is given up at their end if
they have not sent it.  The last op of a list that sends the packet sends itself, those before it copies; a CLONE that
is the last op of its list needs no copy either.  A packet is made writable (:mod:`wirespeed.switch.execute.own`) before
the first op that changes it; a copy is writable from the start.

The books: each packet that comes in, and each that is made, is sent or dropped with a reason.

Thread rules: one worker; the control path reads ``made`` and drains the ring of events.
"""

import numpy as np

from wirespeed.core.packet import Packet
from wirespeed.core.stage import FIRST_REASON, Head, drop
from wirespeed.jit.intrinsics import load_u64
from wirespeed.jit.kernel import kernel
from wirespeed.switch import ops as op
from wirespeed.switch.execute.edit import edit
from wirespeed.switch.execute.events import tell
from wirespeed.switch.execute.execution import LEVEL, LEVELS, SIZE, Execution, Level, know_time, make
from wirespeed.switch.execute.leave import duplicate, forget, lose
from wirespeed.switch.execute.mirror import mirror
from wirespeed.switch.execute.normal import normal
from wirespeed.switch.execute.own import own
from wirespeed.switch.execute.reasons import DROPS, NUMBERS
from wirespeed.switch.execute.send import send
from wirespeed.switch.execute.tags import decrement_label_ttl, pop_label, pop_tag, push_label, push_tag
from wirespeed.switch.execute.ttl import decrement_ttl
from wirespeed.switch.memory import NO_PLACE, PORT, PortRecord, Shared
from wirespeed.switch.path import Path
from wirespeed.tables.meter import meter_one

__all__ = ["DROPS", "SIZE", "Execution", "execute", "make"]

i64, u64 = np.int64, np.uint64
NO_ACTION, NO_PACKET, METERED, CONTROLLER_ONLY, CONTROLLER_FULL, TOO_DEEP = (
    NUMBERS[name] for name in ("no_action", "no_packet", "meter", "controller_only", "controller_full", "too_deep")
)
NO_RULE = 1


@kernel
def _change(state, handle, code, argument, at):
    """An op that changes the packet; it, or a copy in its place, or 0 when there was none, and it is dropped."""
    cache = Head(state).cache
    mine = own(cache, handle)
    if mine == 0:
        drop(state, handle, i64(NO_PACKET))
        return mine
    handle = mine
    if code == op.EDIT:
        edit(handle, argument, load_u64(at), load_u64(at + 8))
    elif code == op.DEC_TTL:
        decrement_ttl(handle)
    elif code == op.PUSH_VLAN:
        handle = push_tag(cache, handle, argument, load_u64(at))
    elif code == op.POP_VLAN:
        pop_tag(handle)
    elif code == op.PUSH_MPLS:
        handle = push_label(cache, handle, argument, load_u64(at))
    elif code == op.POP_MPLS:
        pop_label(handle, argument)
    else:
        decrement_label_ttl(handle)
    if handle == 0:
        drop(state, mine, i64(NO_PACKET))
    return handle


@kernel
def _tell(state, execution, handle, most, at):
    """Tell the controller about a packet."""
    e = Execution(execution)
    place = min(i64(Packet(handle).port), i64(NO_PLACE))
    number = i64(PortRecord(Shared(e.shared).ports + PORT * place).number)
    if not tell(e.events, handle, most | number << 32, load_u64(at), load_u64(at + 8), load_u64(at + 16)):
        lose(state, e, i64(CONTROLLER_FULL))


@kernel
def _passes(state, execution, handle, place):
    """Whether a meter lets a packet pass; one that it does not is dropped."""
    e = Execution(execution)
    know_time(state, e)
    if meter_one(Shared(e.shared).meters, place, i64(Packet(handle).total), e.now_ns):
        return True
    drop(state, handle, i64(METERED))
    return False


@kernel
def _mirror_in(state, execution, handle, ops):
    """Mirror a packet as it came in, unless its translation failed, which ends all that concerns it."""
    e = Execution(execution)
    head = load_u64(ops)
    if i64(head & u64(0xFFFF)) == op.DROP and i64(head >> u64(32)) > NO_RULE:
        return
    place = min(i64(Packet(handle).port), i64(NO_PLACE))
    mirror(state, execution, handle, place, PortRecord(Shared(e.shared).ports + PORT * place).mirrors_in)


@kernel
def _finish(state, e, handle, sent, told):
    """The end of what is done with a packet that is still here."""
    if sent:
        forget(state, e, handle)
    else:
        drop(state, handle, i64(CONTROLLER_ONLY) if told else i64(NO_ACTION))


@kernel
def execute(state, execution, handle, path):
    """Take over a packet and do the ops of its path."""
    e = Execution(execution)
    shared = Shared(e.shared)
    e.mirrored = u64(0)
    at = Path(path).ops
    end = at + 8 * (i64(Path(path).n_ops) - 1)  # END is the last word
    if PortRecord(shared.ports + PORT * min(i64(Packet(handle).port), i64(NO_PLACE))).mirrors_in != u64(0):
        _mirror_in(state, execution, handle, at)
    depth, sent, told = i64(0), False, False
    while True:
        if handle == 0 or at >= end:
            # The end of a list: the packet of the one around it goes on.
            if depth == 0:
                break
            if handle != 0:
                forget(state, e, handle)
            depth -= 1
            level = Level(e.levels + LEVEL * depth)
            at, end, handle = end, level.end, level.handle
            continue
        head = load_u64(at)
        code, argument = i64(head & u64(0xFFFF)), i64(head >> u64(32))
        words = max(i64(head >> u64(16) & u64(0xFFFF)), i64(1))
        following = at + 8 * words
        last = following >= end
        if code == op.OUT:
            send(state, execution, handle, argument, i64(load_u64(at + 8)), last)
            sent, handle = True, i64(0) if last else handle
        elif code == op.NORMAL:
            one = handle if last else duplicate(state, e, handle, i64(Packet(handle).total))
            if one != 0:
                normal(state, execution, one, argument)
            sent, handle = True, i64(0) if last else handle
        elif code == op.CLONE:
            following = at + 8
            if not last:
                sent = True
                # Bounds: a translation saves fewer flows than there are levels.
                one = duplicate(state, e, handle, i64(Packet(handle).total)) if depth < LEVELS else i64(0)
                following = at + 8 if one != 0 else at + 8 * words
                if one != 0:
                    level = Level(e.levels + LEVEL * depth)
                    level.end, level.handle = end, handle
                    handle, end = one, at + 8 * words
                    depth += 1
        elif code == op.METER:
            if not _passes(state, execution, handle, argument):
                handle = i64(0)
        elif code == op.CONTROLLER:
            _tell(state, execution, handle, argument, at + 8)
            told = True
        elif code == op.DROP:
            drop(state, handle, FIRST_REASON + argument)
            handle = i64(0)
        else:
            handle = _change(state, handle, code, argument, at + 8)
        at = following
    if handle != 0:
        _finish(state, e, handle, sent, told)
