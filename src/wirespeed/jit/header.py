"""What a user's function touches, as numba types: a packet with headers as attributes, its state, its arrays.

Theory of operation
-------------------
Nothing that a user's function does may reach memory that is not the packet's, the state's or a table's.  So the types
carry what makes an access safe:

* a *header* is two addresses.  Fields are read at the first and written at the second.  Both are the header's own when
  it is there; one that is absent is read in a line of zeros and written into a line of scratch.  Equal addresses
  therefore mean "it is there", and that is what a condition tests.
* an *array* (of a state, a table, the bytes of a payload) is an address and a length.  An element outside reads as 0
  and swallows what is written.
* a *state* is the address of a layout.
* a *packet* is a pointer to words on the stage's stack (its *slots*): where its frame is, where headers were found.
  After inlining LLVM keeps them in registers.  Which header is found by which slots is a :class:`Scheme`.

Every number that comes out is an int64, so that a user's arithmetic has one type: what is narrower is widened, what is
unsigned and 64 bits wide wraps.  What goes in is cut to the field's width.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_builtin, models, register_model, type_callable

from wirespeed.jit.layout import INTEGERS, Field, Layout, Pointer, _find, field_of, load_field, store_field

I64 = ir.IntType(64)


class Place(NamedTuple):
    """How one header of a packet is found: it is there when ``bit`` is set in slot 'layers', at an offset from 'frame'.

    The offset is what slot ``slot`` holds (none for "") and ``more`` bytes.
    """

    layout: Layout
    bit: int
    slot: str
    more: int = 0


class Scheme:
    """What packets of a kind have: headers by attribute, fields of the packet's record, and slots.

    The slots 'frame', 'layers', 'record', 'zeros' and 'scratch' must be among them.  Calling a scheme in a kernel makes
    a packet on that kernel's stack, whose slots are not yet written.
    """

    def __init__(
        self, name: str, slots: Sequence[str], headers: Mapping[str, Place], record: Layout, fields: Mapping[str, str]
    ) -> None:
        self.name = name
        self.slots = {slot: i for i, slot in enumerate(slots)}
        self.headers = dict(headers)
        self.record = record
        self.fields = dict(fields)
        places = [(k, p.layout.name, p.layout.hash, *p[1:]) for k, p in self.headers.items()]
        text = repr((list(slots), places, record.hash, sorted(self.fields.items())))
        self.hash = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.type = PacketType(self)
        _schemes[name, self.hash] = self
        _register(self)

    def __call__(self) -> Any:
        raise TypeError("a packet's slots lie on a kernel's stack; call a scheme in a kernel")

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_scheme, (self.name, self.hash)


_schemes: dict[tuple[str, str], Scheme] = {}


def _find_scheme(name: str, digest: str) -> Scheme:
    return _schemes[name, digest]


class PacketType(types.Type):
    """A pointer to the slots of a packet."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        super().__init__(name=f"Packet({scheme.name}:{scheme.hash})")


class HeaderType(types.Type):
    """The two addresses of a header."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        super().__init__(name=f"Header({layout.name}:{layout.hash})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _header_type, (self.layout,)


class StateType(types.Type):
    """The address of a state."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        super().__init__(name=f"State({layout.name}:{layout.hash})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _state_type, (self.layout,)


class ArrayType(types.Type):
    """The address and the length of an array of integers, given by their format, such as ">u2"."""

    def __init__(self, code: str) -> None:
        self.code = code
        swap, size = code[0] == ">" and code[-1] != "1", int(code[-1])
        self.element = Field("element", 0, size, swap, INTEGERS[code.lstrip("<>")])
        super().__init__(name=f"Array({code})")

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayType, (self.code,)


def _header_type(layout: Layout) -> HeaderType:
    return HeaderType(layout)


def _state_type(layout: Layout) -> StateType:
    return StateType(layout)


@register_model(PacketType)
class _PacketModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.ArrayType(I64, len(fe_type.scheme.slots)).as_pointer())


@register_model(HeaderType)
class _HeaderModel(models.StructModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("read", types.int64), ("write", types.int64)])


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


# ---------------------------------------------------------------------------------------------------------------------
# Packets


def _register(scheme: Scheme) -> None:
    """Let kernels call ``scheme()``."""

    @type_callable(scheme)
    def typer(context):
        return lambda: scheme.type

    @lower_builtin(scheme)
    def lower(context, builder, sig, args):
        return cgutils.alloca_once(builder, ir.ArrayType(I64, len(scheme.slots)))


def _slot(builder, scheme, packet, name):
    return builder.gep(packet, [ir.Constant(ir.IntType(32), i) for i in (0, scheme.slots[name])], inbounds=True)


@intrinsic(prefer_literal=True)
def get_slot(typingctx, packet, name):
    """The word in a packet's slot, which is named by a literal."""

    def codegen(context, builder, signature, args):
        return builder.load(_slot(builder, packet.scheme, args[0], name.literal_value))

    return types.int64(packet, name), codegen


