"""The arithmetic of a user's function: whole numbers of 64 bits with a sign, which wrap.

Theory of operation
-------------------
``+ - *`` keep the low 64 bits.  ``x // 0`` and ``x % 0`` are 0; all other divisions round down, as Python's do, and
-2^63 // -1 wraps to -2^63.  A shift by 64 and more shifts everything out: 0, or -1 for the ``>>`` of a negative
number.  A shift by a negative count shifts by 0.

Each operation exists twice, over Python's integers for the interpreted form and as a kernel for the compiled one
where the machine's own instruction would do something else (trap, or take the shift count modulo 64).
"""

import ast
from collections.abc import Callable

import numpy as np

from wirespeed.jit.kernel import kernel

i64 = np.int64
BITS = 64
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


def wrap(x: int) -> int:
    """The number of 64 bits with a sign that has the low 64 bits of ``x``."""
    return ((x - LOWEST) & ((1 << BITS) - 1)) + LOWEST


def _floor_divide(a: int, b: int) -> int:
    return wrap(a // b) if b else 0


def _remainder(a: int, b: int) -> int:
    return a % b if b else 0


def _shift_left(a: int, n: int) -> int:
    return 0 if n >= BITS else wrap(a << max(n, 0))


def _shift_right(a: int, n: int) -> int:
    return a >> min(max(n, 0), BITS - 1)


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: wrap(a + b),
    "subtract": lambda a, b: wrap(a - b),
    "multiply": lambda a, b: wrap(a * b),
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
}
"""Every operation on two numbers, over Python's integers."""

NAMES: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
}
"""The operation that each operator of Python's syntax means."""

NATIVE: dict[str, type[ast.operator]] = {
    name: op for op, name in NAMES.items() if op in (ast.BitAnd, ast.BitOr, ast.BitXor)
}
"""Operations that a kernel's own operator on int64 does just so."""
WRAPPING = ("add", "subtract", "multiply")
"""Operations that :mod:`wirespeed.jit.wrapping` has for kernels, whose own operators must not overflow."""
TOTAL = ("floor_divide", "remainder", "shift_left", "shift_right")
"""Operations for which there are kernels below, defined where the machine's instructions are not."""
BUILTIN = {"truth": "bool", "min": "min", "max": "max", "range": "range", "absolute": "abs", "int": "np.int64"}
"""What a kernel's own functions do just so, and how it names them."""


def negate(a: int) -> int:
    """-a, wrapped."""
    return wrap(-a)


def absolute(a: int) -> int:
    """The distance from 0; that of -2^63 wraps to -2^63."""
    return wrap(abs(a))


def count(start: int, stop: int, step: int) -> int:
    """How many numbers ``range(start, stop, step)`` has, 0 for step 0; at most 2^63 - 1."""
    return min(max(0, -(-(stop - start) // step)), HIGHEST) if step else 0


@kernel(inline=True)
def floor_divide(a, b):
    """a // b, defined everywhere."""
    if b == 0:
        return i64(0)
    if b == -1:
        return -a  # the machine's division of -2^63 traps
    return a // b


@kernel(inline=True)
def remainder(a, b):
    """a % b, defined everywhere."""
    if b == 0 or b == -1:
        return i64(0)
    return a % b


@kernel(inline=True)
def shift_left(a, n):
    """a << n, defined everywhere."""
    if n >= BITS:
        return i64(0)
    return a << max(n, i64(0))


@kernel(inline=True)
def shift_right(a, n):
    """a >> n, defined everywhere."""
    return a >> min(max(n, i64(0)), i64(BITS - 1))


@kernel(inline=True)
def kernel_count(start, stop, step):
    """:func:`count`.  The distance is taken without a sign, for it can be more than 2^63."""
    if step > 0 and start < stop:
        distance = np.uint64(stop) - np.uint64(start) - np.uint64(1)
        return i64(min(distance // np.uint64(step), np.uint64(HIGHEST - 1))) + 1
    if step < 0 and start > stop:
        distance = np.uint64(start) - np.uint64(stop) - np.uint64(1)
        width = np.uint64(0) - np.uint64(step)
        return i64(min(distance // width, np.uint64(HIGHEST - 1))) + 1
    return i64(0)
