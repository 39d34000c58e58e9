"""Each intrinsic against its plain Python model, and each portable twin against its machine."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.jit import intrinsics
from wirespeed.jit.intrinsics import (
    HARDWARE_CRC,
    bswap16,
    bswap32,
    bswap64,
    call_stage,
    copy,
    count_ones,
    crc32c,
    crc32c_portable,
    cycles,
    equal,
    fill,
    item_u32,
    item_u64,
    leading_zeros,
    load_be16,
    load_be32,
    load_be64,
    load_handle,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    move,
    pause,
    prefetch,
    stack,
    store_be16,
    store_be32,
    store_be64,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    trailing_zeros,
)
from wirespeed.jit.kernel import kernel, stage

U64 = st.integers(0, 2**64 - 1)


@kernel
def load_all(at):
    return (
        load_u8(at),
        load_u16(at),
        load_u32(at),
        load_u64(at),
        load_i64(at),
        load_be16(at),
        load_be32(at),
        load_be64(at),
    )


@kernel
def store_all(at, value):
    store_u8(at, value)
    store_u16(at + 8, value)
    store_u32(at + 16, value)
    store_u64(at + 24, value)
    store_i64(at + 32, value)
    store_be16(at + 40, value)
    store_be32(at + 48, value)
    store_be64(at + 56, value)


@given(st.binary(min_size=8, max_size=8), st.integers(0, 7))
def test_loads_read_any_alignment_in_either_order(data: bytes, shift: int) -> None:
    memory = np.frombuffer(b"\xa5" * shift + data + b"\xa5" * 8, np.uint8)
    formats = ("<B", "<H", "<I", "<Q", "<q", ">H", ">I", ">Q")
    assert load_all(memory.ctypes.data + shift) == tuple(struct.unpack_from(form, data)[0] for form in formats)


@given(U64, st.integers(0, 7))
def test_stores_write_any_alignment_in_either_order_and_no_more(value: int, shift: int) -> None:
    memory = np.full(80, 0xA5, np.uint8)
    store_all(memory.ctypes.data + shift, np.uint64(value))
    wanted = bytearray(b"\xa5" * 80)
    for place, (order, size) in enumerate([("little", 1), ("little", 2), ("little", 4), ("little", 8), ("little", 8),
                                           ("big", 2), ("big", 4), ("big", 8)]):  # fmt: skip
        at = shift + 8 * place
        wanted[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, order)
    assert memory.tobytes() == bytes(wanted)


@kernel
def items(at, index):
    return item_u32(at, index), item_u64(at, index)


@given(st.binary(min_size=80, max_size=80), st.integers(0, 8), st.integers(0, 7))
def test_items_are_those_of_an_array_at_any_alignment(data: bytes, index: int, shift: int) -> None:
    memory = np.frombuffer(data, np.uint8)
    wanted = (
        struct.unpack_from("<I", data, shift + 4 * index)[0],
        struct.unpack_from("<Q", data, shift + 8 * index)[0],
    )
    assert items(memory.ctypes.data + shift, index) == wanted


@kernel
def burst_handle(at):
    return load_handle(at)


def test_a_handle_is_the_signed_integer_at_its_address() -> None:
    memory = np.array([-(2**63), 0x7FFF_0000_1234_5678], np.int64)
    assert burst_handle(memory.ctypes.data) == -(2**63)
    assert burst_handle(memory.ctypes.data + 8) == 0x7FFF_0000_1234_5678


@kernel
def bits(value):
    return (
        np.int64(bswap16(value)),
        np.int64(bswap32(value)),
        bswap64(value),
        np.int64(leading_zeros(value)),
        np.int64(trailing_zeros(value)),
        np.int64(count_ones(value)),
    )


@given(U64 | st.integers(0, 63).map(lambda n: 1 << n) | st.just(0))
def test_bit_counts_and_byte_swaps_are_pythons(value: int) -> None:
    swapped = tuple(int.from_bytes((value & (1 << 8 * n) - 1).to_bytes(n, "little"), "big") for n in (2, 4, 8))
    low = (value & -value).bit_length() - 1 if value else 64
    assert bits(np.uint64(value)) == (*swapped, 64 - value.bit_length(), low, value.bit_count())


@kernel
def move_bytes(how, dst, src, size):
    if how == 0:
        copy(dst, src, size)
    elif how == 1:
        move(dst, src, size)
    else:
        fill(dst, src, size)


@given(st.binary(min_size=100, max_size=100), st.integers(0, 40), st.integers(0, 40), st.integers(0, 60))
def test_move_keeps_bytes_that_overlap(data: bytes, dst: int, src: int, size: int) -> None:
    memory = np.frombuffer(bytearray(data), np.uint8)
    at = memory.ctypes.data
    move_bytes(1, at + dst, at + src, size)
    wanted = bytearray(data)
    wanted[dst : dst + size] = data[src : src + size]
    assert memory.tobytes() == bytes(wanted)


@given(st.binary(min_size=1, max_size=200), st.integers(0, 255), st.integers(0, 9))
def test_copy_and_fill_write_so_many_bytes(data: bytes, byte: int, shift: int) -> None:
    source, memory = np.frombuffer(data, np.uint8), np.full(220, 0xA5, np.uint8)
    at = memory.ctypes.data + shift
    move_bytes(0, at, source.ctypes.data, len(data))
    assert memory.tobytes() == b"\xa5" * shift + data + b"\xa5" * (220 - shift - len(data))
    move_bytes(2, at, byte, len(data))
    assert memory.tobytes() == b"\xa5" * shift + bytes([byte]) * len(data) + b"\xa5" * (220 - shift - len(data))


@given(st.binary(max_size=40), st.integers(0, 39), st.integers(0, 7))
def test_equal_sees_every_bit(data: bytes, place: int, bit: int) -> None:
    one, two = bytearray(data + b"\0"), bytearray(data + b"\xff")  # what is behind does not count
    a, b = np.frombuffer(one, np.uint8), np.frombuffer(two, np.uint8)
    assert equal(a.ctypes.data, b.ctypes.data, len(data))
    if place < len(data):
        two[place] ^= 1 << bit
        assert not equal(a.ctypes.data, b.ctypes.data, len(data))


def model_crc32c(seed: int, data: bytes) -> int:
    """CRC-32C bit by bit, as RFC 3720 gives it."""
    for byte in data:
        seed ^= byte
        for _ in range(8):
            seed = seed >> 1 ^ (0x82F63B78 if seed & 1 else 0)
    return seed


@kernel
def crcs(seed, word):
    return crc32c(seed, word), crc32c_portable(seed, word)


@given(st.integers(0, 2**32 - 1), U64)
def test_the_portable_crc_is_the_machines(seed: int, word: int) -> None:
    machine, portable = crcs(np.uint32(seed), np.uint64(word))
    assert machine == portable == model_crc32c(seed, word.to_bytes(8, "little"))


def test_the_machine_has_its_own_crc_where_it_says_so() -> None:
    assert (crc32c is intrinsics._crc32c_machine) == HARDWARE_CRC
    assert HARDWARE_CRC or crc32c is crc32c_portable


@kernel
def stamps():
    before = cycles()
    for _ in range(1000):
        pause()
    return before, cycles()


def test_the_cycle_counter_goes_forward() -> None:
    before, after = stamps()
    assert before < after


def test_the_portable_clock_goes_forward() -> None:
    @kernel
    def readings():
        before = intrinsics._monotonic()
        for _ in range(1000):
            pause()
        return before, intrinsics._monotonic()

    before, after = readings()
    assert 0 < before < after


@kernel
def prefetched(at):
    prefetch(at)
    return at


def test_any_address_may_be_prefetched() -> None:
    assert [prefetched(at) for at in (0, 1, -1, 2**47)] == [0, 1, -1, 2**47]


@kernel
def stacked(n):
    at = stack(128)
    for i in range(16):
        store_i64(at + 8 * i, n * i)
    total = np.int64(0)
    for i in range(16):
        total += load_i64(at + 8 * i)
    return at, total


def test_stack_memory_holds_what_is_written_and_is_aligned() -> None:
    at, total = stacked(3)
    assert at % 64 == 0
    assert total == 3 * sum(range(16))


@stage
def add(state, burst, n):
    return state + burst + n


@stage
def fail(state, burst, n):
    if n > 0:
        raise ValueError
    return n


@kernel
def call(code, state, burst, n):
    return call_stage(code, state, burst, n)


def test_a_stage_called_by_its_address_returns_its_result() -> None:
    assert call(add.address, 1, 20, 300) == 321


def test_a_stage_that_raises_returns_less_than_nothing() -> None:
    assert call(fail.address, 0, 0, 0) == 0
    assert call(fail.address, 0, 0, 5) < 0
