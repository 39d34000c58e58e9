"""A user's function in one run: a state for each worker, tables bound, counters added up."""

from collections.abc import Mapping
from typing import Any

from wirespeed.core.stage import Placement, Site
from wirespeed.engine.function import generate, runtime
from wirespeed.engine.function.edit import seed as first_word
from wirespeed.engine.function.kinds import Kind
from wirespeed.engine.function.runtime import FunctionState
from wirespeed.jit.kernel import Stage
from wirespeed.jit.layout import Layout


class FunctionPart:
    """An open function.  ``states`` has the user's own state of each worker, while the run lasts."""

    def __init__(
        self, stage: Stage, kinds: dict[str, Kind], tables: Mapping[str, Any], state: Layout | None, seed: int
    ) -> None:
        self.stage, self._kinds, self._tables = stage, kinds, dict(tables)
        self._layout, self._seed = state, seed
        self._addresses: list[int] = []
        self._final: dict[str, int | str] | None = None

    def place(self, site: Site) -> Placement:
        """Make this worker's state."""
        offset = generate.state_offset(self._kinds)
        address = site.arena.alloc(offset + (self._layout.size if self._layout else 0))
        FunctionState.at(address).random = first_word(self._seed, site.worker)
        self.fill_tables(address, self._kinds, self._tables)
        self._addresses.append(address + offset)
        return Placement(self.stage.address, address, runtime.DROPS, keep=self._tables)

    @staticmethod
    def fill_tables(state: int, kinds: dict[str, Kind], tables: Mapping[str, Any]) -> None:
        """Write address and length of each table behind a state's own fields."""
        at = state + runtime.TABLES
        for name, kind in kinds.items():
            if kind.word == "array":
                runtime.Table.at(at).address, runtime.Table.at(at).length = tables[name].ctypes.data, len(tables[name])
                at += runtime.Table.size

    @property
    def states(self) -> list[Any]:
        """The workers' own states, as records."""
        return [self._layout.at(address) for address in self._addresses] if self._layout else []

    def counters(self) -> dict[str, int | str]:
        """The sum over all workers of each number in the user's state; arrays are not among them."""
        if self._final is not None:
            return self._final
        found: dict[str, int | str] = {}
        if self._layout:
            for path in _numbers(self._layout):
                found[".".join(path)] = sum(_value(state, path) for state in self.states)
        return found

    def close(self) -> None:
        """Keep the counters, for the states' memory goes when the run ends."""
        self._final = self.counters()
        self._addresses.clear()


def _numbers(layout: Layout) -> list[tuple[str, ...]]:
    """The names that lead to each number of a layout."""
    paths: list[tuple[str, ...]] = []
    for name, field in layout.fields.items():
        if field.sub is not None:
            paths += [(name, *rest) for rest in _numbers(field.sub)]
        elif not field.count:
            paths.append((name,))
    return paths


def _value(record: Any, path: tuple[str, ...]) -> int:
    for name in path:
        record = getattr(record, name)
    return int(record)