@intrinsic(prefer_literal=True)
def set_slot(typingctx, packet, name, value):
    """Write the word in a packet's slot, which is named by a literal."""

    def codegen(context, builder, signature, args):
        new = context.cast(builder, args[2], signature.args[2], types.int64)
        builder.store(new, _slot(builder, packet.scheme, args[0], name.literal_value))
        return context.get_dummy_value()

    return types.void(packet, name, value), codegen


@infer_getattr
class _PacketAttribute(AttributeTemplate):
    key = PacketType

    def generic_resolve(self, packet: Any, name: str) -> Any:
        scheme = packet.scheme
        if name in scheme.fields:
            return types.int64
        return HeaderType(scheme.headers[name].layout) if name in scheme.headers else None


@lower_getattr_generic(PacketType)
def _get_of_packet(context, builder, packet, value, name):
    scheme = packet.scheme

    def slot(name):
        return builder.load(_slot(builder, scheme, value, name))

    if name in scheme.fields:
        field = field_of(scheme.record, scheme.fields[name])
        return context.cast(builder, load_field(builder, slot("record"), field), field.type, types.int64)
    place = scheme.headers[name]
    at = builder.add(slot(place.slot), I64(place.more)) if place.slot else I64(place.more)
    at = builder.add(slot("frame"), at)
    there = builder.icmp_unsigned("!=", builder.and_(slot("layers"), I64(place.bit)), I64(0))
    header = _parts(context, builder, HeaderType(place.layout))
    header.read = builder.select(there, at, slot("zeros"))
    header.write = builder.select(there, at, slot("scratch"))
    return header._getvalue()


@lower_setattr_generic(PacketType)
def _set_of_packet(context, builder, sig, args, name):
    scheme = sig.args[0].scheme
    field = field_of(scheme.record, scheme.fields[name])
    record = builder.load(_slot(builder, scheme, args[0], "record"))
    store_field(builder, record, field, context.cast(builder, args[1], sig.args[1], field.type))


# ---------------------------------------------------------------------------------------------------------------------
# Headers


def _plain(layout: Layout, name: str) -> Field:
    field = field_of(layout, name)
    if field.sub is not None or field.count:
        raise TypingError(f"{name!r} of {layout.name} is not a number")
    return field


@infer_getattr
class _HeaderAttribute(AttributeTemplate):
    key = HeaderType

    def generic_resolve(self, header: Any, name: str) -> Any:
        _plain(header.layout, name)
        return types.int64


@lower_getattr_generic(HeaderType)
def _get_of_header(context, builder, header, value, name):
    field = field_of(header.layout, name)
    read = _parts(context, builder, header, value).read
    return context.cast(builder, load_field(builder, read, field), field.type, types.int64)


@lower_setattr_generic(HeaderType)
def _set_of_header(context, builder, sig, args, name):
    field = field_of(sig.args[0].layout, name)
    write = _parts(context, builder, sig.args[0], args[0]).write
    store_field(builder, write, field, context.cast(builder, args[1], sig.args[1], field.type))


@intrinsic
def present(typingctx, header):
    """Whether a header is there."""

    def codegen(context, builder, signature, args):
        both = _parts(context, builder, header, args[0])
        return builder.icmp_unsigned("==", both.read, both.write)

    return types.boolean(header), codegen


def _address(which: str, doc: str) -> Any:
    @intrinsic
    def address(typingctx, header):
        def codegen(context, builder, signature, args):
            return getattr(_parts(context, builder, header, args[0]), which)

        return types.int64(header), codegen

    address.__doc__ = doc
    return address


read_address = _address("read", "Where a header is read: its own address, or zeros.")
write_address = _address("write", "Where a header is written: its own address, or scratch.")


# ---------------------------------------------------------------------------------------------------------------------
# States and arrays


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
    if field.sub is not None or field.count:
        at = builder.add(value, I64(field.offset))
        return (
            at
            if field.sub is not None
            else _array(context, builder, ArrayType(array_code(field)), at, I64(field.count))
        )
    return context.cast(builder, load_field(builder, value, field), field.type, types.int64)


@lower_setattr_generic(StateType)
def _set_of_state(context, builder, sig, args, name):
    field = _plain(sig.args[0].layout, name)
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


# ---------------------------------------------------------------------------------------------------------------------
# Calls


@intrinsic
def guarded(typingctx, body, arguments):
    """Call a kernel with a tuple of arguments; (whether it raised, what it returned, which is an int64).

    This reads the status that every numba function returns, so that an exception ends here.
    """
    resolved = body.get_call_type(typingctx, tuple(arguments), {})
    if resolved.return_type != types.int64:
        raise TypingError(f"what is guarded must return an int64, and this returns {resolved.return_type}")

    def codegen(context, builder, signature, args):
        compiled = body.dispatcher.overloads[resolved.args]
        context.add_linking_libs([compiled.library])
        values = cgutils.unpack_tuple(builder, args[1])
        status, value = context.call_internal_no_propagate(builder, compiled.fndesc, resolved, values)
        value = builder.select(status.is_error, I64(0), value)
        return context.make_tuple(builder, signature.return_type, [status.is_error, value])

    return types.Tuple([types.boolean, types.int64])(body, arguments), codegen
