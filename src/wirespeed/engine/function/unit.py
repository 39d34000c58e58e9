"""What translating a user's function yields: its code, the functions that it calls, and what it does to packets."""

import ast
from dataclasses import dataclass, field
from types import FunctionType
from typing import Protocol

from wirespeed.engine.function.kinds import Kind
from wirespeed.engine.function.source import Source
from wirespeed.errors import FunctionError

PREFIX = "_ws_"  # of every name that translated code uses beside the user's own
MOST_INLINE = 60  # statements of a function that is still put into its caller
MOST_STATEMENTS = 20_000  # of a function with all that it calls, each time it calls it


@dataclass
class Unit:
    """One function, translated for arguments of certain kinds."""

    tree: ast.FunctionDef
    file: str  # in which it was written
    result: Kind
    loops: bool  # whether it may go on for long
    size: int  # statements, those of what it calls included


class Translate(Protocol):
    """Translates one function; given to a program so that it can translate what the function calls."""

    def __call__(self, program: "Program", source: Source, name: str, kinds: tuple[Kind, ...]) -> Unit: ...


@dataclass
class Program:
    """A user's function and every function that it calls."""

    translate: Translate
    units: dict[tuple[FunctionType, tuple[Kind, ...]], Unit] = field(default_factory=dict)
    arrays: dict[tuple[int, ...], str] = field(default_factory=dict)  # longer constants, by their names
    want: int = 0  # bits of the headers that are named anywhere, for the parser
    writes: bool = False  # whether it may change a packet
    runtime: set[str] = field(default_factory=set)  # names of ours that the code uses
    _under_way: list[FunctionType] = field(default_factory=list)

    def unit(self, function: FunctionType, kinds: tuple[Kind, ...], caller: Source, node: ast.AST) -> Unit:
        """The unit for a function that is called with arguments of those kinds."""
        if function in self._under_way:
            chain = [f.__name__ for f in self._under_way[self._under_way.index(function) :]]
            path = " -> ".join([*chain, function.__name__])
            raise caller.wrong(node, f"it calls itself ({path}); write a loop instead")
        if (function, kinds) not in self.units:
            self._under_way.append(function)
            name = f"{PREFIX}{len(self.units) + len(self._under_way)}_{function.__name__}"
            try:
                self.units[function, kinds] = self.translate(self, Source(function), name, kinds)
            finally:
                self._under_way.pop()
        return self.units[function, kinds]

    def main(self, source: Source, kinds: tuple[Kind, ...]) -> Unit:
        """Translate the user's function itself."""
        self._under_way.append(source.function)
        unit = self.translate(self, source, source.name, kinds)
        if unit.size > MOST_STATEMENTS:
            raise FunctionError(
                f"{source.name} has {unit.size} statements with all that it calls, at most {MOST_STATEMENTS} can be "
                "compiled; split it into several functions joined by >>"
            )
        return unit

    def array(self, values: tuple[int, ...]) -> str:
        """The name under which the code finds a constant that is too long to be written out."""
        return self.arrays.setdefault(values, f"{PREFIX}constant_{len(self.arrays)}")
