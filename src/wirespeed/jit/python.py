"""Python objects held by native code: a reference that a kernel can let go of, from any thread and at any time.

A callback written in Python cannot run while an exception is on its way (the interpreter would take that one for its
own); letting go of a reference can.  Source: the CPython C API, "Reference counting" and "PyGILState_Ensure".
"""

import ctypes

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

I32, I64, I8P = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()


def hold(thing: object) -> int:
    """Take a reference to an object; its address, to be given to :func:`let_go` once."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return id(thing)


@intrinsic
def let_go(typingctx, reference):
    """Let go of a reference that :func:`hold` took; the object may be freed by it."""

    def codegen(context, builder, signature, args):
        reference = context.cast(builder, args[0], signature.args[0], types.int64)
        module = builder.module
        ensure = cgutils.get_or_insert_function(module, ir.FunctionType(I32, []), "PyGILState_Ensure")
        decrease = cgutils.get_or_insert_function(module, ir.FunctionType(ir.VoidType(), [I8P]), "Py_DecRef")
        release = cgutils.get_or_insert_function(module, ir.FunctionType(ir.VoidType(), [I32]), "PyGILState_Release")
        state = builder.call(ensure, [])
        builder.call(decrease, [builder.inttoptr(reference, I8P)])
        builder.call(release, [state])
        return context.get_dummy_value()

    return types.void(reference), codegen


@intrinsic
def call_address(typingctx, code, argument):
    """Call the C function ``void (*)(void *)`` at an address."""

    def codegen(context, builder, signature, args):
        code, argument = (context.cast(builder, a, s, types.int64) for a, s in zip(args, signature.args, strict=True))
        kind = ir.FunctionType(ir.VoidType(), [I64]).as_pointer()
        builder.call(builder.inttoptr(code, kind), [argument])
        return context.get_dummy_value()

    return types.void(code, argument), codegen
