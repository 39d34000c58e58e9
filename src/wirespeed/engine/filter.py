"""``ws.filter("tcp port 80")``: a stage whose output 0 is what an expression matches, and output 1 the rest.

Where nothing stands behind output 1, the rest is dropped with reason ``filtered``.  A packet whose link type the
expression cannot be applied to (``ether host`` on raw IP, say) belongs to the rest; dropped, it has a reason of its own.
"""

from typing import Any

import numpy as np

from wirespeed.core.element import Element
from wirespeed.core.frame import as_packets
from wirespeed.core.stage import FIRST_REASON, Head, Placement, Site, drop, emit
from wirespeed.errors import GraphError
from wirespeed.jit import bpf
from wirespeed.jit.intrinsics import load_handle, store_i64
from wirespeed.jit.kernel import stage
from wirespeed.jit.layout import layout
from wirespeed.net.link import LINKTYPE_ETHERNET
from wirespeed.ports.filter import record
from wirespeed.ports.filter.expression import Filter
from wirespeed.ports.filter.links import Links
from wirespeed.ports.filter.record import judge

i64 = np.int64

State = layout("FilterState", [("head", Head)])


@stage
def divide(state, burst, n):
    """Leave what matches in the burst; put the rest out at output 1, or drop it."""
    h = Head(state)
    f = h.filter
    apart = h.outputs > 1
    kept = i64(0)
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        against = judge(f, handle)
        if against == 0:
            store_i64(burst + 8 * kept, handle)
            kept += 1
        elif apart:
            emit(state, i64(1), handle)
        else:
            drop(state, handle, FIRST_REASON - 1 + against)
    return kept


class FilterStage(Element):
    """Made by :func:`filter`; ``filter`` is the expression.  It can be called with a packet: see :meth:`__call__`."""

    def __init__(self, expression: Any) -> None:
        self.filter = Filter(expression)
        if self.filter.kernel_only:
            self.filter.program(LINKTYPE_ETHERNET)  # which says why it cannot be
        self.name = f"filter:{expression}"
        self._codes: dict[int, bpf.MachineCode] = {}

    def __call__(self, frame: Any) -> bool:
        """Whether it matches one packet: bytes, a :class:`wirespeed.Packet`, or anything with ``__bytes__``.

        What does not say its link type is an Ethernet frame.  Raises :class:`GraphError` for a link type that the
        expression cannot be applied to.
        """
        (packet,) = as_packets([frame])
        if packet.link not in self._codes:
            self._codes[packet.link] = bpf.compile(self.filter.program(packet.link).instructions)
        return self._codes[packet.link](packet.data, max(packet.wire, packet.length)) != 0

    def open(self, role: str, workers: int) -> "FilterPart":
        """Ready for one run."""
        return FilterPart(self)


class FilterPart:
    """The stage in a run; its workers share the compiled programs."""

    def __init__(self, element: FilterStage) -> None:
        self.name = element.name
        self._links = Links(element.filter)
        try:
            self._links.add(LINKTYPE_ETHERNET)
        except GraphError:
            pass  # it is for other link types; packets of this one are told when they come

    def place(self, site: Site) -> Placement:
        """This worker's state."""
        if site.outputs > 2:
            raise GraphError(f"{self.name} has {site.outputs} outputs, wanted one or two: what matches, and the rest")
        address = site.state(State)
        Head.at(address).filter = self._links.place(site, FIRST_REASON)
        return Placement(divide.address, address, record.DROPS, keep=self._links)

    def counters(self) -> dict[str, int | str]:
        """Link types that the filter could not be applied to."""
        return self._links.counters()

    def close(self) -> None:
        """Nothing to close."""


def filter(expression: str) -> FilterStage:
    """A stage that lets pass what an expression of the pcap-filter language matches, such as ``tcp port 80``.

    ``source >> ws.filter("udp") >> sink`` drops the rest; ``>> (matching, rest)`` sends it elsewhere.  Called with a
    packet, ``ws.filter("udp")(frame)``, it says whether it matches.  Raises :class:`GraphError` with the place in the
    expression of what is wrong.
    """
    return FilterStage(expression)
