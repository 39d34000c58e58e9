"""Layouts: the same bytes whether Python or a kernel reads and writes them, and errors that name the right fields."""

import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import NumbaError, TypingError

from wirespeed.jit import layout as layouts
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import address, layout

# Every format, in both orders; struct's letter for each.
LETTERS = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i1": "b", "i2": "h", "i4": "i", "i8": "q"}

Everything = layout(
    "TestEverything",
    [
        ("u1", "u1"),
        ("big_u2", ">u2"),
        ("u2", "u2"),
        ("big_u4", ">u4"),
        ("u4", "u4"),
        ("big_u6", ">u6"),
        ("big_u8", ">u8"),
        ("u8", "u8"),
        ("i1", "i1"),
        ("big_i2", ">i2"),
        ("i2", "i2"),
        ("big_i4", ">i4"),
        ("i4", "i4"),
        ("big_i8", ">i8"),
        ("i8", "i8"),
    ],
)


def pack(values):
    """The bytes of ``TestEverything``, by struct and by hand."""
    made = b""
    for name, value in zip(Everything.fields, values, strict=True):
        if name == "big_u6":
            made += value.to_bytes(6, "big")
        else:
            made += struct.pack((">" if name.startswith("big") else "<") + LETTERS[name[-2:]], value)
    return made


def bounds(name):
    bits = 8 * int(name[-1])
    return st.integers(0, (1 << bits) - 1) if name[-2] == "u" else st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


values = st.tuples(*(bounds(name) for name in Everything.fields))


@kernel
def read_all(at):
    p = Everything(at)
    return (
        p.u1, p.big_u2, p.u2, p.big_u4, p.u4, p.big_u6, p.big_u8, p.u8,
        p.i1, p.big_i2, p.i2, p.big_i4, p.i4, p.big_i8, p.i8,
    )  # fmt: skip


@kernel
def copy_all(to, at):
    p, q = Everything(to), Everything(at)
    p.u1, p.big_u2, p.u2, p.big_u4, p.u4, p.big_u6 = q.u1, q.big_u2, q.u2, q.big_u4, q.u4, q.big_u6
    p.big_u8, p.u8, p.i1, p.big_i2, p.i2 = q.big_u8, q.u8, q.i1, q.big_i2, q.i2
    p.big_i4, p.i4, p.big_i8, p.i8 = q.big_i4, q.i4, q.big_i8, q.i8


@given(values)
def test_every_format_is_read_alike_in_python_and_in_kernels(wanted):
    data = np.frombuffer(pack(wanted), np.uint8)
    assert len(data) == Everything.size
    record = Everything(data)
    assert tuple(getattr(record, name) for name in Everything.fields) == wanted
    assert read_all(data.ctypes.data) == wanted


@given(values, st.binary(min_size=80, max_size=80))
def test_every_format_is_written_alike_in_python_and_in_kernels(wanted, noise):
    by_python, by_kernel = bytearray(noise), np.frombuffer(bytearray(noise), np.uint8)
    record = Everything(by_python, 8)
    for name, value in zip(Everything.fields, wanted, strict=True):
        setattr(record, name, value)
    source = np.frombuffer(pack(wanted), np.uint8)
    copy_all(by_kernel.ctypes.data + 8, source.ctypes.data)
    expected = noise[:8] + pack(wanted) + noise[8 + Everything.size :]
    assert bytes(by_python) == expected
    assert by_kernel.tobytes() == expected


def test_values_are_cut_to_their_field():
    record = Everything(bytearray(Everything.size))
    record.u1, record.big_u6, record.i2 = 0x1FF, 1 << 50 | 5, 0x18000
    assert (record.u1, record.big_u6, record.i2) == (0xFF, 5, -0x8000)


@kernel
def store_wide(at, value):
    p = Everything(at)
    p.u1 = value
    p.big_u6 = value
    p.big_u2 = value
    return p.u1, p.big_u6, p.big_u2


@given(st.integers(0, (1 << 63) - 1))
def test_kernels_cut_values_to_their_field_too(value):
    data = np.full(Everything.size + 1, 0xEE, np.uint8)
    assert store_wide(data.ctypes.data, value) == (value & 0xFF, value & (1 << 48) - 1, value & 0xFFFF)
    assert data[-1] == 0xEE


