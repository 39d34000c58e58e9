"""A case: how a switch is set up, what rules it has, and what then happens to it; and what a switch made of it.

It says nothing of the switch it is for, so that a real Open vSwitch and ours get the same, and it can be kept as JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

PORTS = tuple(range(1, 9))  # of every switch that is given cases

Output = tuple[int, bytes]  # a port's number and a frame
Outputs = list[Output]  # for one frame sent: sorted by port, in order at each port


@dataclass(frozen=True)
class Port:
    """What differs from a plain port: a trunk of all VLANs that is up and takes part in floods."""

    number: int
    tag: int | None = None
    trunks: tuple[int, ...] = ()
    vlan_mode: str = ""  # access, trunk, native-tagged, native-untagged or none: what tag and trunks make of it
    up: bool = True
    flood: bool = True


@dataclass(frozen=True)
class Mirror:
    """Which packets are copied (a VLAN none: all), and where to: to a port or, tagged, into a VLAN."""

    name: str
    sources: tuple[int, ...] = ()
    destinations: tuple[int, ...] = ()
    everything: bool = False
    vlans: tuple[int, ...] = ()
    output_port: int | None = None
    output_vlan: int | None = None
    snaplen: int | None = None


@dataclass(frozen=True)
class Setup:
    """Ports and mirrors that are not as they are by default, and the bridge's table of MACs."""

    ports: tuple[Port, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    mac_aging: int | None = None  # seconds
    mac_table_size: int | None = None


@dataclass(frozen=True)
class Send:
    """A frame comes in at a port."""

    port: int
    frame: bytes


@dataclass(frozen=True)
class Warp:
    """Time passes; a case that has one runs with the clock stopped."""

    ms: int


@dataclass(frozen=True)
class PortState:
    """A port goes down or comes up."""

    port: int
    up: bool


@dataclass(frozen=True)
class Flows:
    """All rules are replaced."""

    text: str


Step = Send | Warp | PortState | Flows
STEPS: dict[str, type[Any]] = {"send": Send, "warp": Warp, "port": PortState, "flows": Flows}


@dataclass(frozen=True)
class Case:
    """Rules, groups and meters as ``ovs-ofctl`` writes them, one each, and what happens then."""

    flows: tuple[str, ...]
    steps: tuple[Step, ...]
    groups: tuple[str, ...] = ()
    meters: tuple[str, ...] = ()
    setup: Setup = field(default_factory=Setup)
    name: str = ""

    @property
    def sent(self) -> list[Send]:
        """The frames that come in, in order."""
        return [step for step in self.steps if isinstance(step, Send)]

    @property
    def timed(self) -> bool:
        """Does time pass in it, or do its rules or meters ask how much has?"""
        return bool(self.meters) or any(isinstance(step, Warp) for step in self.steps)

    def without(self, **parts: Any) -> Self:
        """The same with some parts changed."""
        return replace(self, **parts)

    def to_json(self) -> dict[str, Any]:
        """What ``json`` can write; what is as by default is left out."""
        kinds = {kind: name for name, kind in STEPS.items()}
        said: dict[str, Any] = {"flows": list(self.flows)}
        said["steps"] = [[kinds[type(step)], *(_plain(value) for value in vars(step).values())] for step in self.steps]
        for name in ("groups", "meters"):
            if getattr(self, name):
                said[name] = list(getattr(self, name))
        if self.setup != Setup():
            said["setup"] = _shortened(self.setup)
        if self.name:
            said["name"] = self.name
        return said

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Self:
        """The case that ``to_json`` wrote."""
        setup = said.get("setup", {})
        return cls(
            flows=tuple(said["flows"]),
            steps=tuple(_step(*words) for words in said["steps"]),
            groups=tuple(said.get("groups", ())),
            meters=tuple(said.get("meters", ())),
            setup=Setup(
                ports=tuple(Port(**_tuples(port)) for port in setup.get("ports", ())),
                mirrors=tuple(Mirror(**_tuples(mirror)) for mirror in setup.get("mirrors", ())),
                mac_aging=setup.get("mac_aging"),
                mac_table_size=setup.get("mac_table_size"),
            ),
            name=said.get("name", ""),
        )


class Refused(Exception):
    """A switch does not take a case's rules, groups or meters."""


class Unanswered(Exception):
    """The oracle itself has failed over a case: there is no answer to compare with."""


class Switch(Protocol):
    """Whatever can be given cases: Open vSwitch, a model, ours."""

    def run(self, case: Case) -> list[Outputs]:
        """Set a fresh switch up for ``case`` and say what came out for each frame sent, ``normalised``; raises Refused."""


def normalised(case: Case, outputs: Sequence[Output]) -> Outputs:
    """Outputs of one frame in the order in which they are compared: by port, the order at each port kept.

    In which order a flood goes to ports is nobody's business; where mirrors copy it into a VLAN, two floods meet at a
    port, so with mirrors the order at a port does not count either.
    """
    return sorted(outputs) if case.setup.mirrors else sorted(outputs, key=lambda output: output[0])


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _step(kind: str, *values: Any) -> Step:
    if kind == "send":
        return Send(values[0], bytes.fromhex(values[1]))
    step: Step = STEPS[kind](*values)
    return step


def _shortened(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not as by default."""
    default = type(value)(**{name: getattr(value, name) for name in ("number", "name") if hasattr(value, name)})
    said: dict[str, Any] = {}
    for name, own in vars(value).items():
        if own != getattr(default, name) or name in ("number", "name"):
            nested = isinstance(own, tuple) and own and hasattr(own[0], "__dataclass_fields__")
            said[name] = [_shortened(one) for one in own] if nested else list(own) if isinstance(own, tuple) else own
    return said


def _tuples(said: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
