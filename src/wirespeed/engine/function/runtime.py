"""What generated stages are made of: the kernels that the code of a user's function calls, and its way to a packet.

A generated stage, for each packet of a burst: :func:`arrive` finds the frame and the headers that the function names,
the function's body says a verdict, and a packet that does not stay in the burst goes through :func:`leave`.
"""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.core.stage import FIRST_REASON, FUNCTION_ERROR, Head, drop, emit
from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.header import (
    Place,
    Scheme,
    get_slot,
    set_slot,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.headers import HEADERS
from wirespeed.net.parse import BITS, POSITION, SHIFT, locate

i64 = np.int64

# What a function's state begins with; then come an address and a length for each table, then the user's own state.
FunctionState = layout(
    "FunctionState",
    [
        ("head", Head),
        ("random", "u8"),  # the word of the worker's random numbers
        ("verdict", "i8"),  # of the last packet that did not stay in its burst
        ("failed", "i8"),  # whether its body ended by an exception
        (None, 40),
    ],
)
TABLES = FunctionState.size
RANDOM = FunctionState.offset("random")
Table = layout("Table", [("address", "i8"), ("length", "i8")])
Word = layout("Word", [("value", "u4")])

DROPS = {
    "dropped": "The function said DROP",
    "bad_verdict": "The verdict was a negative number other than DROP",
    "stopped": "The run was stopped while the function was in a loop",
}
DROPPED, BAD_VERDICT, STOPPED = FIRST_REASON, FIRST_REASON + 1, FIRST_REASON + 2
ROUNDS = 0xFFFF  # of loops between two looks at the stop word, less one: about a tenth of a millisecond

# What locate returns, in its order.
FOUND = ("layers", "vlan", "vlan2", "mpls", "l3", "fragment6", "l4", "payload", "end")
SLOTS = ("state", "record", "frame", "length", "zeros", "scratch", "want", "ticks", *FOUND)
FIELDS = {"time": "time", "port": "port", "length": "total", "wire": "wire", "link": "link"}
"""Attributes of a packet that are numbers of its record, and their names there."""
PLACES = {
    name: Place(header, BITS[name], FOUND[POSITION[name]] if name in POSITION else "", SHIFT.get(name, 0))
    for name, header in HEADERS.items()
}

User = Scheme("User", SLOTS, PLACES, Packet, FIELDS)


@kernel(inline=True)
def enter(pkt, state, want):
    """Write the slots that are the same for all packets of a burst."""
    head = Head(state)
    set_slot(pkt, "state", state)
    set_slot(pkt, "zeros", head.zeros)
    set_slot(pkt, "scratch", head.scratch)
    set_slot(pkt, "want", want)


@kernel(inline=True)
def _found(pkt, frame, length, places):
    """Write the slots that say where things are."""
    layers, vlan, vlan2, mpls, l3, fragment6, l4, payload, end = places
    set_slot(pkt, "frame", frame)
    set_slot(pkt, "length", length)
    set_slot(pkt, "layers", layers)
    set_slot(pkt, "vlan", vlan)
    set_slot(pkt, "vlan2", vlan2)
    set_slot(pkt, "mpls", mpls)
    set_slot(pkt, "l3", l3)
    set_slot(pkt, "fragment6", fragment6)
    set_slot(pkt, "l4", l4)
    set_slot(pkt, "payload", payload)
    set_slot(pkt, "end", end)


@kernel(inline=True)
def arrive(pkt, handle, want):
    """Let a packet's slots be those of another packet; ``want`` is a constant."""
    p = Packet(handle)
    frame, length = data(p), i64(p.length)
    set_slot(pkt, "record", handle)
    set_slot(pkt, "ticks", 0)
    _found(pkt, frame, length, locate(frame, length, i64(p.link), want))


@kernel
def _locate_again(frame, length, link, want):
    """:func:`locate` out of line, for what is done rarely."""
    return locate(frame, length, link, want)


@kernel(inline=True)
def locate_headers(pkt):
    """Find frame and headers again."""
    p = Packet(get_slot(pkt, "record"))
    frame, length = data(p), i64(p.length)
    _found(pkt, frame, length, _locate_again(frame, length, i64(p.link), get_slot(pkt, "want")))


@kernel
def leave(state, handle, verdict, failed):
    """Send away a packet that does not stay in its burst."""
    own = FunctionState(state)
    own.verdict = verdict
    own.failed = failed
    if verdict > 0 and not failed:
        emit(state, verdict, handle)
        return
    reason = i64(DROPPED) if verdict == -1 else i64(BAD_VERDICT)
    if failed:
        reason = i64(STOPPED) if stopping(state) else i64(FUNCTION_ERROR)
    drop(state, handle, reason)


# ---------------------------------------------------------------------------------------------------------------------
# Loops


@kernel(inline=True)
def stopping(state):
    """Whether the worker is to stop."""
    return load_relaxed(Word(Head(state).stop), "value") != 0


@kernel
def _end_if_stopped(state):
    """The one exception that our code raises: it ends the body of a function, however deep its loop is."""
    if stopping(state):
        raise RuntimeError("stopped")


@kernel(inline=True)
def tick(pkt):
    """One round of a loop that may be without end.

    Only loops that run on for long look at the stop word, so that the end of a run never costs an ordinary packet.
    """
    ticks = get_slot(pkt, "ticks") + 1
    set_slot(pkt, "ticks", ticks)
    if ticks & ROUNDS == 0:
        _end_if_stopped(get_slot(pkt, "state"))
