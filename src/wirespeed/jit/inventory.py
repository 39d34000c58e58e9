"""What this process has of compiled code: every kernel, and how many bytes its machine code takes.

Always-inline multiplies code, so the sizes are printed by ``wirespeed warm`` and watched.
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from numba.core import sigutils

from wirespeed.jit import kernel
from wirespeed.jit.kernel import Stage

SECTIONS = (b".text", b".ltext")  # where LLVM puts code, in the small and in the large code model


class Entry(NamedTuple):
    """One signature of one kernel: its name, and its bytes of code, or None where the cache did not keep it."""

    name: str
    code_bytes: int | None


def stages() -> list[Stage]:
    """Every stage that stands in a module imported so far."""
    return list(dict.fromkeys(value for value in _values() if isinstance(value, Stage)))


def entries() -> list[Entry]:
    """Every kernel that has been compiled or loaded, by name; one that has two signatures is there twice."""
    found = {}
    for value in _values():
        dispatcher = value.kernel if isinstance(value, Stage | kernel.Entry) else value
        if getattr(getattr(dispatcher, "py_func", None), "__wirespeed__", False):
            found[id(dispatcher)] = dispatcher
    listed = [Entry(_name(d), code_bytes(d, result)) for d in found.values() for result in d.overloads.values()]
    return sorted(listed, key=lambda entry: entry.name)


def code_bytes(dispatcher: Any, result: Any) -> int | None:
    """Bytes of machine code of one compilation of a kernel, with all that was inlined into it."""
    compiled = result.library._compiled_object or _cached_object(dispatcher, result)
    if compiled is None:
        return None
    # LLVM keeps what it was given only as a view, so ``compiled`` lives until the sections are read.
    sections = llvm.ObjectFileRef.from_data(compiled).sections()
    return sum(section.size() for section in sections if section.name() in SECTIONS)


def _cached_object(dispatcher: Any, result: Any) -> bytes | None:
    """The object file of a compilation that came from the disk cache; numba drops it once it is loaded."""
    file, target = dispatcher._cache._cache_file, result.library.codegen.magic_tuple()
    # A kernel is kept under what its first caller asked for: a signature, its text, or the types of the arguments.
    for key in file._load_index():
        if key[1] == target and sigutils.normalize_signature(key[0])[0] == result.signature.args:
            _name, _kind, (compiled, _bitcode) = file.load(key)[0]
            return bytes(compiled)
    return None


def _values() -> Iterator[Any]:
    for name, module in list(sys.modules.items()):
        if name.startswith("wirespeed") and module is not None:
            yield from list(vars(module).values())


def _name(dispatcher: Any) -> str:
    function = dispatcher.py_func
    return f"{function.__module__.removeprefix('wirespeed.')}.{function.__name__}"
