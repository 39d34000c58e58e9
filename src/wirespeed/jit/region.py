"""States and arrays as numba types: memory of a known length, which nothing that a user's function does can leave.

An *array* is an address and a length.  An element outside reads as 0 and swallows what is written; so it is with words
of two, four and eight bytes anywhere in an array of bytes.  A *state* is the address of a layout, whose array fields
are arrays.  Numbers come out as int64 and are cut to the width of where they go, as in :mod:`wirespeed.jit.header`.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, models, register_model

from wirespeed.jit.layout import (
    INTEGERS,
    Field,
    Layout,
    Pointer,
    _find,
    field_of,
    find_known,
    load_field,
    store_field,
)

I64 = ir.IntType(64)


class StateType(types.Type):
    """The address of a state."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        super().__init__(name=f"State({layout.name}:{layout.hash})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_state, (self.layout.name, self.layout.hash)


class ArrayType(types.Type):
    """The address and the length of an array of integers, given by their format, such as ">u2"."""

    def __init__(self, code: str) -> None:
        self.code = code
        swap, size = code[0] == ">" and code[-1] != "1", int(code[-1])
        self.element = Field("element", 0, size, swap, INTEGERS[code.lstrip("<>")])
        super().__init__(name=f"Array({code})")

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayType, (self.code,)


def _find_state(name: str, digest: str) -> types.Type:
    """What a state's type in the kernel cache stands for; one of a layout that has changed since equals no other."""
    found = find_known(name, digest)
    return StateType(found) if found else types.Opaque(f"State({name}:{digest})")


@register_model(StateType)
class _StateModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, I64)


@register_model(ArrayType)
class _ArrayModel(models.StructModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("address", types.int64), ("length", types.int64)])


def _parts(context, builder, ty, value=None):
    return cgutils.create_struct_proxy(ty)(context, builder, value=value)


def _array(context, builder, ty, address, length):
    made = _parts(context, builder, ty)
    made.address, made.length = address, length
    return made._getvalue()


@intrinsic
def as_state(typingctx, pointer):
    """The state at a layout's pointer."""
    if not isinstance(pointer, Pointer):
        return None
    return StateType(pointer.layout)(pointer), lambda context, builder, signature, args: args[0]


@infer_getattr
class _StateAttribute(AttributeTemplate):
    key = StateType

    def generic_resolve(self, state: Any, name: str) -> Any:
        field = field_of(state.layout, name)
        if field.sub is not None:
            return StateType(field.sub)
        return ArrayType(array_code(field)) if field.count else types.int64


def array_code(field: Field) -> str:
    """The format of the elements of an array field."""
    return f"{'>' if field.swap else ''}{'i' if field.type.signed else 'u'}{field.size}"


@lower_getattr_generic(StateType)
def _get_of_state(context, builder, state, value, name):
    field = field_of(state.layout, name)
    at = builder.add(value, I64(field.offset))
    if field.sub is not None:
        return at
    if field.count:
        return _array(context, builder, ArrayType(array_code(field)), at, I64(field.count))
    return context.cast(builder, load_field(builder, value, field), field.type, types.int64)


@lower_setattr_generic(StateType)
def _set_of_state(context, builder, sig, args, name):
    field = field_of(sig.args[0].layout, name)
    store_field(builder, args[0], field, context.cast(builder, args[1], sig.args[1], field.type))


@intrinsic(prefer_literal=True)
def array_at(typingctx, address, length, code):
    """The array of ``length`` elements at an address, whose format is a literal such as "u4"."""
    result = ArrayType(code.literal_value)

    def codegen(context, builder, signature, args):
        both = [context.cast(builder, args[i], signature.args[i], types.int64) for i in (0, 1)]
        return _array(context, builder, result, *both)

    return result(address, length, code), codegen


@intrinsic
def length_of(typingctx, array):
    """How many elements an array has."""

    def codegen(context, builder, signature, args):
        return _parts(context, builder, array, args[0]).length

    return types.int64(array), codegen


def _guarded_load(builder, inside, base, at, field):
    """LLVM: the element at ``base + at``, or 0 where it is not inside, in which case nothing is touched."""
    result = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(max(8 * field.size, 8)), 0))
    with builder.if_then(inside):
        builder.store(load_field(builder, builder.add(base, at), field), result)
    return builder.load(result)


@intrinsic
def get_element(typingctx, array, index):
    """The element at an index; 0 outside the array."""
    field = array.element

    def codegen(context, builder, signature, args):
        both = _parts(context, builder, array, args[0])
        at = context.cast(builder, args[1], signature.args[1], types.int64)
        inside = builder.icmp_unsigned("<", at, both.length)  # a negative index is a large one
        value = _guarded_load(builder, inside, both.address, builder.mul(at, I64(field.size)), field)
        return context.cast(builder, value, field.type, types.int64)

    return types.int64(array, index), codegen


@intrinsic
def set_element(typingctx, array, index, value):
    """Write the element at an index; nothing outside the array."""
    field = array.element

    def codegen(context, builder, signature, args):
        both = _parts(context, builder, array, args[0])
        at = context.cast(builder, args[1], signature.args[1], types.int64)
        new = context.cast(builder, args[2], signature.args[2], field.type)
        with builder.if_then(builder.icmp_unsigned("<", at, both.length)):
            store_field(builder, builder.add(both.address, builder.mul(at, I64(field.size))), field, new)
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


def _big_endian(size: int) -> Any:
    """Access to ``size`` bytes in network order anywhere in an array of bytes."""
    field = Field("word", 0, size, True, INTEGERS[f"u{size}"])

    def place(context, builder, signature, args):
        both = _parts(context, builder, signature.args[0], args[0])
        at = context.cast(builder, args[1], signature.args[1], types.int64)
        # Two comparisons, for ``at + size`` could wrap.
        not_before = builder.icmp_signed(">=", at, I64(0))
        not_behind = builder.icmp_signed("<=", at, builder.sub(both.length, I64(size)))
        return builder.and_(not_before, not_behind), both.address, at

    @intrinsic
    def get(typingctx, array, at):
        def codegen(context, builder, signature, args):
            value = _guarded_load(builder, *place(context, builder, signature, args), field)
            return context.cast(builder, value, field.type, types.int64)

        return types.int64(array, at), codegen

    @intrinsic
    def put(typingctx, array, at, value):
        def codegen(context, builder, signature, args):
            inside, base, at = place(context, builder, signature, args)
            new = context.cast(builder, args[2], signature.args[2], field.type)
            with builder.if_then(inside):
                store_field(builder, builder.add(base, at), field, new)
            return context.get_dummy_value()

        return types.void(array, at, value), codegen

    return get, put


get_be16, put_be16 = _big_endian(2)
get_be32, put_be32 = _big_endian(4)
get_be64, put_be64 = _big_endian(8)


def find_layout(name: str, digest: str) -> Layout:
    """The declared layout of that name and hash, for generated modules, which cannot hold the object itself."""
    return _find(name, digest)
