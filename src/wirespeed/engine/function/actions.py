"""What a user's function can do to a packet beyond its fields: the functions that the package offers as ``ws.…``.

They can be called only inside of a function under ``@ws.function``.  What stands here is what they are; what they do
stands in :mod:`wirespeed.engine.function.edit`, and is called by the interpreted and the compiled form alike.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from wirespeed.engine.function.kinds import BOOL, INT, Kind
from wirespeed.engine.function.pkt import IPv4, IPv6, Pkt
from wirespeed.errors import FunctionError
from wirespeed.net import parse

DROP = -1
"""The verdict that drops a packet."""
FORWARD = 0
"""The verdict that sends a packet to output 0."""


@dataclass(frozen=True)
class Action:
    """What the translator must know of an action."""

    name: str
    signature: inspect.Signature
    parameters: dict[str, str]  # "packet", "number", or the layouts of the headers that it takes
    result: Kind
    want: int  # bits of what it looks for by itself
    writes: bool  # whether it changes the packet
    choices: tuple[str, ...]  # numbers of which any may be left out


ACTIONS: dict[FunctionType, Action] = {}
_WANTED = {Pkt: "packet", IPv4: "IPv4", IPv4 | IPv6: "IPv4 IPv6"}


def action(result: Kind, want: int = 0, writes: bool = True) -> Callable[[Any], Any]:
    """Declare an action; what it takes is told by the types of its parameters."""

    def declare(function: FunctionType) -> FunctionType:
        signature = inspect.signature(function)
        parameters = {name: _WANTED.get(p.annotation, "number") for name, p in signature.parameters.items()}
        choices = tuple(name for name, p in signature.parameters.items() if p.default is None)
        ACTIONS[function] = Action(function.__name__, signature, parameters, result, want, writes, choices)
        return function

    return declare


def _outside() -> FunctionError:
    return FunctionError("wirespeed's actions work on a packet; call them inside of a function under @ws.function")


@action(INT)
def decrement_ttl(ip: IPv4 | IPv6) -> int:
    """Take one hop off an IP header, IPv4's checksum with it; return what is left, 0 where nothing was."""
    raise _outside()


@action(BOOL)
def checksum_ipv4(ip: IPv4) -> bool:
    """Write the checksum of an IPv4 header, options included; whether it is there, whole."""
    raise _outside()


@action(BOOL, want=parse.IPV4 | parse.TCP | parse.UDP)
def checksum_l4(pkt: Pkt) -> bool:
    """Write the checksum of the TCP, UDP, ICMP, ICMPv6 or SCTP in a packet; whether all that it covers is there.

    It is not there in fragments and in packets that a capture cut.  Behind an IPv6 routing header that has segments
    left, or a home address, nothing is written either.
    """
    raise _outside()


@action(BOOL, want=parse.IPV4 | parse.TCP | parse.UDP)
def rewrite(
    pkt: Pkt,
    *,
    src: int | None = None,
    dst: int | None = None,
    sport: int | None = None,
    dport: int | None = None,
) -> bool:
    """Write addresses of an IPv4 packet and ports of its TCP or UDP; its checksums follow by difference (RFC 1624).

    What is not given stays.  False, and nothing changed, where there is no IPv4, or a port is given and there is no
    TCP or UDP header (as in all fragments but the first).
    """
    raise _outside()


@action(BOOL)
def push_vlan(pkt: Pkt, vlan: int, prio: int = 0, type: int = 0x8100) -> bool:
    """Put a tag before all others of an Ethernet frame, which grows by 4 bytes; whether there was room.

    ``type`` is what announces the tag: 0x8100, or 0x88A8 for a service tag.
    """
    raise _outside()


@action(BOOL)
def pop_vlan(pkt: Pkt) -> bool:
    """Take the first tag out of an Ethernet frame, which shrinks by 4 bytes; whether it had one."""
    raise _outside()


@action(INT, writes=False)
def random(below: int = 1 << 32) -> int:
    """A random number from 0 to ``below`` - 1; ``below`` is 2^32 at most.

    Each worker has a sequence of its own, which begins anew with each run; ``@ws.function(seed=...)`` gives another.
    """
    raise _outside()


@action(INT, writes=False)
def symmetric_hash(pkt: Pkt) -> int:
    """A flow hash of 32 bits that is the same for both directions, 0 where there is no IP (``pkt.hash`` is not)."""
    raise _outside()
