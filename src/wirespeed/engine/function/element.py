"""A user's function as an element of a graph: ``@ws.function``.

Theory of operation
-------------------
A :class:`Function` is a description, as every element is.  What it is made of is settled when it is first used (opened
for a run, or called with a frame): its source, the functions that it calls, and every constant that it reads are then
translated once; the interpreted and the compiled form are made of that translation.  State and tables belong to a run,
or to one call.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, overload

from wirespeed.core.element import Element
from wirespeed.core.frame import as_packets
from wirespeed.engine.function import generate, load, runtime, twin
from wirespeed.engine.function.edit import seed as first_word
from wirespeed.engine.function.interpreted import interpreted
from wirespeed.engine.function.kinds import PACKET, Kind
from wirespeed.engine.function.kinds import state as state_kind
from wirespeed.engine.function.part import FunctionPart
from wirespeed.engine.function.source import Source, UnknownName
from wirespeed.engine.function.stand import Stand, run
from wirespeed.engine.function.statements import translate
from wirespeed.engine.function.table import kind_of
from wirespeed.engine.function.unit import PREFIX, Program, Unit
from wirespeed.errors import FunctionError, GraphError
from wirespeed.jit import libc
from wirespeed.jit.kernel import Stage
from wirespeed.jit.layout import Layout
from wirespeed.net.parse import BITS


class Function(Element):
    """A plain Python function of one packet, to be compiled.

    ``python`` is the function itself, ``state`` the layout of its state, ``tables`` its arrays by name.  It can be
    called with a frame: see :meth:`__call__`.
    """

    def __init__(
        self,
        python: types.FunctionType,
        *,
        state: Layout | None = None,
        seed: int = 0,
        tables: Mapping[str, Any] | None = None,
    ) -> None:
        self.python = python
        self.name = python.__name__
        self.state = state
        self.seed = seed
        self.tables = dict(tables or {})
        self.__doc__, self.__module__, self.__wrapped__ = python.__doc__, python.__module__, python
        self._source = Source(python)
        self._parameters = list(inspect.signature(python).parameters)
        self._check_parameters()
        self._translated: tuple[Program, Unit] | None = None
        self._stage: Stage | None = None
        self._interpreted: Callable[..., int] | None = None
        if not self.unbound:
            try:
                self._translate()
            except UnknownName:
                pass  # what stands further down in the file is looked for again on the first use

    def _check_parameters(self) -> None:
        if self.name.startswith(PREFIX):
            raise FunctionError(f"names that begin with {PREFIX} are taken; choose another one than {self.name}")
        if not self._parameters:
            raise FunctionError(f"{self.name} takes no packet; write def {self.name}(pkt): ...")
        if self.state is not None and not isinstance(self.state, Layout):
            raise FunctionError(f"{self.name}: state is a {type(self.state).__name__}; give a layout, ws.layout(...)")
        if self.state is not None and len(self._parameters) < 2:
            raise FunctionError(f"{self.name} takes no state; write def {self.name}({self._parameters[0]}, my): ...")
        for name, value in self.tables.items():
            if name not in self._table_names():
                have = ", ".join(self._table_names()) or "none"
                raise FunctionError(f"{self.name} has no parameter {name!r} for a table; those for tables are: {have}")
            kind_of(self.name, name, value)

    def _table_names(self) -> list[str]:
        return self._parameters[1 if self.state is None else 2 :]

    @property
    def unbound(self) -> list[str]:
        """Parameters for which no table is given yet."""
        return [name for name in self._table_names() if name not in self.tables]

    def kinds(self) -> dict[str, Kind]:
        """What each parameter is: the packet, the state, then tables."""
        if self.unbound:
            missing = ", ".join(f"{name}=array" for name in self.unbound)
            raise FunctionError(f"{self.name} lacks {', '.join(self.unbound)}; give it: {self.name}.bind({missing})")
        found = {self._parameters[0]: PACKET}
        if self.state is not None:
            found[self._parameters[1]] = state_kind(self.state)
        return found | {name: kind_of(self.name, name, self.tables[name]) for name in self._table_names()}

    def _translate(self) -> tuple[Program, Unit]:
        program = Program(translate)
        return program, program.main(self._source, tuple(self.kinds().values()))

    def translated(self) -> tuple[Program, Unit]:
        """The function with all that it calls, as it was when this was first asked for."""
        if self._translated is None:
            self._translated = self._translate()
        return self._translated

    @property
    def writes(self) -> bool:
        """Whether it may change a packet; one that is held more than once is copied before."""
        return self.translated()[0].writes

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that are looked for in each packet, because the function names them."""
        want = self.translated()[0].want
        return tuple(name for name, bit in BITS.items() if want & bit)

    @property
    def generated(self) -> str:
        """The source of the module that is compiled for it."""
        return generate.text(*self.translated(), self.kinds())

    def stage(self) -> Stage:
        """The compiled form; compiles it, or loads it from the cache, the first time."""
        if self._stage is None:
            stage = load.load(self.generated, self.name)
            try:
                stage.address  # noqa: B018  (compiles it)
            except Exception as error:
                reason = str(error).strip().splitlines() or [repr(error)]
                raise FunctionError(f"{self.name} cannot be compiled, which the checks before should have found out:\n"
                                    f"{reason[0]}") from error  # fmt: skip
            self._stage = stage
        return self._stage

    def bind(self, **tables: Any) -> "Function":
        """The same function with other tables; those that are not named stay."""
        return Function(self.python, state=self.state, seed=self.seed, tables=self.tables | tables)

    def open(self, role: str, workers: int) -> FunctionPart:
        """Open it for one run."""
        if role != "stage":
            raise GraphError(
                f"{self.name} is a function and stands at an end; put ports around it: port >> function >> port"
            )
        stage, kinds = self.stage(), self.kinds()
        return FunctionPart(stage, kinds, self.tables, self.state, self.seed)

    # Trying it on one frame

    def new_state(self) -> twin.State:
        """A zeroed state to be given to calls: ``f(frame, state=mine)`` reads and writes it."""
        if self.state is None:
            raise FunctionError(f"{self.name} has no state; name its layout: @ws.function(state=...)")
        return twin.OwnState(self.state)

    def __call__(
        self,
        frame: Any,
        *,
        compiled: bool = False,
        state: twin.State | None = None,
        seed: int | None = None,
        **record: int,
    ) -> tuple[int, bytes]:
        """Run it on one frame: bytes, or anything with ``__bytes__``; return the verdict and the bytes afterwards.

        Interpreted unless ``compiled``, with the same result.  ``state`` comes from :meth:`new_state`; without one it
        begins with zeros.  ``time``, ``port``, ``wire``, ``link`` and ``mark`` set what the packet has beside its bytes.
        """
        (given,) = as_packets([frame])
        known = {name: getattr(given, name) for name in ("time", "port", "wire", "link", "mark")}
        if not known.keys() >= record.keys():
            raise TypeError(f"a packet has {', '.join(known)}, got {', '.join(record.keys() - known.keys())}")
        kinds = self.kinds()
        offset = generate.state_offset(kinds)
        stand = Stand(given.data, offset + (self.state.size if self.state else 0), known | record)
        try:
            self._prepare(stand.state, kinds, self.seed if seed is None else seed)
            if state is not None:
                libc.copy_in(stand.state + offset, libc.copy_out(state.ws_address, state.ws_layout.size))
            verdict = (
                run(self.stage(), stand, self.translated()[1].loops) if compiled else self._interpret(stand, kinds)
            )
            if state is not None:
                libc.copy_in(state.ws_address, libc.copy_out(stand.state + offset, state.ws_layout.size))
            return verdict, stand.data()
        finally:
            stand.close()

    def _prepare(self, state: int, kinds: dict[str, Kind], seed: int) -> None:
        runtime.FunctionState.at(state).random = first_word(seed, 0)
        FunctionPart.fill_tables(state, kinds, self.tables)

    def _interpret(self, stand: Stand, kinds: dict[str, Kind]) -> int:
        program, _ = self.translated()
        arguments: list[Any] = []
        for name, kind in kinds.items():
            if kind == PACKET:
                arguments.append(twin.Packet(stand.packet, stand.state, program.want))
            elif kind.layout is not None:
                arguments.append(twin.State(kind.layout, stand.state + generate.state_offset(kinds)))
            else:
                table = self.tables[name]
                arguments.append(twin.Array(table.ctypes.data, len(table), kind.code))
        return int(self.interpreted()(*arguments))

    def interpreted(self) -> Callable[..., int]:
        """The interpreted form."""
        if self._interpreted is None:
            self._interpreted = interpreted(*self.translated(), self.python.__module__)
        return self._interpreted


@overload
def function(python: Callable[..., int], /) -> Function: ...
@overload
def function(
    *, state: Layout | None = None, seed: int = 0, **tables: Any
) -> Callable[[Callable[..., int]], Function]: ...


def function(python: Any = None, /, *, state: Layout | None = None, seed: int = 0, **tables: Any) -> Any:
    """Make an element of a graph of a plain Python function that takes a packet and returns its verdict.

    ``@ws.function`` or ``@ws.function(state=Layout, name=array, ...)``: the parameter behind the packet is then the
    state, a record of that layout for each worker, and every other one is named after the array that it gets.  The
    verdict is the number of the output, or ``ws.DROP``.  ``seed`` chooses the random numbers.
    """
    if python is None:
        return lambda f: function_of(f, state, seed, tables)
    return function_of(python, state, seed, tables)


def function_of(python: Any, state: Layout | None, seed: int, tables: Mapping[str, Any]) -> Function:
    """Make a Function of what was decorated."""
    if not isinstance(python, types.FunctionType):
        what = type(python).__name__
        raise FunctionError(f"wanted a plain function to compile, got {python!r} ({what}); write def f(pkt): ...")
    return Function(python, state=state, seed=seed, tables=tables)
