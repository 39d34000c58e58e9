"""The folders are the architecture: who may import what, and the other rules that a program can check.

``violations(tree)`` reads every module of a ``wirespeed`` source tree with ``ast``, without importing it, and returns
one line for each broken rule: where, what, and why it is wrong. The tests at the foot plant each kind of violation in
a small tree, so that a checker that has gone blind is seen.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "src" / "wirespeed"

NAMES = ["jit", "core", "net", "tables", "ports", "engine", "switch", "observe", "apps", "cli"]
NUMBER = {name: number for number, name in enumerate(NAMES)}
TOP_LEVEL = {"__init__", "__main__", "errors"}

COMPILERS = {"numba", "llvmlite"}
COMPILE_CALLS = {"njit", "cfunc"}
NUMBA_COMPILE_CALLS = {"jit", "vectorize", "guvectorize", "generated_jit", "stencil"}
THREAD_MODULES = {"threading", "_thread", "concurrent", "multiprocessing", "asyncio"}
HARMLESS = {"Lock", "RLock", "current_thread", "main_thread"}
ODDS_AND_ENDS = {"util", "utils", "common", "helper", "helpers", "misc"}

# Decorators under which numba types a function, or reads its arguments in a way of its own.
NUMBA_DECORATORS = {
    "callback", "entry", "kernel", "stage", "function", "intrinsic", "overload", "overload_method", "overload_attribute",
    "register_jitable", "type_callable", "infer_getattr", "lower_builtin", "lower_cast", "lower_constant",
    "lower_getattr", "lower_getattr_generic", "lower_setattr", "lower_setattr_generic", "register", "box", "unbox",
}  # fmt: skip
EMITS_CODE = {"builder", "context"}  # what numba hands to the functions that write LLVM code; it has no types


@dataclass(frozen=True)
class Import:
    """One imported module, with the names taken from it; ``names`` is empty for ``import module``."""

    line: int
    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Module:
    """A parsed source file and its place in the tree."""

    path: Path
    tree: Path
    syntax: ast.Module

    @property
    def parts(self) -> tuple[str, ...]:
        """The path below the tree without the suffix: ``("jit", "kernel")``."""
        return self.path.relative_to(self.tree).with_suffix("").parts

    @property
    def package(self) -> str | None:
        """The package of the ten that the module is in; None at the top level."""
        return self.parts[0] if len(self.parts) > 1 else None

    def says(self, line: int, message: str) -> str:
        return f"{self.path.relative_to(self.tree.parent)}:{line}: {message}"

    def imports(self) -> Iterator[Import]:
        """Yield every import wherever it stands: in a function and under TYPE_CHECKING it is a dependency too."""
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(node.lineno, alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if node.level:
                    here = ("wirespeed", *self.parts)[: -node.level]
                    module = ".".join([*here, module] if module else here)
                yield Import(node.lineno, module, tuple(alias.name for alias in node.names))
            elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
                for argument in node.args[:1]:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield Import(node.lineno, argument.value)


def called(call: ast.Call) -> str:
    """Return the last name of what is called: ``njit`` for ``njit(...)`` and for ``numba.njit(...)``."""
    return last_name(call.func)


def last_name(node: ast.expr) -> str:
    """Return the last name of a dotted expression or of a call of one; "" for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def modules(tree: Path) -> list[Module]:
    """Parse every module below ``tree``."""
    return [Module(path, tree, ast.parse(path.read_bytes(), str(path))) for path in sorted(tree.rglob("*.py"))]


def layering(module: Module) -> Iterator[str]:
    """Imports go down: to a package with a smaller number, to the own one, or to errors."""
    own = module.package
    if own is not None and own not in NUMBER:
        yield module.says(1, f"{own}/ is not one of the packages {', '.join(NAMES)}")
        return
    if own is None and module.parts[0] not in TOP_LEVEL:
        yield module.says(1, f"only {', '.join(sorted(TOP_LEVEL))} stand at the top level; move it into a package")
        return
    if module.parts[0] in ("__init__", "__main__"):
        return  # they show everything; that they do so lazily is tested by running them
    for imported in module.imports():
        root, *rest = imported.module.split(".")
        if root != "wirespeed":
            continue
        # "from wirespeed import core" names the package as much as "import wirespeed.core" does.
        for target in [rest[0]] if rest else imported.names or ("",):
            if own is None:
                why = "errors may be imported from anywhere, so it imports nothing of wirespeed"
            elif target == "errors":
                continue
            elif target not in NUMBER:
                if own == "cli":
                    continue
                why = "wirespeed itself is for users; import from the package that defines the name"
            elif NUMBER[target] > NUMBER[own]:
                why = f"{own} is package {NUMBER[own]} and {target} is {NUMBER[target]}: imports go to smaller numbers"
            else:
                continue
            shown = f"wirespeed.{target}" if target in NUMBER else imported.module
            yield module.says(imported.line, f"imports {shown}, but {why}")