# Bit fields.

SHAPES = {
    "TestBits1": ({"a": 4, "b": 4}, "u1"),
    "TestBits2": ({"a": 3, "b": 13}, ">u2"),
    "TestBits4": ({"a": 4, "b": 8, "c": 20}, ">u4"),
    "TestBits4Little": ({"a": 1, "b": 30, "c": 1}, "u4"),
    "TestBits8": ({"a": 1, "b": 62, "c": 1}, ">u8"),
}
BITS = {name: layout(name, [("before", "u1"), shape, ("after", "u1")]) for name, shape in SHAPES.items()}
Bits1, Bits2, Bits4, Bits4Little, Bits8 = BITS.values()


@kernel
def read_bits(at, which):
    if which == 0:
        return Bits1(at).a, Bits1(at).b, np.uint64(0)
    if which == 1:
        return Bits2(at).a, Bits2(at).b, np.uint64(0)
    if which == 2:
        return Bits4(at).a, Bits4(at).b, np.uint64(Bits4(at).c)
    if which == 3:
        return Bits4Little(at).a, Bits4Little(at).b, np.uint64(Bits4Little(at).c)
    return Bits8(at).a, Bits8(at).b, np.uint64(Bits8(at).c)


@kernel
def write_bits(at, which, a, b, c):
    if which == 0:
        Bits1(at).a = a
        Bits1(at).b = b
    elif which == 1:
        Bits2(at).a = a
        Bits2(at).b = b
    elif which == 2:
        Bits4(at).a = a
        Bits4(at).b = b
        Bits4(at).c = c
    elif which == 3:
        Bits4Little(at).a = a
        Bits4Little(at).b = b
        Bits4Little(at).c = c
    else:
        Bits8(at).a = a
        Bits8(at).b = b
        Bits8(at).c = c


@pytest.mark.parametrize("which", range(5))
@given(data=st.data())
def test_bit_fields_are_named_from_the_most_significant_bit(which, data):
    name = list(SHAPES)[which]
    parts, code = SHAPES[name]
    wanted = [data.draw(st.integers(0, (1 << bits) - 1)) for bits in parts.values()]
    number = 0
    for value, bits in zip(wanted, parts.values(), strict=True):
        number = number << bits | value
    raw = number.to_bytes(int(code[-1]), "big" if code[0] == ">" else "little")
    by_python, by_kernel = bytearray(b"\xaa" + bytes(len(raw)) + b"\xaa"), np.full(len(raw) + 2, 0xAA, np.uint8)
    for part, value in zip(parts, wanted, strict=True):
        setattr(BITS[name](by_python), part, value)
    write_bits(by_kernel.ctypes.data, which, *wanted, *([0] * (3 - len(wanted))))
    assert bytes(by_python) == by_kernel.tobytes() == b"\xaa" + raw + b"\xaa"
    assert [getattr(BITS[name](by_python), part) for part in parts] == wanted
    assert list(read_bits(by_kernel.ctypes.data, which))[: len(wanted)] == wanted


# Nested layouts, arrays, padding.

Inner = layout("TestInner", [("x", ">u2"), ("y", "u4")])
Outer = layout(
    "TestOuter", [("first", Inner), (None, 5), ("second", Inner), ("table", ">u2", 3), ("last", "u1")], size=40
)


@kernel
def nested(at):
    p = Outer(at)
    p.second.x = p.first.y + 1
    inner = p.second
    inner.y = 7
    return p.second.x, p.table - at, address(p.second) - at, p.last


def test_nested_layouts_give_nested_pointers_and_records():
    data = np.zeros(Outer.size, np.uint8)
    record = Outer(data)
    record.first.y, record.last = 0x0102, 9
    assert nested(data.ctypes.data) == (0x0103, Outer.offset("table"), Outer.offset("second"), 9)
    assert (record.second.x, record.second.y, data[11], data[12]) == (0x0103, 7, 1, 3)
    assert (Outer.offset("second"), Outer.offset("table"), Outer.offset("last"), Outer.size) == (11, 17, 23, 40)


def test_an_array_is_a_place_in_python_as_well():
    data = bytearray(Outer.size)
    record = Outer(data)
    record.table[1] = 0x1234
    assert data[19:21] == b"\x12\x34"


