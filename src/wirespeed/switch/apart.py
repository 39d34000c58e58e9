"""The two large parts of a switch's stage, translation and execution, compiled apart and called by their addresses.

A stage is made for each shape of the rules, and what it calls is linked into it; what does not depend on the shape is
compiled once.  Packets that hit the cache and leave by one port need neither, so that a switch begins before execution is
compiled, on a machine where it never was: a worker whose packet needs it waits for it.

Thread rules: as the stage's; the control path writes the address of execution once it is there (Q2).
"""

import numpy as np

from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import call_stage
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.libc import sys_sleep
from wirespeed.switch.execute.run import execute
from wirespeed.switch.state import State
from wirespeed.switch.translate.run import translate

i64 = np.int64
PATIENCE_NS = 1_000_000


@stage
def translation(address, _second, _third):
    """:func:`wirespeed.switch.translate.run.translate`."""
    translate(address)
    return i64(0)


@stage
def execution(state, handle, path):
    """:func:`wirespeed.switch.execute.run.execute`."""
    execute(state, State(state).execution, handle, path)
    return i64(0)


@kernel
def _await_execution(s):
    """The address of execution, once it has been compiled."""
    while True:
        code = load_acquire(s, "execute")  # Q3
        if code != 0:
            return code
        sys_sleep(i64(PATIENCE_NS))


@kernel(inline=True)
def translate_flow(s):
    """Translate what the state's translation has been given."""
    if call_stage(s.translate, s.translation, i64(0), i64(0)) < 0:
        raise RuntimeError("a translation raised an exception")


@kernel(inline=True)
def take_path(s, state, handle, path):
    """Do the ops of a path with a packet, which it takes over."""
    code = load_acquire(s, "execute")  # Q3
    if code == 0:
        code = _await_execution(s)
    if call_stage(code, state, handle, path) < 0:
        raise RuntimeError("an execution raised an exception")
