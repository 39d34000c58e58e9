"""Mirrors: copies of what comes in or goes out by a port, to another port or into a VLAN.

Theory of operation
-------------------
A packet is mirrored with the headers that it has when a mirror first selects it, once to each destination: mirrors with
the same one are done together.  What a mirror sends may be what another one selects, which is done at once, before the
first one goes on; a stack of levels takes the place of recursion, no deeper than there are mirrors.

Source: ovs-vswitchd.conf.db(5), "Mirror Table"; tested against Open vSwitch.
"""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.core.stage import Head
from wirespeed.jit.intrinsics import load_be64, stack, trailing_zeros
from wirespeed.jit.kernel import kernel
from wirespeed.switch.execute.execution import MIRROR_LEVEL, MIRROR_LEVELS, Execution, MirrorLevel
from wirespeed.switch.execute.leave import NO_PACKET, duplicate, forget, give_copy, is_open, lose
from wirespeed.switch.execute.own import own
from wirespeed.switch.execute.reserved import is_reserved
from wirespeed.switch.execute.vlan import VID, VLAN, Vlan, carries, come_in, dress, has_vlan, look_at_tags
from wirespeed.switch.memory import (
    MIRROR,
    MIRROR_OUTPUT,
    MOST_MIRRORS,
    NO_PLACE,
    PORT,
    MirrorRecord,
    PortRecord,
    Shared,
)

i64, u64 = np.int64, np.uint64


@kernel
def _begin(state, e, depth, handle, place, bits):
    """Put a packet that came in or went out at a place on the stack; False when nothing of it is to be mirrored.

    The packet is then the stack's own.
    """
    level = MirrorLevel(e.mirror_levels + MIRROR_LEVEL * depth)
    shared = Shared(e.shared)
    v = Vlan(stack(VLAN))
    if not look_at_tags(handle, v) or not come_in(PortRecord(shared.ports + PORT * place), v):
        forget(state, e, handle)
        return False
    level.handle, level.bits, level.mirror, level.next = handle, bits, i64(-1), i64(-1)
    level.tags, level.tci, level.tpid, level.vlan, level.inner = v.tags, v.tci, v.tpid, v.vlan, v.inner
    return True


@kernel
def _same_destination(mirrors, number):
    """The bits of all mirrors that send where one does."""
    m, bits = MirrorRecord(mirrors + MIRROR * number), u64(0)
    for i in range(MOST_MIRRORS):
        other = MirrorRecord(mirrors + MIRROR * i)
        if other.present != 0 and other.output == m.output and (m.output != NO_PLACE or other.out_vlan == m.out_vlan):
            bits |= u64(1) << u64(i)
    return bits | u64(1) << u64(number)


@kernel
def _choose(e, level):
    """The next mirror of a level, noted as done with all that send where it does; -1 when there is none."""
    mirrors = Shared(e.shared).mirrors
    while level.bits & ~e.mirrored:
        number = i64(trailing_zeros(level.bits & ~e.mirrored))
        level.bits &= ~(u64(1) << u64(number))
        m = MirrorRecord(mirrors + MIRROR * number)
        if m.present != 0 and has_vlan(m.vlans, level.vlan & VID):
            e.mirrored |= _same_destination(mirrors, number)
            return number
    return i64(-1)


@kernel
def _send(state, execution, level, place, vlan, snap):
    """Send a copy of a level's packet to a port, in a VLAN; what was sent, or 0 when nobody is to mirror that again."""
    e = Execution(execution)
    port = PortRecord(Shared(e.shared).ports + PORT * place)
    if not is_open(port):
        return i64(0)
    new = duplicate(state, e, level.handle, i64(Packet(level.handle).total))
    if new == 0:
        return i64(0)
    v = Vlan(stack(VLAN))
    v.tags, v.tci, v.tpid, v.vlan, v.inner = level.tags, level.tci, level.tpid, vlan, level.inner
    dressed = dress(Head(state).cache, new, port, v)
    if dressed == 0:
        forget(state, e, new)
        lose(state, e, i64(NO_PACKET))
        return i64(0)
    give_copy(state, execution, dressed, place, snap)
    if port.mirrors_out & ~e.mirrored:
        return dressed
    forget(state, e, dressed)
    return i64(0)


@kernel
def _next_port(e, level, vlan):
    """The place of the next port that carries a VLAN and is no mirror's own, or -1."""
    shared, v = Shared(e.shared), Vlan(stack(VLAN))
    v.vlan, v.inner = vlan, level.inner
    for place in range(level.next, shared.n_ports):
        port = PortRecord(shared.ports + PORT * place)
        if port.present != 0 and not port.flags & MIRROR_OUTPUT and carries(port, v):
            level.next = place + 1
            return i64(place)
    level.next = i64(-1)
    return i64(-1)


@kernel
def _step(state, execution, level):
    """Do one output of a level; (whether it was not the last, the packet that was sent when it may be mirrored, where)."""
    e = Execution(execution)
    mirrors = Shared(e.shared).mirrors
    if level.next < 0:
        number = _choose(e, level)
        if number < 0:
            return False, i64(0), i64(0)
        m = MirrorRecord(mirrors + MIRROR * number)
        place = i64(m.output)
        if place != NO_PLACE:
            return True, _send(state, execution, level, place, level.vlan, i64(m.snap)), place
        dst = load_be64(data(Packet(level.handle))) >> u64(16)  # Bounds: an Ethernet header is there.
        if level.vlan & VID != i64(m.out_vlan) and not is_reserved(dst):
            level.mirror, level.next = number, i64(0)
        return True, i64(0), i64(0)
    m = MirrorRecord(mirrors + MIRROR * level.mirror)
    vlan = level.vlan & ~VID | i64(m.out_vlan)
    place = _next_port(e, level, vlan)
    if place < 0:
        return True, i64(0), i64(0)
    return True, _send(state, execution, level, place, vlan, i64(m.snap)), place


@kernel
def mirror(state, execution, handle, place, bits):
    """Mirror a packet as it is, which came in or went out by the port at a place, by those of the mirrors ``bits``."""
    e = Execution(execution)
    if bits & ~e.mirrored != u64(0):
        copied = duplicate(state, e, handle, i64(Packet(handle).total))
        if copied != 0:
            mirror_copy(state, execution, copied, place, bits)


@kernel
def mirror_copy(state, execution, copied, place, bits):
    """Mirror a copy of a packet, which is used up."""
    e = Execution(execution)
    bits &= ~e.mirrored
    mine = own(Head(state).cache, copied)
    if mine == 0:
        forget(state, e, copied)
        lose(state, e, i64(NO_PACKET))
        return
    depth = i64(0)
    if not _begin(state, e, depth, mine, place, bits):
        return
    while depth >= 0:
        level = MirrorLevel(e.mirror_levels + MIRROR_LEVEL * depth)
        more, sent, where = _step(state, execution, level)
        if not more:
            forget(state, e, level.handle)
            depth -= 1
        elif sent != 0:
            again = PortRecord(Shared(e.shared).ports + PORT * where).mirrors_out & ~e.mirrored
            # Bounds: each level has done a mirror before the next one begins, so there are no more than mirrors.
            if depth + 1 >= MIRROR_LEVELS:
                forget(state, e, sent)
            elif _begin(state, e, depth + 1, sent, where, again):
                depth += 1
