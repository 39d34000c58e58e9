"""Keeps generated modules as files in the kernel cache, and loads them.

Theory of operation
-------------------
numba keeps what it compiled by the file and line of a function, so that only a function in a file of its own is found
again by the next process.  The file is named after the hash of its text and of our own sources: two texts never meet,
and one that is changed, or meets a changed wirespeed, is another one.
"""

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from wirespeed.jit import cache

_loaded: dict[str, ModuleType] = {}


def load(source: str, name: str, basis: str, folder: str) -> ModuleType:
    """The module of a text, as this process has it, or from its file in ``folder`` of the cache.

    ``basis`` is one of our files that reaches, by imports, all of ours that the text uses.
    """
    stamp = cache.stamp(Path(basis))
    digest = hashlib.sha256("\0".join([source, stamp, cache.mode()]).encode()).hexdigest()[:16]
    title = f"{name[:40]}_{digest}"
    if title not in _loaded:
        _loaded[title] = _import(f"wirespeed_{folder}.{title}", _file(folder, title, source))
    return _loaded[title]


def _file(folder: str, title: str, source: str) -> Path:
    """The module's file, written in one step so that another process never sees half of it."""
    path = cache.root() / folder / f"{title}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as f:
            f.write(source)
        os.replace(f.name, path)
    return path


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where numba looks for it
    spec.loader.exec_module(module)
    return module
