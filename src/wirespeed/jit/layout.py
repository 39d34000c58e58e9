"""One declaration per memory layout, for NumPy in Python and for typed pointers in kernels.

Theory of operation
-------------------
``layout("IPv4", [("ttl", "u1"), ("len", ">u2"), ...])`` declares where each field lies and in which byte order.
In a kernel, ``IPv4(address)`` is a pointer whose attributes are the fields: reading one is a load (and a byte swap
where the order is the other one), assigning one is a store, a nested layout gives a nested pointer, an array gives
the address of its first element.  In Python, ``IPv4.at(address)`` and ``IPv4(buffer)`` give NumPy records over the
same bytes.  Types are equal by name to numba, so the name of a pointer's type carries a hash of its fields.

A field is ``(name, format)`` with the formats ``u1 u2 u4 u6 u8 i1 i2 i4 i8``, preceded by ``>`` for network order
(``u6``, a MAC address, exists in network order only), ``(name, other_layout)``, or ``(name, format, count)`` for an
array.  Bit fields are ``({"version": 4, "ihl": 4}, "u1")``, named from the most significant bit.  ``("word", "u8",
[("tail", "u4"), ("head", "u4")])`` is one integer whose parts have names of their own, for exchanging all at once.
``"align": 64`` style padding is written as ``(None, size)``: that many bytes that belong to nobody.
"""

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_builtin, models, register_model, type_callable