def compilers(module: Module) -> Iterator[str]:
    """Only jit knows numba's and LLVM's inside, and only jit/kernel.py compiles."""
    if module.package != "jit":
        for imported in module.imports():
            if imported.module.split(".")[0] in COMPILERS:
                yield module.says(imported.line, f"imports {imported.module}, but only jit may; use what jit offers")
    if module.parts == ("jit", "kernel"):
        return
    for node in ast.walk(module.syntax):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = last_name(node)
        numbas = isinstance(node, ast.Attribute) and last_name(node.value) == "numba"
        if name in COMPILE_CALLS or (numbas and name in NUMBA_COMPILE_CALLS):
            yield module.says(node.lineno, f"uses {name}, but only jit/kernel.py may; decorate with @kernel")


def threads(module: Module) -> Iterator[str]:
    """Nothing below engine starts a thread or a process; it may have a lock, and ask which thread it is in."""
    if NUMBER.get(module.package or "", len(NAMES)) >= NUMBER["engine"]:
        return
    for imported in module.imports():
        harmless = bool(imported.names) and HARMLESS.issuperset(imported.names)
        if imported.module.split(".")[0] in THREAD_MODULES and not (imported.module == "threading" and harmless):
            why = "nothing below engine starts threads; offer service() (from threading import Lock, RLock is allowed)"
            yield module.says(imported.line, f"imports {imported.module}, but {why}")


def naming(module: Module) -> Iterator[str]:
    """A module is one noun."""
    for part in module.parts:
        if part.strip("_") in ODDS_AND_ENDS:
            yield module.says(1, f"is called {part!r}; put each thing where its noun is")


def docstrings(module: Module) -> Iterator[str]:
    """Every public module says what it is."""
    private = any(part.startswith("_") and not part.startswith("__") for part in module.parts)
    if not private and not ast.get_docstring(module.syntax):
        yield module.says(1, "has no docstring; say in one sentence what the module is")


def unannotated(module: Module) -> Iterator[str]:
    """Yield each function without full annotations that is neither a kernel nor inside one."""

    def visit(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                if any(last_name(decorator) in NUMBA_DECORATORS for decorator in child.decorator_list):
                    continue
                arguments = child.args
                listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                listed += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
                if EMITS_CODE & {argument.arg for argument in listed}:
                    continue
                missing = [a.arg for a in listed if a.annotation is None and a.arg not in ("self", "cls")]
                if child.returns is None and not (child.name == "__init__" and len(listed) > 1):
                    missing.append("the result")
                if missing:
                    what = f"{child.name} is no kernel and lacks annotations for {', '.join(missing)}"
                    yield module.says(child.lineno, what)
            yield from visit(child)

    yield from visit(module.syntax)


RULES = (layering, compilers, threads, naming, docstrings)


def violations(tree: Path) -> list[str]:
    """Return one line for each broken rule in the ``wirespeed`` source tree at ``tree``."""
    found = [line for module in modules(tree) for rule in RULES for line in rule(module)]
    for directory in sorted({path.parent for path in tree.rglob("*.py")}):
        if not (directory / "__init__.py").exists():
            where = directory.relative_to(tree.parent)
            found.append(f"{where}: has modules but no __init__.py; every package has one, with a docstring")
    return found


def kernel_modules() -> list[str]:
    """Return the patterns of pyproject.toml's list of modules whose kernels mypy lets be unannotated."""
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (patterns,) = [entry["module"] for entry in overrides if entry.get("disallow_untyped_defs") is False]
    return list(patterns)


def matches(module: Module, patterns: list[str]) -> bool:
    """Say whether a mypy module pattern names ``module``; ``a.b.*`` names ``a.b`` too."""
    parts = module.parts[:-1] if module.parts[-1] == "__init__" else module.parts
    name = ".".join(("wirespeed", *parts))
    stems = [(pattern.removesuffix(".*"), pattern.endswith(".*")) for pattern in patterns]
    return any(name == stem or (below and name.startswith(stem + ".")) for stem, below in stems)


# ---------------------------------------------------------------------------------------------------------------------
# The source as it is


def test_the_source_keeps_the_architecture() -> None:
    assert modules(TREE), f"no modules under {TREE}"
    assert not (found := violations(TREE)), "\n" + "\n".join(found)


def test_only_kernels_are_unannotated() -> None:
    patterns = kernel_modules()
    found = [line for module in modules(TREE) if matches(module, patterns) for line in unannotated(module)]
    assert not found, "\n" + "\n".join(found)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_importing_wirespeed_does_not_import_numba() -> None:
    done = run_python("-c", "import sys, wirespeed; print(*sorted({'numba', 'llvmlite'} & set(sys.modules)))")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr


def test_help_does_not_import_numba() -> None:
    done = run_python("-X", "importtime", "-m", "wirespeed", "--help")
    assert done.returncode == 0, "\n".join(done.stderr.splitlines()[-5:])
    assert "wirespeed" in done.stdout
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.count("|") == 2}
    assert "argparse" in imported or "wirespeed.cli" in imported, "importtime's output is not understood"
    assert not {"numba", "llvmlite"} & imported


