"""The sockets with rings of a port, one for each worker, and how others take their places while the workers run.

Theory of operation
-------------------
A socket belongs to a namespace, and one of a fanout group can never be bound anew.  So when an interface has come back,
new sockets are opened.  They take the old ones' descriptors, whose numbers the workers know, and each worker is told of
the ring's new place in ``next_ring`` of its state.  It goes over to it at its next call, and says so in ``ring``; only when
all have done so are the old rings unmapped.

Thread rule: one thread at a time.  Order pair: N0, the publication of a ring, with N1, the load in the worker's stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import unmap_memory
from wirespeed.ports.packet.socket import PacketSocket

# What the state of both stages has: the ring that the control thread wants to be used, and the one that is.
Place = layout("PacketPlace", [("next_ring", "i8"), (None, 56), ("ring", "i8"), ("at", "i8")])


@kernel
def publish(place, ring):
    """Tell a worker of the ring that it is to go over to."""
    store_release(Place(place), "next_ring", ring)  # N0


@kernel
def used_ring(place):
    """The ring that a worker uses now."""
    return load_acquire(Place(place), "ring")


@kernel(inline=True)
def adopt(place):
    """Go over to the ring that there is for this worker, if it is another; whether it was."""
    p = Place(place)
    following = load_acquire(p, "next_ring")  # N1
    if following == p.ring:
        return False
    p.at = 0
    store_release(p, "ring", following)
    return True


@dataclass
class Rings:
    """Sockets in the order of the workers, and where the places of those are that have been placed."""

    sockets: list[PacketSocket]
    places: list[int] = field(default_factory=list)
    _left: list[tuple[int, int]] = field(default_factory=list)  # rings that are used no more, once all know

    def place(self, worker: int, place: int) -> PacketSocket:
        """Give a worker its ring, before it starts; return its socket."""
        publish.compile("(int64, int64)")  # now, and not while a worker waits for it
        used_ring.compile("(int64,)")
        record = Place.at(place)
        record.ring = record.next_ring = self.sockets[worker].ring
        self.places.append(place)
        return self.sockets[worker]

    def replace(self, made: Sequence[PacketSocket]) -> None:
        """Put new sockets into the places of the old ones."""
        for own, new in zip(self.sockets, made, strict=True):
            self._left.append(own.become(new))
        for place, own in zip(self.places, self.sockets, strict=False):
            publish(place, own.ring)

    def tidy(self) -> None:
        """Unmap what is left of old sockets, when every worker has gone over."""
        if self._left and all(used_ring(p) == own.ring for p, own in zip(self.places, self.sockets, strict=False)):
            self._unmap_left()

    def _unmap_left(self) -> None:
        for address, size in self._left:
            unmap_memory(address, size)
        self._left = []

    def close(self) -> None:
        """Close all; no worker may run any more."""
        for each in self.sockets:
            each.close()
        self._unmap_left()
        self.sockets, self.places = [], []
