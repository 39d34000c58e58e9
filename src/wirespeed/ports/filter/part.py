"""An open port with a filter: the port's own part, whose stage is called from one that sieves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wirespeed.core.element import Element
from wirespeed.core.stage import FIRST_REASON, Head, Part, Placement, Site
from wirespeed.errors import GraphError
from wirespeed.net.link import LINKTYPE_ETHERNET
from wirespeed.ports.filter import record, stages
from wirespeed.ports.filter.expression import Filter
from wirespeed.ports.filter.links import Links


class FilteredPart:
    """What a port opened, in all but ``place`` and ``counters``."""

    def __init__(self, part: Part, role: str, filter: Filter) -> None:
        self._part = part
        self._stage = stages.receive if role == "source" else stages.transmit
        self._links = Links(filter)
        known = getattr(part, "link", None)
        try:
            self._links.add(LINKTYPE_ETHERNET if known is None else known)
        except GraphError:
            if known is not None or filter.kernel_only:
                raise

    def place(self, site: Site) -> Placement:
        """The port's own placement, with our stage before its code."""
        placed = self._part.place(site)
        reason = FIRST_REASON + len(placed.drops)
        Head.at(placed.state).filter = self._links.place(site, reason, inner=placed.code)
        return replace(
            placed,
            code=self._stage.address,
            drops={**placed.drops, **record.DROPS},
            keep=(placed.keep, self._links),
        )

    def counters(self) -> dict[str, Any]:
        """The port's own, and link types that the filter could not be applied to."""
        return {**getattr(self._part, "counters", dict)(), **self._links.counters()}

    def close(self) -> None:
        """Close the port."""
        self._part.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def opening(opened: Callable[[str, int], Part], filter: Filter) -> Callable[[str, int], Part]:
    """A port's ``open``, with a filter: by the kernel where the part has it attached, else by a stage of ours."""

    def open_filtered(role: str, workers: int) -> Any:
        part = opened(role, workers)
        try:
            if role == "source" and getattr(part, "attach", lambda _: False)(filter):
                return part
            return FilteredPart(part, role, filter)
        except BaseException:
            part.close()
            raise

    return open_filtered


def put_on(element: Element, expression: Any) -> None:
    """Have a port filter what enters and leaves by it from the next time it is opened."""
    if getattr(element, "filter", None) is not None:
        raise GraphError(f"{element.name} has a filter already, {element.filter}; join the two with 'and'")  # type: ignore[attr-defined]
    filter = Filter(expression)
    element.filter = filter  # type: ignore[attr-defined]
    element.open = opening(element.open, filter)  # type: ignore[assignment, method-assign]