INTEGERS = {
    "u1": types.uint8, "u2": types.uint16, "u4": types.uint32, "u6": types.uint64, "u8": types.uint64,
    "i1": types.int8, "i2": types.int16, "i4": types.int32, "i8": types.int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """Where one field of a layout lies: bytes from the start, and bits from the container's least significant one."""

    name: str
    offset: int
    size: int
    swap: bool
    type: Any
    shift: int = 0
    bits: int = 0
    sub: "Layout | None" = None
    count: int = 0


class Layout:
    """A declared memory shape; made by :func:`layout`.

    ``size`` is in bytes, ``dtype`` the NumPy form (bit fields stand there under their container's joined name),
    ``fields`` maps each name to its :class:`Field`.
    """

    def __init__(self, name: str, fields: Sequence[tuple[Any, ...]], size: int | None = None) -> None:
        self.name = name
        self.fields: dict[str, Field] = {}
        columns: list[tuple[str, Any, int]] = []
        at = 0
        for field in fields:
            at = self._add(field, at, columns)
        self.size = at if size is None else size
        if self.size < at:
            raise ValueError(f"layout {name} holds {at} bytes of fields, got size={size}; give at least {at}")
        self.dtype = np.dtype({
            "names": [c[0] for c in columns], "formats": [c[1] for c in columns],
            "offsets": [c[2] for c in columns], "itemsize": self.size,
        })  # fmt: skip
        text = repr([(f.name, f.offset, f.size, f.swap, str(f.type), f.shift, f.bits, f.count) for f in
                     self.fields.values()]) + str(self.size)  # fmt: skip
        self.hash = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.pointer = Pointer(self)
        _register(self)

    def _add(self, field: tuple[Any, ...], at: int, columns: list[tuple[str, Any, int]]) -> int:
        name, kind = field[0], field[1]
        if name is None:
            return at + int(kind)
        if isinstance(kind, Layout):
            self._put(Field(name, at, kind.size, False, kind.pointer, sub=kind))
            columns.append((name, kind.dtype, at))
            return at + kind.size
        code = kind.lstrip("<>")
        if code not in INTEGERS or (code == "u6" and kind[0] != ">"):
            raise ValueError(f"layout {self.name}: format {kind!r} of {name!r}; the formats are {', '.join(INTEGERS)}")
        swap, size = kind[0] == ">" and code[1] != "1", int(code[1])
        element = np.dtype((">u2", 3)) if code == "u6" else np.dtype(kind)
        if isinstance(name, Mapping):
            shift = 8 * size
            for part, bits in name.items():
                shift -= bits
                self._put(Field(part, at, size, swap, INTEGERS[code], shift, bits))
            if shift:
                raise ValueError(f"layout {self.name}: {dict(name)} names {8 * size - shift} of {8 * size} bits")
            columns.append(("_".join(name), element, at))
            return at + size
        if len(field) > 2 and isinstance(field[2], list):
            inside = at
            for part in field[2]:
                inside = self._add(part, inside, columns)
            if inside != at + size:
                raise ValueError(f"layout {self.name}: the parts of {name!r} take {inside - at} bytes of its {size}")
            field = field[:2]
        count = int(field[2]) if len(field) > 2 else 0
        self._put(Field(name, at, size, swap, INTEGERS[code], count=count))
        columns.append((name, np.dtype((element, (count,))) if count else element, at))
        return at + size * max(count, 1)

    def _put(self, field: Field) -> None:
        if field.name in self.fields:
            raise ValueError(f"layout {self.name} names {field.name!r} twice; field names must differ")
        self.fields[field.name] = field

    def __call__(self, buffer: Any, offset: int = 0) -> Any:
        """A :class:`Record` over ``buffer``; writing to it writes there when the buffer can be written."""
        return Record(self, np.frombuffer(buffer, self.dtype, 1, offset))

    def at(self, address: int) -> Any:
        """A :class:`Record` over raw memory.  The memory's owner must outlive the record."""
        return Record(self, self.array_at(address, 1))

    def array_at(self, address: int, length: int) -> Any:
        """A NumPy structured array over raw memory.  The memory's owner must outlive the array."""
        memory: Any = (ctypes.c_uint8 * (self.size * length)).from_address(int(address))
        return np.frombuffer(memory, self.dtype, length)

    def offset(self, name: str) -> int:
        """Bytes from the start of the layout to the field ``name``."""
        return self.fields[name].offset

    def __repr__(self) -> str:
        return f"<layout {self.name}, {self.size} bytes: {', '.join(self.fields)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self.name, self.hash)


def _order(field: Field) -> Literal["big", "little"]:
    return "big" if field.swap else "little"


class Record:
    """One layout's fields over some memory, from Python: plain integers by name, nested records, NumPy arrays.

    Values are cut to the field's width when written, as a kernel would.
    """

    __slots__ = ("_array", "_layout")

    def __init__(self, declared: Layout, array: Any) -> None:
        object.__setattr__(self, "_layout", declared)
        object.__setattr__(self, "_array", array)

    def __getattr__(self, name: str) -> Any:
        field = self._field(name)
        if field.sub is not None:
            return Record(field.sub, self._array[name])
        if field.count:
            return self._array[name][0]
        number = int.from_bytes(self._container(field).tobytes(), _order(field), signed=bool(field.type.signed))
        return number >> field.shift & (1 << field.bits) - 1 if field.bits else number

    def __setattr__(self, name: str, value: int) -> None:
        field = self._field(name)
        if field.sub is not None or field.count:
            raise AttributeError(f"{name!r} is a place in {self._layout.name}, not a value; write its elements")
        container = self._container(field)
        if field.bits:
            mask = (1 << field.bits) - 1 << field.shift
            value = int.from_bytes(container.tobytes(), _order(field)) & ~mask | int(value) << field.shift & mask
        whole = (int(value) & (1 << 8 * field.size) - 1).to_bytes(field.size, _order(field))
        container[:] = np.frombuffer(whole, np.uint8)

    def _field(self, name: str) -> Field:
        if name not in self._layout.fields:
            have = ", ".join(self._layout.fields)
            raise AttributeError(f"no field {name!r} in {self._layout.name}; the fields are {have}")
        return self._layout.fields[name]

    def _container(self, field: Field) -> Any:
        return self._array.view(np.uint8)[field.offset : field.offset + field.size]

    def __repr__(self) -> str:
        return f"<{self._layout.name} {' '.join(f'{n}={getattr(self, n)!r}' for n in self._layout.fields)}>"


class Pointer(types.Type):
    """The numba type of an address at which a layout lies."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        super().__init__(name=f"Pointer({layout.name}:{layout.hash})")

    def field(self, name: str) -> Field:
        """The field ``name``, or a compile error that lists the right ones."""
        return field_of(self.layout, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_pointer, (self.layout.name, self.layout.hash)


_layouts: dict[tuple[str, str], Layout] = {}


def layout(name: str, fields: Sequence[tuple[Any, ...]], size: int | None = None) -> Layout:
    """Declare one memory layout; see the module's docstring for the forms a field can have."""
    return Layout(name, fields, size)


def layouts() -> list[Layout]:
    """Every layout that is declared so far, by name."""
    return [_layouts[key] for key in sorted(_layouts)]


def field_of(declared: Layout, name: str) -> Field:
    """The field ``name`` of a layout; a misspelt one is a compile error that lists the right ones."""
    if name not in declared.fields:
        raise TypingError(f"no field {name!r} in {declared.name}; the fields are {', '.join(declared.fields)}")
    return declared.fields[name]


def number_field(declared: Layout, name: str) -> Field:
    """The field ``name`` of a layout, which must be a number; an array or a nested layout is a compile error."""
    field = field_of(declared, name)
    if field.sub is not None or field.count:
        raise TypingError(f"{name!r} of {declared.name} is a place, not a number; name its elements or fields")
    return field


def _find(name: str, digest: str) -> Layout:
    return _layouts[name, digest]


def find_known(name: str, digest: str) -> Layout | None:
    """The layout of that name and hash, if it is declared in this process."""
    return _layouts.get((name, digest))


def _find_pointer(name: str, digest: str) -> types.Type:
    """What a pointer's type in the kernel cache stands for; one of a layout that has changed since equals no other."""
    found = find_known(name, digest)
    return found.pointer if found else types.Opaque(f"Pointer({name}:{digest})")


@register_model(Pointer)
class PointerModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.IntType(64))


