"""A kernel's own code before it is linked, and how all that a kernel calls becomes one piece of machine code.

Theory of operation
-------------------
numba makes machine code of every function that another one calls, and optimises it again with each caller.  Here a
kernel that is called by kernels is a *part*: its own code, as LLVM's bitcode, and the parts that it calls.  Machine
code is made once, of a kernel that Python or the engine calls: its part and all that it reaches are linked together,
optimised and compiled.  A call chain of ten kernels costs ten small compilations and one large one.

A part is kept on disk under the hash of its content, beside the hashes of those that it calls: what belongs together
is found together, whoever wrote it, and nothing is ever overwritten by something else.
"""

import hashlib
import os
import pickle
import tempfile
from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import rtsys

from wirespeed.jit import cache

_NRT = "nrt"  # numba's own runtime, which every process has
_kept: dict[str, Any] = {}


class Part(JITCodeLibrary):
    """One kernel's own code, and what it calls; it takes the place of numba's library while kernels are compiled."""

    _shared_module: Any = None
    _digest: str | None = None
    _dynamic: bool | None = None

    def add_linking_library(self, library: Any) -> None:
        """Remember what this part calls."""
        if not isinstance(library, Part):
            library._ensure_finalized()
        self._linking_libraries.append(library)

    def _ensure_finalized(self) -> None:
        """A part has no machine code; those that link it have."""

    def own_module(self) -> Any:
        """This part's code, as those that link it need it: each may have its own, and what is not called goes."""
        if self._shared_module is None:
            module = self._final_module.clone()
            for function in module.functions:
                if not function.is_declaration and function.linkage == llvm.Linkage.external:
                    function.linkage = "linkonce_odr"
            self._shared_module = module
        return self._shared_module

    def reached(self) -> list[Any]:
        """The libraries that this one calls, itself or by others, each once and behind all that call it.

        LLVM takes over only what is called by then, so one that came before a caller would be missed.
        """
        order: list[Any] = []
        _visit(self, set(), order)
        return order[-2::-1]

    def link_into(self, module: Any) -> None:
        """Add to a module all that this part calls."""
        for library in self.reached():
            part = library.own_module() if isinstance(library, Part) else library._get_module_for_linking()
            module.link_in(part, preserve=True)

    def _get_module_for_linking(self) -> Any:
        """All of it as one module, for libraries of numba's own that call a kernel."""
        module = llvm.parse_bitcode(self.own_module().as_bitcode())
        self.link_into(module)
        return module

    @property
    def has_dynamic_globals(self) -> bool:
        """Whether the code has addresses of this process in it, so that no other one can use it."""
        if self._dynamic is None:
            own = any(g.name.startswith("numba.dynamic.globals") for g in self._final_module.global_variables)
            self._dynamic = own or any(library.has_dynamic_globals for library in self._linking_libraries)
        return self._dynamic

    @property
    def digest(self) -> str:
        """Under which it is kept on disk; it is written there when it is not yet."""
        if self._digest is None:
            calls = [_digest_of(library) for library in dict.fromkeys(self._linking_libraries)]
            self._digest = _write(("part", self.name, self._final_module.as_bitcode(), calls))
            _kept[self._digest] = self
        return self._digest


def _visit(library: Any, seen: set[int], order: list[Any]) -> None:
    seen.add(id(library))
    for called in library._linking_libraries if isinstance(library, Part) else ():
        if id(called) not in seen:
            _visit(called, seen, order)
    order.append(library)


def _digest_of(library: Any) -> str:
    if isinstance(library, Part):
        return library.digest
    if library is rtsys.library:
        return _NRT
    found: str | None = getattr(library, "_wirespeed_digest", None)
    if found is None:
        found = _write(("other", library.name, library._get_module_for_linking().as_bitcode(), []))
        library._wirespeed_digest = found
        _kept[found] = library
    return found


def _folder() -> Any:
    return cache.root() / cache.mode() / "parts"


def _write(content: Any) -> str:
    """Keep something, in one step; its hash."""
    data = pickle.dumps(content, protocol=5)
    digest = hashlib.sha256(data).hexdigest()[:32]
    path = _folder() / digest[:2] / digest[2:]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    return digest


def _read(digest: str) -> bytes:
    path = _folder() / digest[:2] / digest[2:]
    data: bytes = path.read_bytes()
    if hashlib.sha256(data).hexdigest()[:32] != digest:
        path.unlink(missing_ok=True)  # so that it is written again
        raise OSError(f"{path} is damaged")
    return data


def load(digest: str, codegen: Any) -> Any:
    """A part, or another library, by its hash; raises OSError where it is gone, or is not what its hash says any more."""
    if digest == _NRT:
        return rtsys.library
    if digest not in _kept:
        kind, name, bitcode, calls = pickle.loads(_read(digest))
        if kind == "part":
            made = Part(codegen, name)
            made._final_module, made._digest = llvm.parse_bitcode(bitcode), digest
            made._linking_libraries = [load(called, codegen) for called in calls]
        else:
            made = _Other(codegen, name)
            made._shared_module = llvm.parse_bitcode(bitcode)
        _kept[digest] = made
    return _kept[digest]


class _Other(JITCodeLibrary):
    """A library of numba's own, of which only the code to be linked was kept."""

    def _ensure_finalized(self) -> None:
        """There is nothing but what is linked."""
