"""What a user's function touches, as numba types: a packet with headers as attributes, its state, its arrays.

Theory of operation
-------------------
Nothing that a user's function does may reach memory that is not the packet's, the state's or a table's.  So the types
carry what makes an access safe:

* a *header* is two addresses.  Fields are read at the first and written at the second.  Both are the header's own when
  it is there; one that is absent is read in a line of zeros and written into a line of scratch.  Equal addresses
  therefore mean "it is there", and that is what a condition tests.
* states, tables and the bytes of a payload know their length: :mod:`wirespeed.jit.region`.
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
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_builtin, models, register_model, type_callable

from wirespeed.jit.layout import Layout, field_of, find_known, load_field, number_field, store_field

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


_schemes: dict[tuple[str, str], Scheme] = {}


class PacketType(types.Type):
    """A pointer to the slots of a packet."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        super().__init__(name=f"Packet({scheme.name}:{scheme.hash})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_packet, (self.scheme.name, self.scheme.hash)


def _find_packet(name: str, digest: str) -> types.Type:
    """What a packet's type in the kernel cache stands for; one of a scheme that has changed since equals no other."""
    found = _schemes.get((name, digest))
    return found.type if found else types.Opaque(f"Packet({name}:{digest})")


class HeaderType(types.Type):
    """The two addresses of a header."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        super().__init__(name=f"Header({layout.name}:{layout.hash})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_header, (self.layout.name, self.layout.hash)


def _find_header(name: str, digest: str) -> types.Type:
    """Likewise for a header's type."""
    found = find_known(name, digest)
    return HeaderType(found) if found else types.Opaque(f"Header({name}:{digest})")


@register_model(PacketType)
class _PacketModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.ArrayType(I64, len(fe_type.scheme.slots)).as_pointer())


@register_model(HeaderType)
class _HeaderModel(models.StructModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("read", types.int64), ("write", types.int64)])


def _both(context, builder, ty, value=None):
    return cgutils.create_struct_proxy(ty)(context, builder, value=value)


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
    header = _both(context, builder, HeaderType(place.layout))
    header.read = builder.select(there, at, slot("zeros"))
    header.write = builder.select(there, at, slot("scratch"))
    return header._getvalue()


# ---------------------------------------------------------------------------------------------------------------------
# Headers


@infer_getattr
class _HeaderAttribute(AttributeTemplate):
    key = HeaderType

    def generic_resolve(self, header: Any, name: str) -> Any:
        number_field(header.layout, name)
        return types.int64


@lower_getattr_generic(HeaderType)
def _get_of_header(context, builder, header, value, name):
    field = field_of(header.layout, name)
    read = _both(context, builder, header, value).read
    return context.cast(builder, load_field(builder, read, field), field.type, types.int64)


@lower_setattr_generic(HeaderType)
def _set_of_header(context, builder, sig, args, name):
    field = field_of(sig.args[0].layout, name)
    write = _both(context, builder, sig.args[0], args[0]).write
    store_field(builder, write, field, context.cast(builder, args[1], sig.args[1], field.type))


@intrinsic
def present(typingctx, header):
    """Whether a header is there."""

    def codegen(context, builder, signature, args):
        both = _both(context, builder, header, args[0])
        return builder.icmp_unsigned("==", both.read, both.write)

    return types.boolean(header), codegen


def _address(which: str, doc: str) -> Any:
    @intrinsic
    def address(typingctx, header):
        def codegen(context, builder, signature, args):
            return getattr(_both(context, builder, header, args[0]), which)

        return types.int64(header), codegen

    address.__doc__ = doc
    return address


read_address = _address("read", "Where a header is read: its own address, or zeros.")
write_address = _address("write", "Where a header is written: its own address, or scratch.")
