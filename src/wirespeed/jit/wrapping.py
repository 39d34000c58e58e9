"""Sums, differences and products of int64 that wrap.

numba's own operators on signed integers promise LLVM that they never overflow ("nsw"), and LLVM draws conclusions from
that: ``c * -8 >= 0`` becomes ``c <= 0``.  Where a number can have any value, as in a user's function, that would be a
wrong answer.  (Unsigned operators, ``-x``, ``abs`` and shifts carry no such promise.)

Source: numba/cpython/numbers.py, ``_int_arith_flags``; the LLVM language reference, "add instruction".
"""

from typing import Any

from numba import types
from numba.extending import intrinsic


def _wrapping(operation: str, doc: str) -> Any:
    @intrinsic
    def operate(typingctx, a, b):
        def codegen(context, builder, signature, args):
            both = [context.cast(builder, args[i], signature.args[i], types.int64) for i in (0, 1)]
            return getattr(builder, operation)(*both)

        return types.int64(a, b), codegen

    operate.__doc__ = doc
    return operate


add = _wrapping("add", "a + b, its low 64 bits.")
subtract = _wrapping("sub", "a - b, its low 64 bits.")
multiply = _wrapping("mul", "a * b, its low 64 bits.")
