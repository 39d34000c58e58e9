"""NORMAL: what a learning switch with VLANs does.

Theory of operation
-------------------
The source is learned in the packet's VLAN, the destination looked up there: one known port, or all that carry the VLAN.
Nearly all packets come in by a trunk, or by an access port, and leave by one of the same kind with the tags that they
have: for these nothing is copied or written.  All else is out of line.

Source: Open vSwitch's manual, ovs-actions(7), "normal", and ovs-vswitchd.conf.db(5); tested against it.
"""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.core.stage import Head, drop
from wirespeed.jit.intrinsics import load_be16, load_be32, load_be64, stack
from wirespeed.jit.kernel import kernel
from wirespeed.switch.execute.execution import Execution, know_time
from wirespeed.switch.execute.headers import network
from wirespeed.switch.execute.leave import NO_PACKET, duplicate, give, is_open
from wirespeed.switch.execute.own import own
from wirespeed.switch.execute.reasons import NUMBERS
from wirespeed.switch.execute.reserved import is_reserved
from wirespeed.switch.execute.send import send
from wirespeed.switch.execute.vlan import TCI, VID, VLAN, Vlan, carries, come_in, dress, fits, look_at_tags
from wirespeed.switch.extract import is_tag
from wirespeed.switch.fields import ARP
from wirespeed.switch.memory import (
    ACCESS,
    MIRROR_OUTPUT,
    NO_PLACE,
    PORT,
    PORT_NO_FLOOD,
    PORT_NO_FORWARD,
    TRUNK,
    PortRecord,
    Shared,
)
from wirespeed.tables.learning import GRATUITOUS, GROUP, ORDINARY, find, learn

i64, u64 = np.int64, np.uint64
MALFORMED, WRONG_VLAN, MIRROR_PORT, RESERVED, OWN_PORT, NO_DESTINATION, PORT_CLOSED = (
    NUMBERS[name]
    for name in ("malformed", "vlan", "mirror_port", "reserved", "own_port", "no_destination", "port_down")
)
_BROADCAST = u64(0xFFFFFFFFFFFF)
_REQUEST, _REPLY = 1, 2


@kernel
def _kind_of(frame, length):
    """Of a broadcast packet, what it is for who learns: a gratuitous ARP or not."""
    kind, at = network(frame, length)
    if kind != ARP or length - at < 28 or load_be64(frame + at) >> u64(16) != u64(0x000108000604):
        return i64(ORDINARY)
    operation = load_be16(frame + at + 6)
    told = operation == _REPLY or (operation == _REQUEST and load_be32(frame + at + 14) == load_be32(frame + at + 24))
    return i64(GRATUITOUS) if told else i64(ORDINARY)


@kernel(inline=True)
def _is_seen(port):
    """Whether what is for a port goes there, or is at least seen by its mirrors."""
    return is_open(port) or (port.present != 0 and port.flags & PORT_NO_FORWARD == 0 and port.mirrors_out != u64(0))


@kernel
def _to_one(state, execution, handle, place, v):
    """Send a packet itself to a port, with the tags that this one wants."""
    e = Execution(execution)
    port = PortRecord(Shared(e.shared).ports + PORT * place)
    if not _is_seen(port):
        drop(state, handle, i64(PORT_CLOSED))
        return
    if not fits(port, v):
        cache = Head(state).cache
        mine = own(cache, handle)
        dressed = dress(cache, mine, port, v) if mine != 0 else i64(0)
        if dressed == 0:
            drop(state, mine if mine != 0 else handle, i64(NO_PACKET))
            return
        handle = dressed
    send(state, execution, handle, place, i64(0), True)


@kernel
def _flood(state, execution, handle, source, v):
    """Send a packet to all ports that carry its VLAN but the one that it came in by; the last one gets itself."""
    e = Execution(execution)
    shared, before = Shared(e.shared), i64(-1)
    for place in range(shared.n_ports):
        port = PortRecord(shared.ports + PORT * place)
        if (
            place == source
            or not _is_seen(port)
            or port.flags & (PORT_NO_FLOOD | MIRROR_OUTPUT)
            or not carries(port, v)
        ):
            continue
        if before >= 0:
            new = duplicate(state, e, handle, i64(Packet(handle).total))
            if new != 0:
                _to_one(state, execution, new, before, v)
        before = i64(place)
    if before >= 0:
        _to_one(state, execution, handle, before, v)
    else:
        drop(state, handle, i64(NO_DESTINATION))


@kernel
def _general(state, execution, handle, source):
    """Any packet; it is taken over."""
    e = Execution(execution)
    shared = Shared(e.shared)
    mine, v = own(Head(state).cache, handle), Vlan(stack(VLAN))
    if mine == 0:
        drop(state, handle, i64(NO_PACKET))
        return
    handle = mine
    port = PortRecord(shared.ports + PORT * source)
    if not look_at_tags(handle, v):
        drop(state, handle, i64(MALFORMED))
        return
    frame = data(Packet(handle))
    dst, src = load_be64(frame) >> u64(16), load_be64(frame + 6) >> u64(16)
    if port.flags & MIRROR_OUTPUT:
        drop(state, handle, i64(MIRROR_PORT))
    elif not come_in(port, v):
        drop(state, handle, i64(WRONG_VLAN))
    elif source != NO_PLACE and is_reserved(dst):
        drop(state, handle, i64(RESERVED))
    else:
        know_time(state, e)
        vid = v.vlan & VID
        kind = _kind_of(frame, i64(Packet(handle).length)) if dst == _BROADCAST else i64(ORDINARY)
        if source != NO_PLACE:
            learn(shared.mac_table, src, vid, source, e.now_s, kind)
        place = find(shared.mac_table, dst, vid, e.now_s) if dst & GROUP == u64(0) else i64(-1)
        if place == source:
            drop(state, handle, i64(OWN_PORT))
        elif place >= 0:
            _to_one(state, execution, handle, place, v)
        else:
            _flood(state, execution, handle, source, v)


@kernel(inline=True)
def normal(state, execution, handle, source):
    """Have a packet, which is taken over, go where a learning switch sends it; ``source`` is its port's place.

    The usual packet: one station to another that is known, no tag is changed, no mirror listens.
    """
    e, p = Execution(execution), Packet(handle)
    shared = Shared(e.shared)
    frame, length = data(p), i64(p.length)
    port = PortRecord(shared.ports + PORT * source)
    mode = port.vlan_mode
    # Bounds: 18 bytes, with or without a tag.
    if length >= 18 and port.flags & MIRROR_OUTPUT == 0 and source != NO_PLACE:
        tagged = is_tag(load_be16(frame + 12))
        tci = i64(load_be16(frame + 14)) if tagged else i64(0)
        if (
            mode == TRUNK
            and port.trunks == 0
            and (not tagged or (tci & TCI != 0 and not is_tag(load_be16(frame + 16))))
        ):
            vid = tci & VID
        elif mode == ACCESS and not tagged:
            vid = i64(port.tag)
        else:
            vid = i64(-1)
        dst = load_be64(frame) >> u64(16)
        if vid >= 0 and dst & GROUP == u64(0) and not is_reserved(dst):
            know_time(state, e)
            learn(shared.mac_table, load_be64(frame + 6) >> u64(16), vid, source, e.now_s, i64(ORDINARY))
            place = find(shared.mac_table, dst, vid, e.now_s)
            if place >= 0 and place != source:
                to = PortRecord(shared.ports + PORT * place)
                if to.vlan_mode == mode and is_open(to) and to.mirrors_out == 0:
                    give(state, e, handle, place)
                    return
    _general(state, execution, handle, source)
