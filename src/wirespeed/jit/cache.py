"""Where compiled kernels are kept, and when they are stale.

numba's own disk cache looks at the one file a kernel stands in: an edited callee in another file leaves the cached
caller in place, which goes on with the old answer.  Here a kernel is stamped with the hash of every source that its
module reaches by imports inside the package, so an edit in ``switch/`` leaves ``core/`` warm and an edit in ``jit/``
nothing.  Versions lie side by side: who switches between two of them compiles neither again.  What numba's key does not
have (debug mode, portable mode, ``NUMBA_*`` variables) is in the path.
"""

import functools
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from numba.core.caching import CacheImpl, FunctionCache, _CacheLocator

from wirespeed.jit.machine import DEBUG, PORTABLE

PACKAGE = Path(__file__).resolve().parent.parent
_IMPORT = re.compile(
    r"^\s*(?:from\s+(wirespeed[\w.]*)\s+import\s+(\([^)]*\)|[^\n#]+)|import\s+(wirespeed[\w.]*))", re.M
)


def root() -> Path:
    """The folder that holds the kernel cache: ``WIRESPEED_CACHE``, else ``wirespeed`` in the user's cache folder."""
    named = os.environ.get("WIRESPEED_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wirespeed"
    return base if _writable(base) else _fallback()


@functools.cache
def _writable(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


@functools.cache
def _fallback() -> Path:
    """A folder of this user's own for one boot, where no home can be written (containers, read-only systems)."""
    path = Path(tempfile.gettempdir()) / f"wirespeed-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():  # somebody else put it there: compiled code is not taken from them
        path = Path(tempfile.mkdtemp(prefix="wirespeed-"))
    return path


def mode() -> str:
    """What changes compiled code without being in numba's key, as a short word for the path."""
    flags = sorted((k, v) for k, v in os.environ.items() if k.startswith("NUMBA_") and k != "NUMBA_CACHE_DIR")
    text = repr((flags, sys.version_info[:2]))
    words = ["debug"] * DEBUG + ["portable"] * PORTABLE + [hashlib.sha256(text.encode()).hexdigest()[:8]]
    return "-".join(words)


@functools.cache
def _imports(path: Path) -> frozenset[Path]:
    """The files of this package that the module at ``path`` imports, directly."""
    found: set[Path] = set()
    for module, names, plain in _IMPORT.findall(path.read_text(encoding="utf-8")):
        words = re.findall(r"(\w+)(?:\s+as\s+\w+)?", names.strip("()"))
        found.update(_files(plain) if plain else _files(module))
        for word in words:
            found.update(_files(f"{module}.{word}"))
    return frozenset(found)


def _files(module: str) -> list[Path]:
    at = PACKAGE.parent.joinpath(*module.split("."))
    return [p for p in (at.with_suffix(".py"), at / "__init__.py") if p.is_file()]


@functools.cache
def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def stamp(path: Path) -> str:
    """The hash of the source at ``path`` and of all that it reaches by imports inside the package."""
    seen: set[Path] = set()
    todo = [path.resolve()]
    while todo:
        source = todo.pop()
        if source not in seen:
            seen.add(source)
            todo.extend(_imports(source) - seen)
    digest = hashlib.sha256()
    for source in sorted(seen):
        digest.update(_digest(source))
    return digest.hexdigest()


class WirespeedLocator(_CacheLocator):
    """Tells numba where the kernels of this package, and of generated stages, lie and when they are stale."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._file = Path(py_file).resolve()
        self._line = py_func.__code__.co_firstlineno
        inside = PACKAGE in self._file.parents
        folder = str(self._file.parent.relative_to(PACKAGE)) if inside else self._file.parent.name
        self._path = root() / mode() / folder

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return stamp(self._file)

    def get_disambiguator(self) -> str:
        """Part of a file's name: two versions of the package, on two paths, say, keep each other's kernels."""
        return f"{self._line}-{stamp(self._file)[:12]}"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        if not getattr(py_func, "__wirespeed__", False):
            return None
        self = cls(py_func, py_file)
        self.ensure_cache_path()
        return self


CacheImpl._locator_classes.insert(0, WirespeedLocator)


class KernelCache(FunctionCache):
    """numba's disk cache of one function, for plain values under (what it is, types of arguments, of the result).

    An index that cannot be read is an empty one: numba reads a whole index before it looks whether it is stale, and the
    types in it may be of an older version of ours, with names that are gone or of layouts that have changed.
    """

    def load(self, sig: Any, target_context: Any) -> Any:
        """What is kept, or None when it is not there."""
        target_context.refresh()
        try:
            return self._cache_file.load(self._index_key(sig, target_context.codegen()))
        except Exception:
            self.flush()
            return None

    def save(self, sig: Any, data: Any, codegen: Any) -> None:
        """Keep something; where that cannot be (a full disk, no descriptor left), it serves this process."""
        try:
            self._impl.locator.ensure_cache_path()
            self._cache_file.save(self._index_key(sig, codegen), data)
        except OSError:
            pass
