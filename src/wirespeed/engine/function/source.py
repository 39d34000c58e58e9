"""A Python function as it was written: its syntax tree with the lines of its file, and what its free names mean."""

import ast
import builtins
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from wirespeed.errors import FunctionError


class Missing(Exception):
    """A name that has no value, or none yet."""


class Source:
    """One plain Python function.  ``tree`` is its definition, ``file`` where it stands, ``name`` what errors call it."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.name = function.__name__
        self.file = function.__code__.co_filename
        self.tree = _definition(function)

    def wrong(self, node: ast.AST | None, message: str, error: type[FunctionError] = FunctionError) -> FunctionError:
        """The error that the function cannot be compiled because of ``node``."""
        line = getattr(node, "lineno", self.tree.lineno)
        return _error(self.name, self.file, line, message, error)

    def value(self, name: str) -> Any:
        """What a name that the function does not assign means: in its closure, its module or among the builtins."""
        code = self.function.__code__
        if name in code.co_freevars:
            cell = (self.function.__closure__ or ())[code.co_freevars.index(name)]
            try:
                return cell.cell_contents
            except ValueError:
                raise Missing(name) from None
        for scope in (self.function.__globals__, vars(builtins)):
            if name in scope:
                return scope[name]
        raise Missing(name)


class UnknownName(FunctionError):
    """A name is not known (yet): what stands further down in a file is defined later."""


def _error(name: str, file: str, line: int, message: str, error: type[FunctionError] = FunctionError) -> FunctionError:
    made = error(f"{name}, line {line}: {message}")
    made.file, made.line = file, line
    return made


def _definition(function: types.FunctionType) -> ast.FunctionDef:
    """The syntax tree of a function, found by the place where it begins in its file."""
    code = function.__code__
    try:
        lines, _ = inspect.findsource(function)
    except (OSError, TypeError, IndexError):
        raise _error(
            function.__name__, code.co_filename, code.co_firstlineno,
            "its source cannot be found, as of a function made by exec; define it in a file or a notebook",
        ) from None  # fmt: skip
    text = "".join(lines)
    for node in _functions(text):
        if node.name == code.co_name and _first_line(node) == code.co_firstlineno and _same(text, function):
            return node
    if code.co_flags & inspect.CO_COROUTINE:
        raise _error(function.__name__, code.co_filename, code.co_firstlineno, "it is async; write a plain def instead")
    if code.co_name == "<lambda>":
        raise _error("a lambda", code.co_filename, code.co_firstlineno, "write a function with def instead")
    raise _error(
        function.__name__, code.co_filename, code.co_firstlineno,
        f"{code.co_filename} has changed since the function was defined; define it again (reload or restart)",
    )  # fmt: skip


@functools.lru_cache(8)
def _functions(text: str) -> tuple[ast.FunctionDef, ...]:
    try:
        return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    except SyntaxError:
        return ()


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


@functools.lru_cache(8)
def _codes(text: str, file: str) -> tuple[types.CodeType, ...]:
    def inside(code: types.CodeType) -> Iterator[types.CodeType]:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from inside(constant)

    # A notebook's cell may await outside of any function.
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return tuple(inside(compile(text, file, "exec", flags, dont_inherit=True)))


def _same(text: str, function: types.FunctionType) -> bool:
    """Whether ``text`` still compiles to the code that the function has: a file may be edited under a running program."""
    code = function.__code__
    for found in _codes(text, code.co_filename):
        if found.co_name == code.co_name and found.co_firstlineno == code.co_firstlineno:
            return found.co_code == code.co_code and found.co_names == code.co_names
    return False
