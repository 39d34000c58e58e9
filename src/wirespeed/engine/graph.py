"""The graph that chains make together, checked and put in order before anything is opened.

A node is an element in a role: a port can be a source and a sink of one graph (a tap that frames come from and go to),
so there it is two nodes.  Everything else is one node however many arrows reach it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from wirespeed.core.element import Chain, Element
from wirespeed.errors import GraphError


@dataclass(eq=False)
class Node:
    """One element in one role, and where its outputs lead: ``targets[k]`` is behind output k."""

    element: Element
    role: str
    targets: dict[int, "Node"] = field(default_factory=dict)
    group: int = 0

    @property
    def name(self) -> str:
        return self.element.name


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which every arrow leads forward, sources first; and how many groups no arrow leads between."""

    nodes: tuple[Node, ...]
    groups: int


def is_port(element: Element) -> bool:
    """Whether packets can enter or leave there; ports say so by their KIND."""
    return getattr(element, "KIND", None) is not None


def build(chains: Iterable[Chain | Element], taps: Mapping[str, Any] | None = None) -> Graph:
    """Check the chains and join them; ``taps`` maps names of stages to the element that is to see what passes them.

    Raises :class:`GraphError` for a graph that cannot work.
    """
    nodes: dict[tuple[Element, str], Node] = {}
    for chain in _spread(chains):
        if isinstance(chain, Element):
            raise GraphError(
                f"{chain.name} stands alone; a graph leads from a port to a port: port >> function >> port"
            )
        if not isinstance(chain, Chain):
            raise GraphError(f"got {chain!r}, wanted a chain of elements such as port >> function >> port")
        for source, output, target in chain.links:
            _link(nodes, source, output, target)
    if not nodes:
        raise GraphError("got no graph; give at least one chain such as port >> function >> port")
    for node in list(nodes.values()):
        _check(node)
    found = list(nodes.values())
    for name, element in (taps or {}).items():
        found += _tap(found, name, element)
    ordered = _order(found)
    return Graph(tuple(ordered), _group(ordered))


def _spread(chains: Iterable[Chain | Element]) -> Iterator[Chain | Element]:
    """The chains, with those of an element that is a graph by itself, such as a switch, in its place."""
    for chain in chains:
        own = getattr(chain, "chains", None)
        if isinstance(chain, Element) and own is not None:
            yield from own()
        else:
            yield chain


def _link(nodes: dict[tuple[Element, str], Node], source: Element, output: int, target: Element) -> None:
    if source is target and not is_port(source):
        raise GraphError(
            f"{source.name} stands behind itself; an element has one place in a graph: make another one, "
            f"for a function with {source.name}.bind()"
        )
    begin = _node(nodes, source, "source" if is_port(source) else "stage")
    end = _node(nodes, target, "sink" if is_port(target) else "stage")
    known = begin.targets.setdefault(output, end)
    if known is not end:
        raise GraphError(
            f"output {output} of {source.name} leads to {known.name} and to {target.name}; "
            f"an output has one arrow: list several outputs as a tuple, {source.name} >> (a, b)"
        )


def _node(nodes: dict[tuple[Element, str], Node], element: Element, role: str) -> Node:
    return nodes.setdefault((element, role), Node(element, role))


def _check(node: Node) -> None:
    if node.role == "source" and len(node.targets) > 1:
        raise GraphError(f"{node.name} has {len(node.targets)} outputs; only a function chooses: put one behind it")
    if node.role == "stage" and not node.targets:
        if not getattr(node.element, "ENDS", False):
            raise GraphError(f"nothing stands behind {node.name}; end the chain in a port, such as port('null:')")
        node.role = "sink"


def _tap(nodes: list[Node], name: str, element: Element) -> list[Node]:
    """Put ``element`` on every arrow out of the node ``name`` (into it, where it is a sink)."""
    chosen = [n for n in nodes if n.name == name or n.name.partition(":")[2] == name]
    if not chosen:
        raise GraphError(f"no stage {name!r} to tap; the stages are {', '.join(dict.fromkeys(n.name for n in nodes))}")
    added = []
    for node in nodes:
        for output, target in node.targets.items():
            if node in chosen or (target in chosen and target.role == "sink"):
                node.targets[output] = Node(element, "stage", {0: target})
                added.append(node.targets[output])
    return added


def _order(nodes: list[Node]) -> list[Node]:
    sorter: TopologicalSorter[Node] = TopologicalSorter(dict.fromkeys(nodes, ()))
    for node in nodes:
        for target in node.targets.values():
            sorter.add(target, node)
    try:
        ordered = list(sorter.static_order())
    except CycleError as error:
        names = " >> ".join(n.name for n in reversed(error.args[1]))
        raise GraphError(
            f"the graph has a cycle, {names}; packets would never leave it: break it with a port"
        ) from None
    ordered.sort(key=lambda n: n.role != "source")  # stable, and no arrow leads into a source
    reached = {t for n in nodes for t in n.targets.values()}
    for node in ordered:
        if node.role != "source" and node not in reached:
            raise GraphError(f"no packets can reach {node.name}; put a port before it, such as port('pcap:in.pcap') >>")
    return ordered


def _group(nodes: list[Node]) -> int:
    """Number the groups of nodes between which no arrow leads; return how many there are."""
    leader = {n: n for n in nodes}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            node = leader[node]
        return node

    for node in nodes:
        for target in node.targets.values():
            leader[find(target)] = find(node)
    numbers: dict[Node, int] = {}
    for node in nodes:
        node.group = numbers.setdefault(find(node), len(numbers))
    return len(numbers)