def texts() -> list[Path]:
    """Return the project's own text files."""
    folders = ["src/wirespeed", "tests", "bench", "examples", "docs", ".ci"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file() and path.name != "LICENSE"]
    suffixes = {".py", ".pyi", ".md", ".toml", ".txt", ".cfg", ".ini", ".sh", ".yml", ".yaml", ".html"}
    return sorted(path for path in files if path.suffix in suffixes or path.name in ("Makefile", "run", ".gitignore"))


def lines_with(pattern: str) -> list[str]:
    """Return ``file:line: text`` for each line of the project's text files in which ``pattern`` is found."""
    wanted = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if wanted.search(line)
    ]


def test_nothing_is_left_for_later() -> None:
    words = ["TO" + "DO", "FIX" + "ME", "X" * 3]
    assert not (found := lines_with(rf"\b({'|'.join(words)})\b")), "\n" + "\n".join(found)


def test_no_path_of_one_machine_is_written_down() -> None:
    tops = "|".join(["work", "home", "root", "Users"])
    assert not (found := lines_with(rf"(?<![\w.~*}}\]-])/({tops})/[\w.]")), "\n" + "\n".join(found)


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert not {name: length for name, length in lengths.items() if length > 40}


# ---------------------------------------------------------------------------------------------------------------------
# The checker itself

SOUND: dict[str, str | None] = {
    "__init__.py": "def __getattr__(name):\n    from wirespeed.engine import run\n    return run\n",
    "__main__.py": "from wirespeed.cli import main\n",
    "errors.py": "class WirespeedError(Exception): ...\n",
    "jit/__init__.py": "",
    "jit/kernel.py": "import numba\nfrom numba import njit\nkernel = njit(nogil=True)\n",
    "core/__init__.py": "",
    "core/ring.py": "from threading import Lock\nfrom wirespeed.jit.kernel import kernel\nfrom ..errors import X\n",
    "engine/__init__.py": "",
    "engine/worker.py": "import threading\nfrom wirespeed import core, errors\nfrom . import graph\n",
    "cli/__init__.py": "from wirespeed import __version__\n",
}