def field_address(builder, base, field, element=None):
    """LLVM: the pointer to ``field`` of the record at the integer ``base``, as a pointer to ``element``."""
    at = builder.add(base, ir.Constant(ir.IntType(64), field.offset)) if field.offset else base
    return builder.inttoptr(at, (element or ir.IntType(8 * field.size)).as_pointer())


def load_field(builder, base, field):
    """LLVM: the value of a plain or bit field, in the width of its container."""
    value = builder.load(field_address(builder, base, field), align=1)
    if field.swap:
        value = builder.bswap(value)
    if field.bits:
        value = builder.lshr(value, value.type(field.shift))
        value = builder.and_(value, value.type((1 << field.bits) - 1))
    elif field.size == 6:
        value = builder.zext(value, ir.IntType(64))
    return value


def store_field(builder, base, field, value):
    """LLVM: write a plain or bit field; ``value`` has the width of the field's numba type."""
    at = field_address(builder, base, field)
    if field.size == 6:
        value = builder.trunc(value, ir.IntType(48))
    if field.bits:
        old = builder.load(at, align=1)
        old = builder.bswap(old) if field.swap else old
        mask = ((1 << field.bits) - 1) << field.shift
        new = builder.and_(builder.shl(value, value.type(field.shift)), value.type(mask))
        value = builder.or_(new, builder.and_(old, value.type(~mask & (1 << 8 * field.size) - 1)))
    builder.store(builder.bswap(value) if field.swap else value, at, align=1)


@infer_getattr
class PointerAttribute(AttributeTemplate):
    key = Pointer

    def generic_resolve(self, pointer: Any, name: str) -> Any:
        field = pointer.field(name)
        return types.int64 if field.count else field.type


@lower_getattr_generic(Pointer)
def get_field(context, builder, pointer, value, name):
    field = pointer.field(name)
    if field.sub is not None or field.count:
        return builder.add(value, ir.Constant(ir.IntType(64), field.offset))
    return load_field(builder, value, field)


@lower_setattr_generic(Pointer)
def set_field(context, builder, sig, args, name):
    field = sig.args[0].field(name)
    if field.sub is not None or field.count:
        raise TypingError(f"{field.name!r} is a place in {sig.args[0].layout.name}, not a value; write its elements")
    store_field(builder, args[0], field, context.cast(builder, args[1], sig.args[1], field.type))


@intrinsic
def address(typingctx, pointer):
    """The address that a layout's pointer holds, as int64."""
    if not isinstance(pointer, Pointer):
        return None

    def codegen(context, builder, signature, args):
        return args[0]

    return types.int64(pointer), codegen


def _register(declared: Layout) -> None:
    """Let kernels call ``declared(address)``."""
    _layouts[declared.name, declared.hash] = declared

    @type_callable(declared)
    def typer(context):
        return lambda at: declared.pointer if isinstance(at, types.Integer) else None

    @lower_builtin(declared, types.Integer)
    def lower(context, builder, sig, args):
        return context.cast(builder, args[0], sig.args[0], types.int64)
