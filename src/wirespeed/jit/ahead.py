"""Compiles some kernels in another process while this one compiles others; both leave what they made in the cache.

Theory of operation
-------------------
:func:`begin` starts a process for those that the cache has not got; :meth:`wirespeed.jit.kernel.Whole.prepare` waits for
it before it compiles one of them itself.  A process that fails, or cannot be started, costs nothing but that: what it
did not leave in the cache is compiled here.  It ends with this one.

Thread rule: the main thread begins; any may wait.
"""

import atexit
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

LOOK_S = 0.1  # between two looks whether something is in the cache
_under_way: dict[str, subprocess.Popen[bytes]] = {}


def begin(wanted: Sequence[Any]) -> None:
    """Have stages and entries compiled meanwhile, in this order, where there is a second core."""
    if len(os.sched_getaffinity(0)) < 2 or not sys.executable or getattr(sys, "frozen", False):
        return  # one core would have it all to do, and a frozen program is no Python
    missing = [name for one in wanted if not one.is_kept() and (name := _name(one)) not in _under_way]
    if not missing:
        return
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main({missing!r})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other one
        )
    except OSError:
        return
    atexit.register(process.kill)
    _under_way.update(dict.fromkeys(missing, process))


def is_under_way(wanted: Any) -> bool:
    """Whether another process is still to compile it."""
    process = _under_way.get(_name(wanted))
    return process is not None and process.poll() is None and not wanted.is_kept()


def wait_for(wanted: Any) -> None:
    """Wait for the process that compiles a stage or an entry, if there is one, to be done with it."""
    while is_under_way(wanted):
        time.sleep(LOOK_S)
    _under_way.pop(_name(wanted), None)


def _name(wanted: Any) -> str:
    function = wanted.kernel.py_func
    return f"{function.__module__}:{function.__name__}"


def main(names: Sequence[str]) -> None:
    """Compile stages and entries, each named ``module:name``."""
    for name in names:
        module, _, attribute = name.partition(":")
        getattr(importlib.import_module(module), attribute).prepare()
