"""``ws.distribute``: a stage that has a function run by several workers, each flow by one of them at a time.

Theory of operation
-------------------
The stage stands in the graph; its worker is the distributor's thread.  The function runs in a crew: extra workers of the
run, whose graph is the function between a source of lines and, for each output of the stage, a sink of lines back.
"""

from typing import Any

from wirespeed.core.distributor.memory import Shape
from wirespeed.core.element import Chain, Element, as_chain
from wirespeed.core.stage import MAX_BURST
from wirespeed.engine.distribute.part import DistributePart
from wirespeed.engine.function.element import Function
from wirespeed.engine.graph import is_port
from wirespeed.errors import GraphError

MOST_WORKERS = 256
PARK = 1024  # packets for stalled workers that are put aside


class Distribute(Element):
    """Made by :func:`distribute`."""

    def __init__(self, work: Any, workers: Any, by: Any, ordered: bool, burst: Any, lines: Any) -> None:
        self.name = "distribute"
        self.work = None if work is None else _checked(work)
        self.by = _tag_function(by)
        self.ordered = ordered
        given = {} if burst is None else {"burst": burst}
        shape = Shape(workers, **given, lines=lines, park=PARK)
        if shape.workers > MOST_WORKERS:
            raise GraphError(
                f"workers must be 1 to {MOST_WORKERS}, got {workers}; a worker a core is the most that helps"
            )
        self.workers = shape.workers
        self.held = shape.workers * shape.slots * shape.burst
        returns = max(MAX_BURST, 1 << (self.held - 1).bit_length())
        self.shape = Shape(workers, **given, lines=lines, returns=returns, park=PARK)

    def open(self, role: str, workers: int) -> "DistributePart":
        """Ready for one run."""
        if workers > 1:
            raise GraphError(
                f"{self.name} has workers of its own, {self.workers} of them, and one thread that spreads packets over"
                f" them; run with workers=1, got {workers}"
            )
        return DistributePart(self)


def _checked(work: Any) -> Chain:
    chain = as_chain(work)
    for element in chain:
        if is_port(element):
            raise GraphError(
                f"distribute: {element.name} is a port; give what is to be done with packets, and put ports around"
            )
        if getattr(element, "MAKES", False):
            raise GraphError(
                f"distribute: {element.name} makes packets of others or holds them back, and a line of a worker has "
                f"places for those that came; put it before or behind: {element.name} >> distribute(...)"
            )
    return chain


def _tag_function(by: Any) -> Function | None:
    if isinstance(by, str) and by == "flow":
        return None
    if isinstance(by, Function):
        return by
    hint = "; decorate it with @wirespeed.function" if callable(by) else ""
    raise GraphError(f'distribute: by must be "flow" or a function whose verdict is the tag, got {by!r}{hint}')


def distribute(
    work: Any = None,
    *,
    workers: int,
    by: Any = "flow",
    ordered: bool = False,
    burst: int | None = None,
    lines: int | None = None,
) -> Distribute:
    """A stage whose function runs in so many ``workers``, threads of their own; a flow is never on two at once.

    ``work`` is a function or a chain of stages without ports (nothing: workers pass packets through).  What is behind
    the stage gets packets by the output that ``work`` chose, those of one flow in their order; with ``ordered``, all in
    the order of their arrival.  ``by`` says which packets belong together: ``"flow"``, by addresses, ports and protocol,
    or a function whose verdict is the tag, 32 bits (``DROP`` drops).  ``burst`` is the most packets that a worker is
    sent in one line, 1 to 31 (7 fill one cache line, 15 two), ``lines`` how many lines may be on the way to each.
    """
    return Distribute(work, workers, by, ordered, burst, lines)
