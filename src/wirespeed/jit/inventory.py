"""What this process has of compiled code: every kernel, and how many bytes its machine code takes.

Always-inline multiplies code, so the sizes are printed by ``wirespeed warm`` and watched.
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from wirespeed.jit.kernel import Stage, Whole


class Entry(NamedTuple):
    """One signature of one kernel that Python or the engine calls: its name, its bytes of code with all it calls."""

    name: str
    code_bytes: int


def stages() -> list[Stage]:
    """Every stage that stands in a module imported so far."""
    return list(dict.fromkeys(value for value in _values() if isinstance(value, Stage)))


def entries() -> list[Entry]:
    """Every kernel that has been compiled or loaded, by name; one that has two signatures is there twice."""
    found = {}
    for value in _values():
        dispatcher = value.kernel if isinstance(value, Whole) else value
        if getattr(getattr(dispatcher, "py_func", None), "__wirespeed__", False):
            found[id(dispatcher)] = dispatcher
    listed = [Entry(_name(d), code.size) for d in found.values() for code in d.wirespeed.codes.values()]
    return sorted(listed, key=lambda entry: entry.name)


def _values() -> Iterator[Any]:
    for name, module in list(sys.modules.items()):
        if name.startswith("wirespeed") and module is not None:
            yield from list(vars(module).values())


def _name(dispatcher: Any) -> str:
    function = dispatcher.py_func
    return f"{function.__module__.removeprefix('wirespeed.')}.{function.__name__}"
