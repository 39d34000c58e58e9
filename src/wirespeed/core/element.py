"""Elements of a graph and the arrow between them.

``a >> b`` sends output 0 of ``a`` to ``b``; ``a >> (b, c)`` lists the outputs, output 0 first.  Elements are
descriptions: nothing is opened before the graph runs, and one description can be run many times.  What ``>>`` returns
is a :class:`Chain`: it has a beginning and the places where it can go on.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Union

from wirespeed.errors import GraphError

if TYPE_CHECKING:
    from wirespeed.core.stage import Part

Target = Union["Element", "Chain"]


class Element:
    """Something with a place in a graph: a port, a function, a switch.  Compared by identity."""

    name: str

    def open(self, role: str, workers: int) -> "Part":
        """Open it for one run, as ``source``, ``stage`` or ``sink``, for as many graph copies as there are workers."""
        raise NotImplementedError

    def __rshift__(self, other: Any) -> "Chain":
        return Chain(self).to(other)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Chain:
    """Elements joined by arrows.  ``first`` begins it; ``last``, where there is one, is where ``>>`` goes on.

    ``links`` holds (from, output, to).  An element may stand in several chains: they are one graph, and arrows that
    arrive at the same element meet there.
    """

    def __init__(self, first: Element) -> None:
        self.first = first
        self.last: Element | None = first
        self.links: tuple[tuple[Element, int, Element], ...] = ()

    def __rshift__(self, other: Any) -> "Chain":
        return self.to(other)

    def to(self, other: Any) -> "Chain":
        """What ``self >> other`` gives."""
        if self.last is None:
            raise GraphError("a chain that ended in several outputs cannot go on; put what follows behind each of them")
        outputs = other if isinstance(other, tuple) else (other,)
        if not outputs:
            raise GraphError("an empty tuple on the right of >>; list at least one output")
        chains = [as_chain(o) for o in outputs]
        joined = Chain(self.first)
        joined.links = self.links
        for number, chain in enumerate(chains):
            joined.links += ((self.last, number, chain.first), *chain.links)
        joined.last = chains[0].last if len(chains) == 1 else None
        return joined

    def __iter__(self) -> Iterator[Element]:
        """Its elements, each once, in the order of their first mention."""
        seen = {self.first: None}
        for source, _, target in self.links:
            seen |= {source: None, target: None}
        return iter(seen)

    def __repr__(self) -> str:
        return "<Chain " + ", ".join(f"{a.name} >{k}> {b.name}" for a, k, b in self.links) + ">"


def as_chain(thing: Any) -> Chain:
    """A chain, or an element as a chain of one; raises :class:`GraphError` for anything else."""
    if isinstance(thing, Chain):
        return thing
    if isinstance(thing, Element):
        return Chain(thing)
    hint = (
        "; decorate it with @wirespeed.function" if callable(thing) else "; give a port, a function or a chain of them"
    )
    raise GraphError(f"cannot put {thing!r} into a graph{hint}")
