"""Faults put there on purpose, to see that fuzzing finds such: a byte read too far, a broken invariant, an endless loop."""

import numpy as np

from tests.fuzz.inputs import INPUT, Input
from wirespeed.jit.intrinsics import copy, load_u8, pause, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64 = np.int64

Planted = layout("FuzzPlanted", [("high", "i8"), ("progress", "i8"), ("fault", "i8"), ("violated", "i8")])
NUMBER = 1234  # of the input that the fault is about
OVERRUN, BROKEN, ENDLESS = 1, 2, 3
INVARIANTS = ("none", "this input has another number")


@kernel
def check(bench, batch, n):
    """Put each input before a page that nobody may touch; with one of them something goes wrong."""
    p = Planted(bench)
    for i in range(n):
        given = Input(batch + INPUT * i)
        store_i64(p.progress, given.number)
        copy(p.high - i64(given.size), given.bytes, i64(given.size))
        if given.number == NUMBER:
            while p.fault == ENDLESS:
                pause()
            p.violated = 1 if p.fault == BROKEN else i64(load_u8(p.high))
            return i
    return n
