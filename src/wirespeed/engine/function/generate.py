"""Makes a stage of a translated function: the source of a module, its file in the cache, and the module loaded.

Theory of operation
-------------------
numba keeps what it compiled by the file and line of a function, so that only a function in a file of its own can be
found again by the next process.  The text of the module is all that the machine code depends on: the translated code
with its constants written out, the layouts by name and hash, the formats of tables.  The file is named after the hash
of that text and of our own sources, so that two functions never meet and one that is changed is another one.
"""

import ast
import copy
import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from wirespeed.engine.function import runtime
from wirespeed.engine.function.arithmetic import NATIVE, WRAPPING
from wirespeed.engine.function.kinds import Kind
from wirespeed.engine.function.unit import MOST_INLINE, PREFIX, Program, Unit
from wirespeed.jit import cache
from wirespeed.jit.kernel import Stage

# Where translated code's names of ours come from, when not from runtime under the same name.
_HEADER = ("array_at", "as_state", "find_layout", "get_element", "get_slot", "guarded", "present", "set_element")
_WORDS = {f"{put}u{bits}": f"{'put' if put else 'get'}_be{bits}" for put in ("", "put_") for bits in (16, 32, 64)}
_ARITHMETIC = {
    "floor_divide": "floor_divide", "remainder": "remainder", "shift_left": "shift_left",
    "shift_right": "shift_right", "count": "kernel_count",
}  # fmt: skip
_BUILTIN = {"truth": "bool", "min": "min", "max": "max", "range": "range", "absolute": "abs", "int": "np.int64"}

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
        if name in ("floor_divide", "remainder", "shift_left", "shift_right") and isinstance(plain[1], ast.Constant):
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
    lines = ["import numpy as np", ""]
    sources: dict[str, list[str]] = {
        "wirespeed.jit.kernel": ["kernel as _ws_kernel", "stage as _ws_stage"],
        "wirespeed.jit.intrinsics": ["load_i64 as _ws_load_i64", "store_i64 as _ws_store_i64"],
        "wirespeed.jit.header": [
            "guarded as _ws_guarded",
            "array_at as _ws_array_at",
            "as_state as _ws_as_state",
            "find_layout as _ws_find_layout",
        ],
        "wirespeed.engine.function.runtime": [f"{n} as _ws_{n}" for n in ("User", "enter", "arrive", "leave")],
        "wirespeed.engine.function.arithmetic": [],
        "wirespeed.jit.wrapping": [],
    }
    aliases = {"int": "np.int64"}
    for name in sorted(program.runtime):
        where, what = _origin(name)
        if where:
            sources[where].append(f"{what} as {PREFIX}{name}")
        elif what:
            aliases[name] = what
    for where, names in sources.items():
        if names:
            lines.append(f"from {where} import ({', '.join(dict.fromkeys(names))})")
    return "\n".join([*lines, "", *(f"{PREFIX}{name} = {what}" for name, what in aliases.items()), ""])


def _origin(name: str) -> tuple[str, str]:
    """The module that a name of ours comes from ("" for an expression), and what it is there."""
    if name in _BUILTIN:
        return "", _BUILTIN[name]
    if name in _ARITHMETIC:
        return "wirespeed.engine.function.arithmetic", _ARITHMETIC[name]
    if name in NATIVE or name == "negate":
        return "", ""
    if name in WRAPPING:
        return "wirespeed.jit.wrapping", name
    if name in _WORDS:
        return "wirespeed.jit.header", _WORDS[name]
    if name in _HEADER:
        return "wirespeed.jit.header", name
    return "wirespeed.engine.function.runtime", "locate_headers" if name == "locate" else name


_loaded: dict[str, ModuleType] = {}


def load(source: str, name: str) -> Stage:
    """The stage of a generated module's text, from the module as this process has it, or from its file."""
    stamp = cache.stamp(Path(__file__))
    digest = hashlib.sha256("\0".join([source, stamp, cache.mode()]).encode()).hexdigest()[:16]
    title = f"{name[:40]}_{digest}"
    if title not in _loaded:
        _loaded[title] = _import(title, _file(title, source))
    made: Stage = getattr(_loaded[title], f"{PREFIX}stage_{name}")
    return made


def _file(title: str, source: str) -> Path:
    """The module's file, written in one step so that another process never sees half of it."""
    path = cache.root() / "functions" / f"{title}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as f:
            f.write(source)
        os.replace(f.name, path)
    return path


def _import(title: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"wirespeed_functions.{title}", path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where numba looks for it
    spec.loader.exec_module(module)
    return module
