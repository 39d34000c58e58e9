"""The one decorator for compiled functions, and stages: kernels that are called by their address.

``@kernel`` compiles on the first call, with the flags of the whole project; ``@kernel(inline=True)`` is for small
ones on a hot path (LLVM's always-inline).  ``@stage`` is for ``(state, burst, n) -> n``: its ``address`` is what the
engine calls, through :func:`wirespeed.jit.intrinsics.call_stage`; ``@entry`` is for what Python calls for every few
items, where the call itself is what counts.  Only this module calls ``njit``.

The address of a stage is that of numba's own compiled function, not of a ``cfunc``: the function's convention returns
a status beside the result, so an exception inside is seen and counted and never loses a burst, and its disk cache
hits where that of a ``cfunc`` over other compiled functions does not.
"""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cfunc, njit, types
from numba.core import event

from wirespeed.jit.cache import KernelCache
from wirespeed.jit.interrupt import deferred

STAGE = types.int64(types.int64, types.int64, types.int64)


class Compiled(NamedTuple):
    """One compilation: the kernel's name, and the seconds it took."""

    name: str
    seconds: float


class _Watch(event.Listener):
    """Sees each compilation begin and end; the time of one includes the kernels that it needed compiled."""

    def __init__(self) -> None:
        self.done: list[Compiled] = []
        self.callback: Callable[[str], None] | None = None
        self._since: list[float] = []

    def on_start(self, event: Any) -> None:
        if self.callback and not self._since:
            self.callback(_name(event))
        self._since.append(time.perf_counter())

    def on_end(self, event: Any) -> None:
        self.done.append(Compiled(_name(event), time.perf_counter() - self._since.pop()))


def _name(event: Any) -> str:
    function = event.data["dispatcher"].py_func
    module = function.__module__ or "__main__"  # code that was run by exec() may have none
    return f"{module.removeprefix('wirespeed.')}.{function.__name__}"


_watch = _Watch()
event.register("numba:compile", _watch)


def compiled() -> list[Compiled]:
    """Every compilation of this process so far; what came from the disk cache is not among them."""
    return list(_watch.done)


def on_compile(callback: Callable[[str], None] | None) -> None:
    """Have ``callback(name)`` called as each compilation begins (or, with None, no longer)."""
    _watch.callback = callback


# The C wrapper is for functions handed on as values, which ours never are; it is a tenth of a compilation.
_FLAGS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "no_cfunc_wrapper": True}


def _guarded(dispatcher: Any) -> Any:
    """Have Ctrl-C wait while ``dispatcher`` compiles, or loads what was compiled."""
    compile_it = dispatcher.compile

    def compile_guarded(signature: Any) -> Any:
        with deferred:
            return compile_it(signature)

    dispatcher.compile = compile_guarded
    return dispatcher


def kernel(function: Any = None, *, inline: bool = False) -> Any:
    """Compile ``function``: no GIL, no exceptions for arithmetic, no bounds checks, cached on disk."""
    if function is None:
        return lambda f: kernel(f, inline=inline)
    function.__wirespeed__ = True
    dispatcher = _guarded(njit(forceinline=inline, **_FLAGS)(function))
    if os.path.isfile(function.__code__.co_filename):  # what was typed at a prompt has no file to go stale
        dispatcher._cache = KernelCache(function)
    return dispatcher


class Stage:
    """A compiled ``(state, burst, n) -> n``.  Calling it from Python runs it; ``address`` is for the engine."""

    def __init__(self, function: Any) -> None:
        self.kernel = kernel(function)
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self._address = 0

    @property
    def address(self) -> int:
        """Where its machine code begins; compiles it, or loads it from the cache, the first time."""
        if not self._address:
            with deferred:
                self.kernel.compile(STAGE)
                result = self.kernel.overloads[STAGE.args]
                self._address = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
        return self._address

    def __call__(self, state: int, burst: int, n: int) -> int:
        return int(self.kernel(int(state), int(burst), int(n)))  # another width would be another signature


def stage(function: Any) -> Stage:
    """Make a stage of a function ``(state, burst, n) -> n`` of three int64."""
    return Stage(function)


class Entry:
    """A kernel that Python calls often, compiled for one signature; see :func:`entry`."""

    def __init__(self, function: Any, signature: Any, nogil: bool) -> None:
        function.__wirespeed__ = True
        self.kernel = _guarded(njit(**(_FLAGS | {"nogil": nogil}))(function))
        if os.path.isfile(function.__code__.co_filename):
            self.kernel._cache = KernelCache(function)
        self.signature = signature
        self._function: Any = None

    @property
    def function(self) -> Any:
        """The function for Python; compiles it, or loads it from the cache, the first time."""
        if self._function is None:
            self.kernel.compile(self.signature)
            self._function = self.kernel.overloads[self.signature.args].entry_point
        return self._function


def entry(signature: Any, *, nogil: bool = False) -> Any:
    """Make a kernel whose ``function`` Python calls without numba's look at the types: 80 ns where that takes 150.

    The caller has made sure of the types itself: of an array its dtype and its number of dimensions.  It holds the
    GIL unless ``nogil``, so it must return soon: letting another thread have the GIL, and getting it back, takes
    longer than what these kernels do.
    """
    return lambda function: Entry(function, signature, nogil)


def callback(signature: str) -> Any:
    """Make a C function of a kernel, for libraries that call back; its ``address`` is what they are given."""

    def make(function: Any) -> Any:
        function.__wirespeed__ = True
        with deferred:
            return cfunc(signature, nopython=True, error_model="numpy", cache=True)(function)

    return make


def assembly(dispatcher: Any) -> str:
    """The machine code of a kernel, for the signatures it has in this process, as text.

    Compiled for this purpose, for numba does not keep the text of what came from the disk cache.
    """
    fresh = njit(**_FLAGS)(dispatcher.py_func)
    for signature in dispatcher.signatures:
        fresh.compile(signature)
    return "\n".join(fresh.inspect_asm().values())
