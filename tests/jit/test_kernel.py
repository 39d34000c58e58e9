"""Kernels and stages: how they are compiled and called, and the typings of numba that all of them rely on."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.jit.inspection import fresh, intermediate
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import call_stage, load_i64, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout

u16, u32, u64, i64 = np.uint16, np.uint32, np.uint64, np.int64
Word = layout("TestWord", [("value", "u4"), ("answer", "u4")])


@kernel
def divide(a, b):
    return a // b, a % b


def test_division_by_zero_is_zero_and_no_exception():
    assert divide(7, 0) == (0, 0)
    assert divide(-7, 2) == (-4, 1)


@kernel
def item(array, i):
    return array[i]


def test_there_is_no_bounds_check():
    memory = np.arange(10)
    assert item(memory[:5], 7) == 7


@kernel
def meet(at):
    """Say that we are here, then wait until the other thread has answered."""
    store_release(Word(at), "value", 1)
    while load_acquire(Word(at), "answer") == 0:
        pass
    return 1


@kernel
def answer(at):
    while load_acquire(Word(at), "value") == 0:
        pass
    store_release(Word(at), "answer", 1)
    return 1


def test_kernels_run_without_the_interpreter_lock():
    memory = np.zeros(Word.size, np.uint8)
    meet.compile("int64(int64)")
    answer.compile("int64(int64)")
    threads = [threading.Thread(target=one, args=(memory.ctypes.data,)) for one in (meet, answer)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@kernel(inline=True)
def small(x):
    return x * 3


@kernel
def plain(x):
    return x * 3


def test_an_inline_kernel_is_always_inlined_and_another_as_llvm_sees_fit():
    made = {}
    for one in (small, plain):
        again = fresh(one, inline=one is small)
        assert again(4) == 12
        made[one] = "alwaysinline" in intermediate(again)
    assert made == {small: True, plain: False}


def test_kernels_keep_their_docstring_and_name():
    assert (meet.__name__, meet.__doc__[:11]) == ("meet", "Say that we")


# Stages.


@stage
def double(state, burst, n):
    """Double each item of the burst."""
    for i in range(n):
        store_i64(burst + 8 * i, 2 * load_i64(burst + 8 * i))
    return n


@stage
def fail(state, burst, n):
    """Raise for some states."""
    if state == 1:
        raise ValueError("on purpose")
    return n


@kernel
def call(code, state, burst, n):
    return call_stage(code, state, burst, n)


def test_a_stage_is_called_by_its_address():
    burst = np.arange(5)
    assert call(double.address, 0, burst.ctypes.data, 5) == 5
    assert burst.tolist() == [0, 2, 4, 6, 8]
    assert double(0, burst.ctypes.data, 2) == 2
    assert burst.tolist() == [0, 4, 4, 6, 8]


def test_an_exception_inside_a_stage_is_a_negative_answer():
    assert call(fail.address, 0, 0, 7) == 7
    assert call(fail.address, 1, 0, 7) < 0


def test_a_stage_has_one_signature_whatever_calls_it():
    burst = np.arange(3)
    double(np.int32(0), burst.ctypes.data, np.uint8(3))
    call(double.address, 0, burst.ctypes.data, 3)
    assert len(double.kernel.signatures) == 1
    assert double.address == double.address


def test_a_stage_tells_its_name_and_sentence():
    assert (double.name, double.__doc__) == ("double", "Double each item of the burst.")


# Compilations are seen.


WATCHED = """
from wirespeed.jit import kernel as kernels
seen = []
kernels.on_compile(seen.append)
exec(compile('''
from wirespeed.jit.kernel import kernel
@kernel
def inner(x):
    return x + 1
@kernel
def around(x):
    return inner(x)
''', "<prompt>", "exec"), {"__name__": "typed"})
before = len(kernels.compiled())
import sys
"""


def test_compilations_are_told_with_what_they_needed():
    code = WATCHED.replace('{"__name__": "typed"}', "space := {'__name__': 'typed'}") + (
        "assert space['around'](1) == 2\n"
        "print(*seen)\n"
        "print(*[c.name for c in kernels.compiled()[before:]])\n"
        "assert all(c.seconds > 0 for c in kernels.compiled())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    begun, ended = done.stdout.splitlines()
    assert begun == "typed.around", "only the one that was asked for is announced"
    assert ended == "typed.inner typed.around"


def test_what_was_typed_at_a_prompt_is_not_cached():
    space = {}
    exec("from wirespeed.jit.kernel import kernel\n@kernel\ndef f(x):\n    return x + 1", space)
    assert space["f"](1) == 2
    assert space["f"].wirespeed.cache is None


# The typings of numba 0.68 that kernels are written for.


@kernel
def add(a, b):
    return a + b


@kernel
def subtract(a, b):
    return a - b


@kernel
def subtract32(a, b):
    return u32(a - b)


@kernel
def times(a, b):
    return a * b


@kernel
def both(a, b):
    return a & b


@kernel
def right(a, b):
    return a >> b


@kernel
def left3(a):
    return a << 3


@kernel
def right3(a):
    return a >> 3


@kernel
def plus_one(a):
    return a + 1


@kernel
def and_one(a):
    return a & 1


@kernel
def invert(a):
    return ~a


@kernel
def least(a, b):
    return min(a, b)


@kernel
def quotient(a, b):
    return a / b


TOP = u64(1 << 63)


@pytest.mark.parametrize(
    "function, arguments, result, value",
    [
        (add, (u32(0xFFFFFFFF), u32(1)), "uint64", 1 << 32),
        (add, (u16(0xFFFF), u16(1)), "uint64", 1 << 16),
        (times, (u32(1 << 31), u32(2)), "uint64", 1 << 32),
        (subtract, (u64(1), u64(2)), "uint64", (1 << 64) - 1),
        (subtract32, (u32(1), u32(2)), "uint32", (1 << 32) - 1),
        (plus_one, (u32(0xFFFFFFFF),), "int64", 1 << 32),
        (plus_one, (u64(5),), "int64", 6),
        (add, (u64(5), i64(-6)), "int64", -1),
        (both, (TOP, i64(-1)), "int64", -(1 << 63)),
        (and_one, (u64(3),), "int64", 1),
        (right, (TOP, u64(3)), "uint64", 1 << 60),
        (right3, (TOP,), "uint64", 1 << 60),
        (right3, (i64(-16),), "int64", -2),
        (left3, (u64(1),), "uint64", 8),
        (left3, (u32(1 << 31),), "uint64", 1 << 34),
        (invert, (u32(1),), "uint64", 0xFFFFFFFE),
        (least, (u32(7), i64(9)), "int64", 7),
        (quotient, (i64(1), i64(2)), "float64", 0.5),
    ],
)
def test_numba_types_arithmetic_as_kernels_expect(function, arguments, result, value):
    assert function(*arguments) == value
    signature = [s for s in function.overloads.values() if len(s.signature.args) == len(arguments)]
    given = tuple(np.asarray(a).dtype.name for a in arguments)
    (found,) = [s.signature.return_type for s in signature if tuple(map(str, s.signature.args)) == given]
    assert str(found) == result
