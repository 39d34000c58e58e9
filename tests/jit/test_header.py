"""Packets, headers, states and arrays as numba types: where they read, where they write, and what they refuse."""

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from wirespeed.jit.guard import guarded
from wirespeed.jit.header import Place, Scheme, get_slot, present, read_address, set_slot, write_address
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.region import (
    array_at,
    as_state,
    find_layout,
    get_be16,
    get_be32,
    get_be64,
    get_element,
    length_of,
    put_be16,
    put_be32,
    put_be64,
    set_element,
)
from wirespeed.jit.wrapping import add, multiply, subtract

i64 = np.int64
Outer = layout("HeaderOuter", [("mac", ">u6"), ("kind", ">u2")])
Inner = layout("HeaderInner", [({"high": 4, "low": 4}, "u1"), ("small", "i1"), ("wide", ">u4"), ("huge", ">u8")])
Note = layout("HeaderNote", [("mark", "u4"), ("when", "i8")])
Part = layout("HeaderPart", [("n", ">i2"), ("row", "u4", 3)])
Kept = layout("HeaderKept", [("count", "u8"), ("part", Part), ("cells", ">u2", 4)])

WORDS = ("frame", "layers", "record", "zeros", "scratch", "inner")
Kind = Scheme(
    "HeaderKind",
    WORDS,
    {"outer": Place(Outer, 1, ""), "inner": Place(Inner, 2, "inner", 4)},
    Note,
    {"mark": "mark", "at": "when"},
)


class Memory:
    """A frame, a record, a line of zeros and one of scratch."""

    def __init__(self, frame: bytes) -> None:
        self.blocks = {name: ctypes.create_string_buffer(64) for name in ("record", "zeros", "scratch")}
        self.frame = ctypes.create_string_buffer(frame, max(len(frame), 1))

    def words(self, layers: int, inner: int) -> tuple[int, ...]:
        record, zeros, scratch = (ctypes.addressof(self.blocks[n]) for n in ("record", "zeros", "scratch"))
        return ctypes.addressof(self.frame), layers, record, zeros, scratch, inner


@kernel(inline=True)
def fill_slots(pkt, words):
    frame, layers, record, zeros, scratch, inner = words
    set_slot(pkt, "frame", frame)
    set_slot(pkt, "layers", layers)
    set_slot(pkt, "record", record)
    set_slot(pkt, "zeros", zeros)
    set_slot(pkt, "scratch", scratch)
    set_slot(pkt, "inner", inner)


@kernel
def read_all(words):
    pkt = Kind()
    fill_slots(pkt, words)
    o, i = pkt.outer, pkt.inner
    return (o.mac, o.kind, i.high, i.low, i.small, i.wide, i.huge, pkt.mark, pkt.at, present(o), present(i))


@kernel
def write_all(words, value):
    pkt = Kind()
    fill_slots(pkt, words)
    pkt.outer.mac = value
    pkt.inner.low = value
    pkt.inner.small = value
    pkt.inner.wide = value
    pkt.inner.huge = value
    return get_slot(pkt, "inner"), read_address(pkt.inner), write_address(pkt.inner)


FRAME = bytes(range(1, 30))


def test_fields_are_read_as_signed_64_bit_numbers() -> None:
    memory = Memory(b"\xff" * 40)
    ctypes.memmove(memory.blocks["record"], (7).to_bytes(4, "little") + (-9).to_bytes(8, "little", signed=True), 12)
    got = read_all(memory.words(3, 10))
    assert got == ((1 << 48) - 1, 0xFFFF, 15, 15, -1, 0xFFFFFFFF, -1, 7, -9, True, True)


def test_an_offset_is_added_where_the_place_says_so() -> None:
    memory = Memory(FRAME)
    _, _, high, low, *_ = read_all(memory.words(3, 10))
    assert (high, low) == (FRAME[14] >> 4, FRAME[14] & 15)


def test_an_absent_header_reads_as_zeros_wherever_its_offset_points() -> None:
    memory = Memory(FRAME)
    got = read_all(memory.words(1, 1 << 60))
    assert got[:2] == (0x010203040506, 0x0708)
    assert got[2:7] == (0, 0, 0, 0, 0) and got[9:] == (True, False)


def test_writes_are_cut_to_the_fields_width() -> None:
    memory = Memory(bytes(40))
    write_all(memory.words(3, 8), -2)
    assert memory.frame.raw[:6] == b"\xff\xff\xff\xff\xff\xfe"
    assert memory.frame.raw[12:26] == b"\x0e\xfe" + b"\xff\xff\xff\xfe" + b"\xff" * 7 + b"\xfe"


def test_writes_to_an_absent_header_go_to_scratch() -> None:
    memory = Memory(FRAME)
    words = memory.words(0, 1 << 60)
    assert write_all(words, 5) == (1 << 60, words[3], words[4])
    assert memory.frame.raw == FRAME and memory.blocks["zeros"].raw == bytes(64)
    assert any(memory.blocks["scratch"].raw)


def test_a_scheme_is_not_called_from_python() -> None:
    with pytest.raises(TypeError, match="call a scheme in a kernel"):
        Kind()


def test_a_misspelt_field_is_a_compile_error() -> None:
    @kernel
    def misspelt(words):
        pkt = Kind()
        fill_slots(pkt, words)
        return pkt.outer.mca

    with pytest.raises(TypingError, match="no field 'mca' in HeaderOuter; the fields are mac, kind"):
        misspelt(Memory(FRAME).words(1, 0))


