"""Python objects in native code: references that kernels keep, let go of, take as arguments and give back.

A callback written in Python cannot run while an exception is on its way (the interpreter would take that one for its
own); letting go of a reference can.  :func:`let_go` may be called from any thread and at any time; everything else
here only with the GIL, in an :func:`wirespeed.jit.kernel.entry`.

``reference`` is the numba type of a Python object, whatever it is: as an argument it is borrowed, as a result it is a
new reference.  Source: the CPython C API, "Reference counting", "PyGILState_Ensure", "List Objects" and "Integer
Objects".
"""

import ctypes
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, box, intrinsic, models, register_model, unbox

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


class Reference(types.Type):
    """The numba type of a Python object whose address is all that a kernel knows of it."""

    def __init__(self) -> None:
        super().__init__(name="Reference")


@register_model(Reference)
class ReferenceModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, I64)


@unbox(Reference)
def unbox_reference(typ, obj, c):
    return NativeValue(c.builder.ptrtoint(obj, I64))


@box(Reference)
def box_reference(typ, val, c):
    return c.builder.inttoptr(val, I8P)


reference = Reference()


@intrinsic
def address_of(typingctx, thing):
    """The address of an object that came as an argument."""

    def codegen(context, builder, signature, args):
        return args[0]

    return types.int64(thing), codegen


@intrinsic
def as_reference(typingctx, address):
    """An object to return, of an address that stands for a reference of its own."""

    def codegen(context, builder, signature, args):
        return args[0]

    return reference(address), codegen


@intrinsic
def add_reference(typingctx, address):
    """Take one more reference to the object at an address."""

    def codegen(context, builder, signature, args):
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [I8P]), "Py_IncRef")
        builder.call(fn, [builder.inttoptr(args[0], I8P)])
        return context.get_dummy_value()

    return types.void(address), codegen


@intrinsic
def new_integer(typingctx, value):
    """The address of a new reference to a Python integer; ``value`` may be signed or not."""
    name = "PyLong_FromLongLong" if value.signed else "PyLong_FromUnsignedLongLong"

    def codegen(context, builder, signature, args):
        value = builder.sext(args[0], I64) if signature.args[0].bitwidth < 64 else args[0]
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I8P, [I64]), name)
        return builder.ptrtoint(builder.call(fn, [value]), I64)

    return types.int64(value), codegen


@intrinsic
def small_integer(typingctx, address):
    """The value of the Python integer at an address, when it is 0 to 2^63 - 1; -1 for any other."""

    def codegen(context, builder, signature, args):
        overflow = cgutils.alloca_once(builder, I32)
        fnty = ir.FunctionType(I64, [I8P, I32.as_pointer()])
        fn = cgutils.get_or_insert_function(builder.module, fnty, "PyLong_AsLongLongAndOverflow")
        value = builder.call(fn, [builder.inttoptr(args[0], I8P), overflow])
        good = builder.and_(
            builder.icmp_signed("==", builder.load(overflow), I32(0)), builder.icmp_signed(">=", value, I64(0))
        )
        return builder.select(good, value, I64(-1))

    return types.int64(address), codegen


@intrinsic
def type_of(typingctx, address):
    """The address of the type of the object at an address."""

    def codegen(context, builder, signature, args):
        # PyObject: the count of references, then this pointer (Include/object.h).
        return builder.load(builder.inttoptr(builder.add(args[0], I64(8)), I64.as_pointer()))

    return types.int64(address), codegen


@intrinsic
def new_list(typingctx, length):
    """The address of a new list with ``length`` empty places, all of which must be filled; 0 when memory is out."""

    def codegen(context, builder, signature, args):
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I8P, [I64]), "PyList_New")
        return builder.ptrtoint(builder.call(fn, [args[0]]), I64)

    return types.int64(length), codegen


@intrinsic
def list_items(typingctx, listed):
    """The address of the array of references that a list is made of; it moves when the list grows."""

    def codegen(context, builder, signature, args):
        # PyListObject: count and type, length, then this pointer (Include/cpython/listobject.h).
        return builder.load(builder.inttoptr(builder.add(args[0], I64(24)), I64.as_pointer()))

    return types.int64(listed), codegen


@intrinsic
def cut_list(typingctx, listed, start, stop):
    """Take the places from ``start`` to before ``stop`` out of a list; they may be empty."""

    def codegen(context, builder, signature, args):
        fnty = ir.FunctionType(I32, [I8P, I64, I64, I8P])
        fn = cgutils.get_or_insert_function(builder.module, fnty, "PyList_SetSlice")
        builder.call(fn, [builder.inttoptr(args[0], I8P), args[1], args[2], ir.Constant(I8P, None)])
        return context.get_dummy_value()

    return types.void(listed, start, stop), codegen


@intrinsic
def list_length(typingctx, listed):
    """How many items a list has."""

    def codegen(context, builder, signature, args):
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I64, [I8P]), "PyList_Size")
        return builder.call(fn, [builder.inttoptr(args[0], I8P)])

    return types.int64(listed), codegen
