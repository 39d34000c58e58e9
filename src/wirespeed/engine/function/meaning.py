"""What every part of a translator builds on: translated values, constants, and what names mean outside of the function."""

import ast
import operator
import types
from typing import Any, NamedTuple

from wirespeed.engine.function.advice import did_you_mean, of_value
from wirespeed.engine.function.arithmetic import wrap
from wirespeed.engine.function.kinds import BOOL, INT, Kind
from wirespeed.engine.function.source import Missing, Source, UnknownName
from wirespeed.engine.function.unit import PREFIX, Program


class Value(NamedTuple):
    """A translated expression and what it is."""

    node: ast.expr
    kind: Kind


class Local(Exception):
    """Not a constant: the expression begins with a variable of the function."""


class Meaning:
    """The part of a translator that knows names and constants."""

    def __init__(self, program: Program, source: Source) -> None:
        self.program = program
        self.source = source
        self.wrong = source.wrong
        code = source.function.__code__
        self.locals = set(code.co_varnames) | set(code.co_cellvars)
        self.kinds: dict[str, Kind] = {}
        self.assigned: set[str] = set()  # names that have a value on every path that leads here
        self.size = 0
        self.loops = 0
        self._temporaries = 0

    def value(self, node: ast.expr) -> Value:
        """Translate an expression."""
        raise NotImplementedError

    def number(self, node: ast.expr) -> ast.expr:
        """Translate an expression that must be a number."""
        raise NotImplementedError

    # What the translated code is made of

    def ours(self, name: str, at: ast.AST, *arguments: ast.expr) -> ast.expr:
        """A call of one of our functions.

        Literal arguments are converted, for numba would compile a kernel anew for each literal.
        """
        self.program.runtime.add(name)
        typed = [self.ours("int", at, a) if isinstance(a, ast.Constant) and name != "int" else a for a in arguments]
        function = ast.Name(PREFIX + name, ast.Load())
        return ast.copy_location(ast.Call(function, typed, []), at)

    def temporary(self) -> str:
        """A new variable of ours."""
        self._temporaries += 1
        return f"{PREFIX}t{self._temporaries}"

    def constant(self, value: Any, at: ast.AST, name: str) -> Value:
        """A number known now."""
        if isinstance(value, bool):
            return Value(ast.copy_location(ast.Constant(int(value)), at), BOOL)
        try:
            number = operator.index(value)
        except TypeError:
            raise self.wrong(at, of_value(value, name)) from None
        if not -(1 << 63) <= number < 1 << 64:
            raise self.wrong(at, f"{name} does not fit into 64 bits; numbers here have 64 bits and wrap")
        return Value(ast.copy_location(ast.Constant(wrap(number)), at), INT)

    def meaning(self, node: ast.expr) -> Any:
        """What a name, or a dotted name, that the function does not assign stands for."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            try:
                return self.source.value(node.id)
            except Missing:
                every = [*self.locals, *self.source.function.__globals__]
                message = f"there is no {node.id!r}{did_you_mean(node.id, every)}"
                raise self.wrong(node, message, UnknownName) from None
        if isinstance(node, ast.Attribute):
            base = self.meaning(node.value)
            if not isinstance(base, types.ModuleType | type):
                raise self.wrong(node, of_value(base, ast.unparse(node.value)))
            try:
                return getattr(base, node.attr)
            except AttributeError:
                hint = did_you_mean(node.attr, dir(base))
                raise self.wrong(node, f"{ast.unparse(node.value)} has no {node.attr!r}{hint}") from None
        raise Local

    def numbers_of(self, node: ast.expr) -> tuple[int, ...] | None:
        """The numbers of a constant tuple, written out or by a name; None for anything else."""
        if isinstance(node, ast.Tuple):
            elements = [self.value(element).node if _plain(element) else None for element in node.elts]
            numbers = [known(e) if e is not None else None for e in elements]
            return None if None in numbers else tuple(n for n in numbers if n is not None)
        try:
            value = self.meaning(node)
        except Local:
            return None
        if not isinstance(value, tuple):
            return None
        return tuple(known(self.constant(v, node, f"an element of {ast.unparse(node)}").node) or 0 for v in value)


def known(node: ast.expr) -> int | None:
    """The number that a translated expression is, when that is known now."""
    return int(node.value) if isinstance(node, ast.Constant) else None  # type: ignore[arg-type]


def _plain(node: ast.expr) -> bool:
    """Whether an element of a tuple can be translated twice without harm."""
    return not any(isinstance(n, ast.Call) for n in ast.walk(node))