PLANTED: list[tuple[str, str | None, str]] = [
    ("core/ring.py", "import wirespeed.engine", "imports wirespeed.engine, but core is package 1 and engine is 5"),
    ("core/ring.py", "from wirespeed.net.ipv4 import IPv4", "imports wirespeed.net, but core is package 1"),
    ("core/ring.py", "from wirespeed import ports", "imports wirespeed.ports"),
    ("core/ring.py", "from ..tables import exact", "imports wirespeed.tables"),
    ("core/ring.py", "from .. import net", "imports wirespeed.net"),
    ("core/__init__.py", "from ..net import parse", "imports wirespeed.net"),
    ("core/ring.py", "def f():\n    import wirespeed.cli", "imports wirespeed.cli"),
    ("core/ring.py", "if TYPE_CHECKING:\n    import wirespeed.cli", "imports wirespeed.cli"),
    ("core/ring.py", "importlib.import_module('wirespeed.cli')", "imports wirespeed.cli"),
    ("core/ring.py", "import wirespeed as ws", "wirespeed itself is for users"),
    ("core/ring.py", "from wirespeed import run", "wirespeed itself is for users"),
    ("errors.py", "from wirespeed.jit import kernel", "it imports nothing of wirespeed"),
    ("version.py", "", "move it into a package"),
    ("pipes/__init__.py", "", "pipes/ is not one of the packages"),
    ("core/ring.py", "import numba", "imports numba, but only jit may"),
    ("core/ring.py", "from llvmlite import ir", "imports llvmlite, but only jit may"),
    ("jit/layout.py", "from numba import njit\n@njit\ndef f(): ...", "uses njit, but only jit/kernel.py may"),
    ("jit/layout.py", "import numba\n@numba.jit(nopython=True)\ndef f(): ...", "uses jit, but only jit/kernel.py may"),
    ("jit/layout.py", "import numba\ng = numba.cfunc('i8(i8)')(f)", "uses cfunc, but only jit/kernel.py may"),
    ("ports/tap.py", "import threading", "imports threading, but nothing below engine starts threads"),
    ("ports/tap.py", "from threading import Lock, Thread", "imports threading"),
    ("ports/tap.py", "import _thread", "imports _thread"),
    ("ports/tap.py", "from concurrent.futures import ThreadPoolExecutor", "imports concurrent.futures"),
    ("core/utils.py", "", "is called 'utils'"),
    ("net/misc/__init__.py", "", "is called 'misc'"),
    ("engine/_helpers.py", "", "is called '_helpers'"),
    ("core/ring.py", None, "has no docstring"),
    ("tables/hash.py", "", "no __init__.py"),
]  # fmt: skip


def plant(root: Path, files: dict[str, str | None]) -> Path:
    """Write ``files`` as a source tree, each with a docstring unless its text is None, and return its top."""
    tree = root / "wirespeed"
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if text is None else f'"""A module."""\n{text}\n')
    return tree


def test_checker_accepts_a_sound_tree(tmp_path: Path) -> None:
    assert violations(plant(tmp_path, SOUND)) == []


@pytest.mark.parametrize(("name", "text", "message"), PLANTED, ids=lambda value: None)
def test_checker_finds_what_is_planted(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    packages: dict[str, str | None] = {f"{package}/__init__.py": "" for package in NAMES if package != "tables"}
    tree = plant(tmp_path, packages | {"__init__.py": "", "errors.py": ""} | {name: text})
    (found,) = violations(tree)
    assert message in found
    assert found.startswith(f"wirespeed/{name}:") or message == "no __init__.py"


def test_checker_names_the_line(tmp_path: Path) -> None:
    tree = plant(tmp_path, {"__init__.py": "", "core/__init__.py": "import os\n\nimport wirespeed.engine"})
    (found,) = violations(tree)
    assert found.startswith("wirespeed/core/__init__.py:4: imports wirespeed.engine, ")


def test_checker_finds_functions_that_are_neither_kernels_nor_annotated(tmp_path: Path) -> None:
    source = (
        "@kernel(inline=True)\ndef a(x, y): return x\n"
        "@jit.intrinsic\ndef b(typing, x):\n    def emit(c, b): ...\n    return emit\n"
        "def emit_load(builder, base): ...\n"
        "def c(x: int) -> int: return x\n"
        "def d(x, y: int) -> int: return x\n"
        "class E:\n    def __init__(self, n: int): ...\n    def f(self): ...\n"
    )
    tree = plant(tmp_path, {"core/ring.py": source})
    (module,) = modules(tree)
    assert [line.split(": ", 1)[1] for line in unannotated(module)] == [
        "d is no kernel and lacks annotations for x",
        "f is no kernel and lacks annotations for the result",
    ]
    assert matches(module, ["wirespeed.core.*"])
    assert not matches(module, ["wirespeed.cor", "wirespeed.core"])
