"""What the stages that cut packets have in common: packets wait in their order, and are cut as their parts can be handed on.

Theory of operation
-------------------
The frames of one packet, and the fragments of one frame, are the most that is made ahead.  While packets wait the
sources before the stage are not asked, so as many wait as came in the same round.  A packet with nothing to be done
passes, and while none waits the burst stays as it is.
"""

from typing import Any

import numpy as np

from wirespeed.core.element import Element
from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.core.stage import FIRST_REASON, Head, Placement, Site, count_drops, drop
from wirespeed.engine.transform.backlog import Backlog, fill_list, free_waiting, make, put, take, waiting
from wirespeed.jit.intrinsics import load_handle, store_i64
from wirespeed.jit.kernel import Stage, kernel
from wirespeed.jit.layout import layout
from wirespeed.net import offload
from wirespeed.net.fragmentation import DAMAGED, TRUNCATED, fragment
from wirespeed.net.link import LINKTYPE_ETHERNET
from wirespeed.net.offload import BAD_OFFLOAD, NEEDS_FRAGMENT, TOO_LONG
from wirespeed.net.segmentation import MOST_FRAMES, link_size, segment

i64 = np.int64

WAITING = 4096  # packets that can wait: more than can come in a round
NO_LIMIT = 1 << 30

State = layout(
    "CuttingState",
    [
        ("head", Head),
        ("mtu", "i8"),  # most bytes behind the Ethernet header and tags
        ("burst", "i8"),  # most packets in a burst
        ("made", "i8"),  # packets made of others, less those
        ("cut", "i8"),  # packets that were cut
        ("arrived", Backlog),
        ("frames", Backlog),  # of one packet,
        ("pieces", Backlog),  # and of one frame
    ],
)

DROPS = {
    **offload.DROPS,
    "needs_fragment": "It is longer than the MTU, and its header forbids to fragment it",
    "truncated": "It is longer than the MTU, and its header says more bytes than there are: it was cut before",
    "damaged": "It is longer than the MTU, and its IP headers contradict themselves",
    "no_room": "More packets came in one round than can wait to be cut",
    "stopped": "The run was stopped while it waited",
}
BAD, LONG, EMPTY, FORBIDDEN, CUT, BROKEN, NO_ROOM, STOPPED = range(FIRST_REASON, FIRST_REASON + len(DROPS))


@kernel
def _discard(state, handle, code):
    """Drop a packet of which nothing could be made, for the reason that a kernel returned."""
    if code == BAD_OFFLOAD:
        drop(state, handle, i64(BAD))
    elif code == TOO_LONG:
        drop(state, handle, i64(LONG))
    elif code == NEEDS_FRAGMENT:
        drop(state, handle, i64(FORBIDDEN))
    elif code == TRUNCATED:
        drop(state, handle, i64(CUT))
    elif code == DAMAGED:
        drop(state, handle, i64(BROKEN))
    else:
        drop(state, handle, i64(EMPTY))


@kernel(inline=True)
def _fill(s, state, backlog, handle, n):
    """Take what was made of a packet, ``n`` at the backlog's place, or drop it."""
    if n <= 0:
        _discard(state, handle, n)
    else:
        fill_list(backlog, n)
        s.made += n - 1
        s.cut += 1 if n > 1 else 0


@kernel
def _cut_next(s, state, limit):
    """Make frames of the next packet that waits, each of up to ``limit`` bytes behind its link header."""
    handle = take(s.arrived)
    limit += link_size(handle)
    n = i64(1)
    if Packet(handle).flags & PARTIAL:
        n = segment(s.head.cache, handle, limit, s.frames.items, i64(MOST_FRAMES))
    elif i64(Packet(handle).total) > limit:
        n = i64(TOO_LONG)
    else:
        store_i64(s.frames.items, handle)
    _fill(s, state, s.frames, handle, n)


@kernel
def _divide_next(s, state):
    """Make fragments of the next frame."""
    handle = take(s.frames)
    n = fragment(s.head.cache, handle, s.mtu, False, s.pieces.items, i64(MOST_FRAMES))
    _fill(s, state, s.pieces, handle, n)


@kernel(inline=True)
def _next(s, state, divide):
    """The next packet that can be handed on, or 0."""
    while True:
        if divide and waiting(s.pieces) > 0:
            return take(s.pieces)
        if waiting(s.frames) > 0:
            if not divide:
                return take(s.frames)
            _divide_next(s, state)
        elif waiting(s.arrived) > 0:
            _cut_next(s, state, i64(NO_LIMIT) if divide else s.mtu)
        else:
            return i64(0)


@kernel(inline=True)
def _hand_on(s, state, burst, room, divide):
    """Fill the burst with up to ``room`` packets; how many there were."""
    done = i64(0)
    while done < room:
        handle = _next(s, state, divide)
        if handle == 0:
            break
        store_i64(burst + 8 * done, handle)
        done += 1
    s.head.held = waiting(s.pieces) + waiting(s.frames) + waiting(s.arrived)
    s.head.full = 1 if s.head.held > 0 else 0
    return done


@kernel(inline=True)
def cut_packets(state, burst, n, divide):
    """A stage that makes frames, and fragments with ``divide``, a constant."""
    s = State(state)
    ready = i64(0)
    if s.head.held == 0:
        while ready < n:
            p = Packet(load_handle(burst + 8 * ready))
            link = i64(14) if p.link == LINKTYPE_ETHERNET else i64(0)
            if p.flags & PARTIAL or i64(p.total) > s.mtu + link:
                break
            ready += 1
        if ready == n:
            return n
    for i in range(ready, n):
        handle = load_handle(burst + 8 * i)
        if not put(s.arrived, handle):
            drop(state, handle, i64(NO_ROOM))
    return ready + _hand_on(s, state, burst + 8 * ready, n - ready if n > 0 else s.burst, divide)


@kernel
def _wind_up(state):
    """After the last round, free what still waits, and count it."""
    s = State(state)
    cache = s.head.cache
    n = free_waiting(cache, s.pieces) + free_waiting(cache, s.frames) + free_waiting(cache, s.arrived)
    s.head.held = 0
    count_drops(state, i64(STOPPED), n)


class CuttingElement(Element):
    """A stage that cuts packets; ``mtu`` is the most bytes behind the Ethernet header and tags."""

    stage: Stage
    MAKES = True  # packets of others

    def __init__(self, name: str, mtu: int) -> None:
        self.name = name
        self.mtu = mtu

    def open(self, role: str, workers: int) -> "CuttingPart":
        """Ready for one run."""
        return CuttingPart(self)


class CuttingPart:
    """The stage in a run."""

    def __init__(self, element: CuttingElement) -> None:
        self.element = element
        self.holds = WAITING + 2 * MOST_FRAMES
        self._states: list[int] = []

    def place(self, site: Site) -> Placement:
        """This worker's state."""
        address = site.state(State)
        state = State.at(address)
        state.mtu, state.burst = self.element.mtu, site.burst
        make(site.arena, state.arrived, WAITING)
        make(site.arena, state.frames, MOST_FRAMES)
        make(site.arena, state.pieces, MOST_FRAMES)
        self._states.append(address)
        return Placement(self.element.stage.address, address, DROPS)

    def made(self) -> int:
        """What was made, less what it was made of."""
        return sum(int(State.at(a).made) for a in self._states)

    def counters(self) -> dict[str, Any]:
        """How many packets were cut."""
        return {"cut": sum(int(State.at(a).cut) for a in self._states)}

    def close(self) -> None:
        """Free what still waits."""
        for address in self._states:
            if State.at(address).head.cache:
                _wind_up(address)
