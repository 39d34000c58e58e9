"""The interpreted form of a user's function: Python code with the lines of its own file, over the twin's objects."""

import ast
from collections.abc import Callable
from typing import Any

from wirespeed.engine.function import arithmetic, edit, runtime, sums
from wirespeed.engine.function.twin import COMPUTED, Array, Bytes, Header, Packet, set_mark
from wirespeed.engine.function.unit import PREFIX, Program, Unit
from wirespeed.net import hashing


def interpreted(program: Program, main: Unit, module: str) -> Callable[..., int]:
    """Make the function that a debugger can stop in, from translated code."""
    scope: dict[str, Any] = {PREFIX + name: value for name, value in NAMES.items()}
    scope |= {name: values for values, name in program.arrays.items()} | {"__name__": module}
    for unit in [*program.units.values(), main]:
        exec(compile(ast.Module([unit.tree], []), unit.file, "exec"), scope)
    made: Callable[..., int] = scope[main.tree.name]
    return made


def _moving(kernel: Any) -> Callable[..., bool]:
    """A change after which headers are found again."""

    def move(packet: Packet, *arguments: int) -> bool:
        done = bool(kernel(packet.ws_record, *arguments))
        packet.locate()
        return done

    return move


def _decrement_ttl(packet: Packet, ip: Header) -> int:
    return int(edit.decrement_ttl(ip.ws_read, ip.ws_write))


def _decrement_hlim(packet: Packet, ip: Header) -> int:
    left = max(ip.hlim - 1, 0)
    ip.hlim = left
    return left


def _checksum_ipv4(packet: Packet, ip: Header) -> bool:
    return bool(ip) and bool(sums.checksum_ipv4(ip.ws_read, packet.ws_frame + packet.ws_length))


def _checksum_l4(packet: Packet) -> bool:
    found = packet.ws_found
    places = found["layers"], found["l3"], found["l4"]
    return bool(sums.checksum_l4(packet.ws_frame, packet.ws_length, packet.link, *places))


def _rewrite(packet: Packet, which: int, *numbers: int) -> bool:
    found = packet.ws_found
    return bool(sums.rewrite(packet.ws_frame, found["layers"], found["l3"], found["l4"], which, *numbers))


def _random(packet: Packet, below: int) -> int:
    return int(edit.draw(packet.ws_state + runtime.RANDOM, below))


def _pick(values: tuple[int, ...], index: int) -> int:
    return values[index] if 0 <= index < len(values) else 0


def _among(number: int, values: tuple[int, ...]) -> bool:
    return number in values


def _symmetric_hash(packet: Packet) -> int:
    return int(hashing.symmetric_hash(packet.ws_frame, packet.ws_length, packet.link))


# Every name of ours that translated code can use.  ``tick`` does nothing, for Ctrl-C ends a loop of the interpreter;
# it is a builtin so that a debugger does not step into it.
NAMES: dict[str, Any] = {
    **arithmetic.OPERATIONS,
    "negate": arithmetic.negate,
    "absolute": arithmetic.absolute,
    "count": arithmetic.count,
    "int": int,
    "truth": bool,
    "min": min,
    "max": max,
    "range": range,
    "tick": id,
    "present": bool,
    "length": len,
    "get_element": Array.__getitem__,
    "set_element": Array.__setitem__,
    "pick": _pick,
    "among": _among,
    "among_few": _among,
    **{word: getattr(Bytes, word) for word in ("u16", "u32", "u64", "put_u16", "put_u32", "put_u64")},
    **COMPUTED,
    "set_mark": set_mark,
    "locate": Packet.locate,
    "prepend": _moving(edit.prepend),
    "append": _moving(edit.append),
    "adjust": _moving(edit.adjust),
    "trim": _moving(edit.trim),
    "push_vlan": _moving(edit.push_vlan),
    "pop_vlan": _moving(edit.pop_vlan),
    "decrement_ttl_ipv4": _decrement_ttl,
    "decrement_ttl_ipv6": _decrement_hlim,
    "checksum_ipv4": _checksum_ipv4,
    "checksum_l4": _checksum_l4,
    "rewrite": _rewrite,
    "random": _random,
    "symmetric_hash": _symmetric_hash,
}
