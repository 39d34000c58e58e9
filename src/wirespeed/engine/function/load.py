"""Keeps generated modules as files in the kernel cache, and loads the stages in them.

Theory of operation
-------------------
numba keeps what it compiled by the file and line of a function, so that only a function in a file of its own is found
again by the next process.  The file is named after the hash of its text and of our own sources: two functions never
meet, and one that is changed, or meets a changed wirespeed, is another one.
"""

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from wirespeed.engine.function import body
from wirespeed.engine.function.unit import PREFIX
from wirespeed.jit import cache
from wirespeed.jit.kernel import Stage

_loaded: dict[str, ModuleType] = {}


def load(source: str, name: str) -> Stage:
    """The stage of a generated module's text, from the module as this process has it, or from its file."""
    stamp = cache.stamp(Path(body.__file__))
    digest = hashlib.sha256("\0".join([source, stamp, cache.mode()]).encode()).hexdigest()[:16]
    title = f"{name[:40]}_{digest}"
    if title not in _loaded:
        _loaded[title] = _import(title, _file(title, source))
    made: Stage = getattr(_loaded[title], f"{PREFIX}stage_{name}")
    return made


def _file(title: str, source: str) -> Path:
    """The module's file, written in one step so that another process never sees half of it."""
    path = cache.root() / "functions" / f"{title}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as f:
            f.write(source)
        os.replace(f.name, path)
    return path


def _import(title: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"wirespeed_functions.{title}", path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where numba looks for it
    spec.loader.exec_module(module)
    return module