# ---------------------------------------------------------------------------------------------------------------------
# Arrays and states

FORMATS = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", ">u2", ">u4", ">u8", ">i2", ">i4", ">i8"]


def accessors(code: str) -> Any:
    @kernel
    def access(address, length, index, value):
        array = array_at(address, length, code)
        before = get_element(array, index)
        set_element(array, index, value)
        return length_of(array), before, get_element(array, index)

    return access


ACCESS = {code: accessors(code) for code in FORMATS}
indices = st.one_of(st.integers(-3, 8), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 32, 1 << 61]))


@pytest.mark.parametrize("code", FORMATS)
@given(index=indices, value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_array_never_reads_or_writes_outside(code: str, index: int, value: int) -> None:
    whole = np.arange(1, 8).astype(code)
    inside = whole[1:6].copy()
    length, before, after = ACCESS[code](whole.ctypes.data + whole.itemsize, 5, index, value)
    assert length == 5
    if 0 <= index < 5:
        assert before == inside[index]
        inside[index] = np.array([value]).astype(np.dtype(code).newbyteorder("="))[0]
        assert after == inside.astype(np.dtype(code).newbyteorder("=")).astype(np.int64)[index]
    else:
        assert before == after == 0
    assert whole.tolist() == [1, *inside.tolist(), 7]


@kernel
def words_at(address, length, at, value):
    data = array_at(address, length, "u1")
    before = get_be16(data, at), get_be32(data, at), get_be64(data, at)
    put_be16(data, at, value)
    put_be32(data, at, value)
    put_be64(data, at, value)
    return before


@given(
    size=st.integers(0, 20), at=st.one_of(st.integers(-9, 20), indices), value=st.integers(-(1 << 63), (1 << 63) - 1)
)
def test_words_are_read_and_written_inside_only(size: int, at: int, value: int) -> None:
    data = bytearray(range(1, size + 1))
    guard = np.frombuffer(bytearray(b"\xaa" * 16 + data + b"\xaa" * 16), np.uint8)
    got = words_at(guard.ctypes.data + 16, size, at, value)
    for k, width in enumerate((2, 4, 8)):
        if 0 <= at <= size - width:
            assert got[k] == int.from_bytes(bytes(range(at + 1, at + 1 + width)), "big", signed=width == 8)
            data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "big")
        else:
            assert got[k] == 0
    assert guard.tobytes() == b"\xaa" * 16 + data + b"\xaa" * 16


@kernel
def use_state(address):
    state = as_state(Kept(address))
    state.count = state.count - 2
    part = state.part
    part.n = part.n - 1
    set_element(part.row, 2, 77)
    set_element(state.cells, 1, 0x12345)
    set_element(state.cells, 4, 9)
    return state.count, part.n, get_element(part.row, 2), get_element(state.cells, 1), length_of(state.cells)


def test_a_state_has_numbers_parts_and_arrays() -> None:
    memory = ctypes.create_string_buffer(Kept.size)
    assert use_state(ctypes.addressof(memory)) == (-2, -1, 77, 0x2345, 4)
    record = Kept.at(ctypes.addressof(memory))
    assert record.count == (1 << 64) - 2 and record.part.n == -1
    assert list(record.part.row) == [0, 0, 77] and list(record.cells) == [0, 0x2345, 0, 0]


def test_a_place_in_a_header_is_not_a_number() -> None:
    rows = Scheme("HeaderRows", WORDS, {"kept": Place(Kept, 1, "")}, Note, {})

    @kernel
    def read(words):
        pkt = rows()
        fill_slots(pkt, words)
        return pkt.kept.cells

    with pytest.raises(
        TypingError, match="'cells' of HeaderKept is a place, not a number; name its elements or fields"
    ):
        read(Memory(FRAME).words(1, 0))


def test_a_layout_is_found_by_name_and_hash() -> None:
    assert find_layout(Kept.name, Kept.hash) is Kept


# ---------------------------------------------------------------------------------------------------------------------
# Calls that may raise, and arithmetic that wraps


@kernel
def may_raise(x):
    if x == 3:
        raise ValueError("three")
    return x * 2


@kernel
def call_guarded(x):
    return guarded(may_raise, (x,))


def test_an_exception_ends_in_a_guarded_call() -> None:
    assert [call_guarded(x) for x in (1, 3, 4)] == [(False, 2), (True, 0), (False, 8)]


def test_a_guarded_kernel_must_return_a_number() -> None:
    @kernel
    def truth(x):
        return x == 1

    @kernel
    def call(x):
        return guarded(truth, (x,))

    with pytest.raises(TypingError, match="must return an int64, and this returns bool"):
        call(1)


@kernel
def wrapped(a, b):
    # What LLVM concludes from a promise that nothing overflows shows in comparisons of the results.
    sum, difference, product = add(a, b), subtract(a, b), multiply(a, b)
    return sum, difference, product, sum > a, difference < a, multiply(a, i64(-8)) >= 0


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_sums_and_products_wrap_and_llvm_does_not_believe_otherwise(a: int, b: int) -> None:
    def signed(x: int) -> int:
        return (x + (1 << 63)) % (1 << 64) - (1 << 63)

    s, d, p = signed(a + b), signed(a - b), signed(a * b)
    assert wrapped(a, b) == (s, d, p, s > a, d < a, signed(a * -8) >= 0)