def test_a_layout_is_a_numpy_type_over_any_memory():
    data = np.zeros(3 * Inner.size, np.uint8)
    array = Inner.array_at(data.ctypes.data, 3)
    array["x"] = [1, 2, 3]
    assert data.reshape(3, -1)[:, :2].tolist() == [[0, 1], [0, 2], [0, 3]]
    assert Inner.at(data.ctypes.data + Inner.size).x == 2


def test_a_record_over_bytes_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        Inner(bytes(Inner.size)).x = 1


def test_a_buffer_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="buffer"):
        Inner(bytes(Inner.size - 1))


# Mistakes.


@kernel
def misspelt(at):
    return Inner(at).z


@kernel
def misspelt_write(at):
    Inner(at).z = 1


@kernel
def writes_a_place(at):
    Outer(at).first = 1


@kernel
def writes_an_array(at):
    Outer(at).table = 1


@pytest.mark.parametrize("wrong", [misspelt, misspelt_write])
def test_a_misspelt_field_is_a_compile_error_that_lists_the_fields(wrong):
    with pytest.raises(TypingError, match="no field 'z' in TestInner; the fields are x, y"):
        wrong(0)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (writes_a_place, r"Cannot cast .* to Pointer\(TestInner"),
        (writes_an_array, "'table' is a place in TestOuter"),
    ],
)
def test_a_place_cannot_be_assigned(wrong, message):
    with pytest.raises(NumbaError, match=message):
        wrong(0)


def test_python_says_the_same_of_a_misspelt_field_and_of_a_place():
    record = Outer(bytearray(Outer.size))
    with pytest.raises(
        AttributeError, match="no field 'thrid' in TestOuter; the fields are first, second, table, last"
    ):
        _ = record.thrid
    with pytest.raises(AttributeError, match="no field"):
        record.thrid = 1
    with pytest.raises(AttributeError, match="'first' is a place"):
        record.first = 1


@pytest.mark.parametrize(
    "fields, size, message",
    [
        ([("a", "u3")], None, "format 'u3' of 'a'; the formats are u1"),
        ([("a", "f8")], None, "format 'f8'"),
        ([("a", "u6")], None, "format 'u6'"),
        ([("a", "<u6")], None, "format '<u6'"),
        ([("a", "u1"), ("a", "u2")], None, "names 'a' twice"),
        ([({"a": 3, "b": 4}, "u1")], None, "names 7 of 8 bits"),
        ([({"a": 5, "b": 4}, "u1")], None, "names 9 of 8 bits"),
        ([("a", "u4"), ("b", "u4")], 7, "holds 8 bytes of fields, got size=7; give at least 8"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(fields, size, message):
    with pytest.raises(ValueError) as error:
        layout("TestWrong", fields, size)
    assert message in str(error.value)


# Identity.


def test_layouts_of_one_name_and_other_fields_are_other_types_to_numba():
    a, b = layout("TestTwin", [("x", "u4")]), layout("TestTwin", [("x", ">u4")])
    assert a.pointer != b.pointer and hash(a.pointer) != hash(b.pointer)
    assert a.pointer == layout("TestTwin", [("x", "u4")]).pointer


def test_a_layout_and_its_type_come_back_from_a_pickle():
    assert pickle.loads(pickle.dumps(Inner)) is Inner
    assert pickle.loads(pickle.dumps(Inner.pointer)) == Inner.pointer


def test_every_declared_layout_can_be_listed():
    assert Inner in layouts.layouts()
    assert [d.name for d in layouts.layouts()] == sorted(d.name for d in layouts.layouts())


def test_a_record_shows_its_fields():
    data = bytearray(Inner.size)
    record = Inner(data)
    record.x, record.y = 1, 2
    assert repr(record) == "<TestInner x=1 y=2>"
    assert repr(Inner) == "<layout TestInner, 6 bytes: x, y>"


@kernel
def with_unsigned(at):
    return Inner(at).x


def test_an_address_may_be_any_integer():
    data = np.zeros(Inner.size, np.uint8)
    Inner(data).x = 5
    assert with_unsigned(np.uint64(data.ctypes.data)) == with_unsigned(data.ctypes.data) == 5
