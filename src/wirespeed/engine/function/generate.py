"""Writes the source of the module that holds a user's function as a stage.

The text is all that the machine code depends on: the translated code with its constants written out, the layouts by
name and hash, the formats of tables.
"""

import ast
import copy

from wirespeed.engine.function import runtime
from wirespeed.engine.function.arithmetic import BUILTIN, NATIVE, TOTAL, WRAPPING
from wirespeed.engine.function.kinds import Kind
from wirespeed.engine.function.unit import MOST_INLINE, PREFIX, Program, Unit

# Where every name of ours that translated code can use comes from: a module, and what it is there; or an expression.
# Bit operators, and the minus sign, are a kernel's own and come from nowhere.
_BODY = (
    "adjust", "among", "among_few", "append", "checksum_ipv4", "checksum_l4", "decrement_ttl_ipv4", "decrement_ttl_ipv6",
    "frame", "hash", "length", "mark", "payload", "pick", "pop_vlan", "prepend", "push_vlan", "random", "rewrite",
    "set_mark", "symmetric_hash", "trim",
)  # fmt: skip
ORIGINS: dict[str, tuple[str, str]] = {
    **{name: ("", expression) for name, expression in BUILTIN.items()},
    **dict.fromkeys((*NATIVE, "negate"), ("", "")),
    **{name: ("wirespeed.jit.wrapping", name) for name in WRAPPING},
    **{name: ("wirespeed.engine.function.arithmetic", name) for name in TOTAL},
    "count": ("wirespeed.engine.function.arithmetic", "kernel_count"),
    **{name: ("wirespeed.jit.region", name) for name in ("get_element", "set_element")},
    **{f"u{bits}": ("wirespeed.jit.region", f"get_be{bits}") for bits in (16, 32, 64)},
    **{f"put_u{bits}": ("wirespeed.jit.region", f"put_be{bits}") for bits in (16, 32, 64)},
    "present": ("wirespeed.jit.header", "present"),
    "tick": ("wirespeed.engine.function.runtime", "tick"),
    "locate": ("wirespeed.engine.function.runtime", "locate_headers"),
    **{name: ("wirespeed.engine.function.body", name) for name in _BODY},
}

_STAGE = """

@_ws_stage
def {name}(state, burst, n):
    pkt = _ws_User()
    _ws_enter(pkt, state, _ws_int({want}))
    {bindings}
    kept = _ws_int(0)
    for i in range(n):
        handle = _ws_load_i64(burst + 8 * i)
        _ws_arrive(pkt, handle, _ws_int({want}))
        failed, verdict = _ws_guarded({body}, ({arguments}))
        if verdict == 0 and not failed:
            # Bounds: kept is never more than i, so what is overwritten has been read.
            _ws_store_i64(burst + 8 * kept, handle)
            kept += 1
        else:
            _ws_leave(state, handle, verdict, failed)
    return kept
"""


class _Native(ast.NodeTransformer):
    """Turns the operations that a kernel's own operators do just so back into operators."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id.removeprefix(PREFIX) if isinstance(node.func, ast.Name) else ""
        plain = [_unwrapped(a) for a in node.args]
        if name in NATIVE:
            return ast.BinOp(plain[0], NATIVE[name](), plain[1])
        if name == "negate":
            return ast.UnaryOp(ast.USub(), plain[0])
        if name in TOTAL and isinstance(plain[1], ast.Constant):
            return _by_constant(name, plain[0], int(plain[1].value)) or node  # type: ignore[arg-type]
        return node


def _unwrapped(node: ast.expr) -> ast.expr:
    """The constant inside a conversion to an int64, which an operator does not need."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
        return node.args[0]
    return node


def _by_constant(name: str, left: ast.expr, number: int) -> ast.expr | None:
    """A shift by 0 to 63, or a division by a power of two, without the tests for what cannot be."""
    if name in ("shift_left", "shift_right"):
        op = ast.LShift() if name == "shift_left" else ast.RShift()
        return ast.BinOp(left, op, ast.Constant(number)) if 0 <= number < 64 else None
    if number <= 0 or number & (number - 1):
        return None
    if name == "remainder":
        return ast.BinOp(left, ast.BitAnd(), ast.Constant(number - 1))
    return ast.BinOp(left, ast.RShift(), ast.Constant(number.bit_length() - 1))


