"""The one decorator for compiled functions, and stages: kernels that are called by their address.

``@kernel`` compiles on the first call, with the flags of the whole project; ``@kernel(inline=True)`` is for small
ones on a hot path (LLVM's always-inline).  ``@stage`` is for ``(state, burst, n) -> n``: its ``address`` is what the
engine calls, through :func:`wirespeed.jit.intrinsics.call_stage`; ``@entry`` is for what Python calls for every few
items, where the call itself is what counts.  Only this module calls ``njit``.

The address of a stage is that of numba's own compiled function, not of a ``cfunc``: the function's convention returns
a status beside the result, so an exception inside is seen and counted and never loses a burst, and its disk cache
hits where that of a ``cfunc`` over other compiled functions does not.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numba import cfunc, njit, types

from wirespeed.jit import ahead
from wirespeed.jit.cache import KernelCache
from wirespeed.jit.dispatch import Compiling
from wirespeed.jit.interrupt import deferred

STAGE = types.int64(types.int64, types.int64, types.int64)


class Compiled(NamedTuple):
    """One compilation: the kernel's name, and the seconds it took."""

    name: str
    seconds: float


class _Watch:
    """Sees each compilation begin and end; the time of one includes the kernels that it needed compiled."""

    def __init__(self) -> None:
        self.done: list[Compiled] = []
        self.callback: Callable[[str], None] | None = None
        self._depth, self._collects = 0, True

    @contextmanager
    def __call__(self, dispatcher: Any) -> Iterator[None]:
        name, since = _name(dispatcher.py_func), time.perf_counter()
        if self._depth == 0:
            if self.callback:
                self.callback(name)
            # A compilation makes millions of objects that stay; looking for garbage among them is a tenth of its time.
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._collects:
                gc.enable()
            self.done.append(Compiled(name, time.perf_counter() - since))


def _name(function: Any) -> str:
    module = function.__module__ or "__main__"  # code that was run by exec() may have none
    return f"{module.removeprefix('wirespeed.')}.{function.__name__}"


_watch = _Watch()


def compiled() -> list[Compiled]:
    """Every compilation of this process so far; what came from the disk cache is not among them."""
    return list(_watch.done)


def on_compile(callback: Callable[[str], None] | None) -> None:
    """Have ``callback(name)`` called as each compilation begins (or, with None, no longer)."""
    _watch.callback = callback


# The C wrapper is for functions handed on as values, which ours never are; it is a tenth of a compilation.
_FLAGS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "no_cfunc_wrapper": True}


def _dispatcher(function: Any, **flags: Any) -> Any:
    """A kernel of a function, compiled as :mod:`wirespeed.jit.dispatch` says."""
    function.__wirespeed__ = True
    dispatcher = njit(**(_FLAGS | flags))(function)
    # What was typed at a prompt has no file to go stale.
    kept = KernelCache(function) if os.path.isfile(function.__code__.co_filename) else None
    Compiling(dispatcher, kept, _watch)
    return dispatcher


def kernel(function: Any = None, *, inline: bool = False) -> Any:
    """Compile ``function``: no GIL, no exceptions for arithmetic, no bounds checks, cached on disk."""
    if function is None:
        return lambda f: kernel(f, inline=inline)
    return _dispatcher(function, forceinline=inline)


class Whole:
    """A kernel that is compiled for one signature, whoever asks for it first."""

    def __init__(self, dispatcher: Any, signature: Any) -> None:
        self.kernel, self.signature = dispatcher, signature
        self._code: Any = None

    def prepare(self) -> Any:
        """Its machine code; compiles it, or loads it from the cache, the first time."""
        if self._code is None:
            ahead.wait_for(self)
            self._code = self.kernel.wirespeed.code(self.signature)
        return self._code

    def is_kept(self) -> bool:
        """Whether it need not be compiled: this process has it, or the cache."""
        return self._code is not None or bool(self.kernel.wirespeed.is_kept(self.signature))


class Stage(Whole):
    """A compiled ``(state, burst, n) -> n``.  Calling it from Python runs it; ``address`` is for the engine."""

    def __init__(self, function: Any) -> None:
        super().__init__(kernel(function), STAGE)
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self._address = 0

    @property
    def address(self) -> int:
        """Where its machine code begins; compiles it, or loads it from the cache, the first time."""
        if not self._address:
            self._address = self.prepare().address
        return self._address

    def __call__(self, state: int, burst: int, n: int) -> int:
        self.prepare()  # with the one signature that it has
        return int(self.kernel(int(state), int(burst), int(n)))


def stage(function: Any) -> Stage:
    """Make a stage of a function ``(state, burst, n) -> n`` of three int64."""
    return Stage(function)


class Entry(Whole):
    """A kernel that Python calls often, compiled for one signature; see :func:`entry`."""

    def __init__(self, function: Any, signature: Any, nogil: bool) -> None:
        super().__init__(_dispatcher(function, nogil=nogil), signature)
        self._function: Any = None

    @property
    def function(self) -> Any:
        """The function for Python; compiles it, or loads it from the cache, the first time."""
        if self._function is None:
            self._function = self.prepare().entry_point
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