def text(program: Program, main: Unit, parameters: dict[str, Kind]) -> str:
    """The source of the module that holds a function's stage."""
    units = [*program.units.values(), main]
    parts = [
        '"""The stage of a user\'s function; wirespeed wrote it and writes it anew when need be."""\n',
        _imports(program),
    ]
    for kind in parameters.values():
        if kind.layout is not None:
            parts.append(f"{PREFIX}layout = _ws_find_layout({kind.layout.name!r}, {kind.layout.hash!r})")
    for values, name in program.arrays.items():
        parts.append(f"{name} = np.array({list(values)!r}, np.int64)")
    body = f"{PREFIX}body_{main.tree.name}"
    for unit in units:
        tree = ast.fix_missing_locations(_Native().visit(copy.deepcopy(unit.tree)))
        tree.name = body if unit is main else tree.name
        inline = unit is main or unit.size <= MOST_INLINE
        parts.append(f"\n\n@_ws_kernel(inline={inline})\n{ast.unparse(tree)}")
    bindings, arguments = _bindings(parameters)
    parts.append(
        _STAGE.format(
            name=f"{PREFIX}stage_{main.tree.name}",
            want=int(program.want),
            bindings="\n    ".join(bindings) or "pass",
            body=body,
            arguments=", ".join(arguments) + ",",
        )
    )
    return "\n".join(parts)


def _bindings(parameters: dict[str, Kind]) -> tuple[list[str], list[str]]:
    """Lines that make the arguments of a function from the stage's state, and the arguments."""
    lines, arguments, tables = [], [], 0
    for number, kind in enumerate(parameters.values()):
        variable = f"{PREFIX}argument_{number}"
        if kind.word == "state" and kind.layout is not None:
            layout = f"{PREFIX}layout"
            lines.append(f"{variable} = _ws_as_state({layout}(state + {state_offset(parameters)}))")
        elif kind.word == "array":
            at = runtime.TABLES + runtime.Table.size * tables
            tables += 1
            address, length = f"_ws_load_i64(state + {at})", f"_ws_load_i64(state + {at + 8})"
            lines.append(f"{variable} = _ws_array_at({address}, {length}, {kind.code!r})")
        else:
            variable = "pkt"
        arguments.append(variable)
    return lines, arguments


def state_offset(parameters: dict[str, Kind]) -> int:
    """Where the user's own state lies behind the tables, on a cache line of its own."""
    tables = sum(kind.word == "array" for kind in parameters.values())
    return -(-(runtime.TABLES + runtime.Table.size * tables) // 64) * 64


def _imports(program: Program) -> str:
    """The lines by which a module gets the names of ours that it uses."""
    imported: dict[str, list[str]] = {
        "wirespeed.jit.kernel": ["kernel", "stage"],
        "wirespeed.jit.intrinsics": ["load_i64", "store_i64"],
        "wirespeed.jit.guard": ["guarded"],
        "wirespeed.jit.region": ["array_at", "as_state", "find_layout"],
        "wirespeed.engine.function.runtime": ["User", "enter", "arrive", "leave"],
    }
    lines = {where: [f"{name} as {PREFIX}{name}" for name in names] for where, names in imported.items()}
    aliases = [f"{PREFIX}int = np.int64"]
    for name in sorted(program.runtime - {"int"}):
        where, what = ORIGINS[name]
        if where:
            lines.setdefault(where, []).append(f"{what} as {PREFIX}{name}")
        elif what:
            aliases.append(f"{PREFIX}{name} = {what}")
    imports = [f"from {where} import ({', '.join(names)})" for where, names in lines.items()]
    return "\n".join(["import numpy as np", "", *imports, "", *aliases, ""])
