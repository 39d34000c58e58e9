"""Atomics: what each does to a field, that threads do not lose updates, and the orders that reach the machine."""

import re
import threading

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from tests.jit.inspection import fresh, intermediate
from wirespeed.core import ring
from wirespeed.jit.atomics import (
    compare_exchange,
    exchange,
    fence_acquire,
    fence_full,
    fence_release,
    fetch_add,
    fetch_and,
    fetch_or,
    load_acquire,
    load_relaxed,
    store_relaxed,
    store_release,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

Cell = layout(
    "TestCell",
    [
        ("before", "u8"),
        ("u8", "u8"),
        ("u4", "u4"),
        ("u2", "u2"),
        ("u1", "u1"),
        ("guard", "u1"),
        ("i8", "i8"),
        ("big", ">u4"),
        ({"high": 4, "low": 4}, "u1"),
        (None, 3),
    ],
)
WIDTHS = {"u8": 64, "u4": 32, "u2": 16, "u1": 8}


@kernel
def change(at, value):
    """Every read-modify-write on every width; what each returned."""
    p = Cell(at)
    return (
        exchange(p, "u8", value), exchange(p, "u4", value), exchange(p, "u2", value), exchange(p, "u1", value),
        fetch_add(p, "u8", value), fetch_add(p, "u4", value), fetch_add(p, "u2", value), fetch_add(p, "u1", value),
        fetch_or(p, "u8", value), fetch_or(p, "u4", value), fetch_or(p, "u2", value), fetch_or(p, "u1", value),
        fetch_and(p, "u8", 0x55), fetch_and(p, "u4", 0x55), fetch_and(p, "u2", 0x55), fetch_and(p, "u1", 0x55),
    )  # fmt: skip


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_updates_return_what_was_there_and_touch_nothing_beside_it(start, value):
    data = np.zeros(Cell.size, np.uint8)
    record = Cell(data)
    record.before, record.guard, record.i8 = 0x1111111111111111, 0x77, -1
    for name in WIDTHS:
        setattr(record, name, start)
    got = change(data.ctypes.data, value)
    for i, (name, bits) in enumerate(WIDTHS.items()):
        mask = (1 << bits) - 1
        v = value & mask
        assert got[i::4] == (start & mask, v, 2 * v & mask, (2 * v | v) & mask)
        assert getattr(record, name) == (2 * v | v) & mask & 0x55
    assert (record.before, record.guard, record.i8) == (0x1111111111111111, 0x77, -1)


@kernel
def move(at, value):
    p = Cell(at)
    store_release(p, "u8", value)
    store_relaxed(p, "u4", value)
    store_relaxed(p, "i8", -value)
    fence_acquire()
    fence_release()
    fence_full()
    return load_acquire(p, "u8"), load_relaxed(p, "u4"), load_acquire(p, "i8")


@given(st.integers(0, (1 << 63) - 1))
def test_loads_and_stores_are_those_of_the_field(value):
    data = np.zeros(Cell.size, np.uint8)
    assert move(data.ctypes.data, value) == (value, value & 0xFFFFFFFF, -value)
    assert (Cell(data).u8, Cell(data).u4, Cell(data).u2) == (value, value & 0xFFFFFFFF, 0)


@kernel
def swap(at, expected, desired):
    return compare_exchange(Cell(at), "u4", expected, desired)


@given(st.integers(0, 3), st.integers(0, 3))
def test_compare_exchange_writes_only_over_what_was_expected(expected, desired):
    data = np.zeros(Cell.size, np.uint8)
    Cell(data).u4 = 2
    assert swap(data.ctypes.data, expected, desired) == (expected == 2)
    assert Cell(data).u4 == (desired if expected == 2 else 2)


@kernel
def add_many(at, n):
    for _ in range(n):
        fetch_add(Cell(at), "u8", 1)
        fetch_add(Cell(at), "u2", 1)


@kernel
def claim_many(at, n, out):
    """Take the next number ``n`` times by compare and exchange; return the sum of those taken."""
    total = np.int64(0)
    for _ in range(n):
        while True:
            old = load_relaxed(Cell(at), "u4")
            if compare_exchange(Cell(at), "u4", old, np.uint32(old + 1)):
                total += np.int64(old)
                break
    return total


@kernel
def set_bits(at, bit, n):
    """Set and clear one bit ``n`` times; return how often it was not as this thread left it."""
    wrong = np.int64(0)
    mask = np.uint64(1) << np.uint64(bit)
    for _ in range(n):
        if fetch_or(Cell(at), "u8", mask) & mask:
            wrong += 1
        if not fetch_and(Cell(at), "u8", ~mask) & mask:
            wrong += 1
    return wrong


def run(target, *jobs):
    """Call ``target`` in a thread for each job; what they returned."""
    found = [None] * len(jobs)

    def work(i, job):
        found[i] = target(*job)

    threads = [threading.Thread(target=work, args=item) for item in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_additions_of_threads_add_up():
    data = np.zeros(Cell.size, np.uint8)
    add_many(data.ctypes.data, 0)
    run(add_many, *[(data.ctypes.data, 200_000)] * 3)
    assert (Cell(data).u8, Cell(data).u2) == (600_000, 600_000 & 0xFFFF)


def test_numbers_claimed_by_threads_are_claimed_once():
    data = np.zeros(Cell.size, np.uint8)
    claim_many(data.ctypes.data, 0, 0)
    taken = run(claim_many, *[(data.ctypes.data, 100_000, 0)] * 3)
    assert sum(taken) == sum(range(300_000)) and Cell(data).u4 == 300_000


def test_bits_of_one_word_belong_to_their_threads():
    data = np.zeros(Cell.size, np.uint8)
    assert run(set_bits, *[(data.ctypes.data, bit, 100_000) for bit in (0, 31, 63)]) == [0, 0, 0]
    assert Cell(data).u8 == 0


# What cannot be atomic.


@kernel
def of_a_swapped_field(at):
    return load_acquire(Cell(at), "big")


@kernel
def of_a_bit_field(at):
    store_release(Cell(at), "low", 1)


@kernel
def of_no_field(at):
    return fetch_add(Cell(at), "u5", 1)


@kernel
def of_an_integer(at):
    return load_acquire(at, "u8")


@pytest.mark.parametrize(
    "wrong, message",
    [
        (of_a_swapped_field, "'big' of TestCell is not a plain machine integer"),
        (of_a_bit_field, "'low' of TestCell is not a plain machine integer"),
        (of_no_field, "no field 'u5' in TestCell; the fields are before, u8, u4"),
        (of_an_integer, "needs a layout's pointer, got int64"),
    ],
)
def test_what_cannot_be_atomic_is_a_compile_error(wrong, message):
    with pytest.raises(TypingError, match=message):
        wrong(0)


# The machine code.


@kernel
def all_orders(at, value):
    p = Cell(at)
    first = load_acquire(p, "u8") + np.uint64(load_relaxed(p, "u4"))
    store_release(p, "u4", value)
    store_relaxed(p, "u2", value)
    compare_exchange(p, "u8", first, value)
    fetch_add(p, "u8", value)
    fence_full()
    return first


def test_orders_reach_llvm():
    text = compiled(all_orders)
    for wanted in (
        r"load atomic i64, .* acquire",
        r"load atomic i32, .* monotonic",
        r"store atomic i32 .* release",
        r"store atomic i16 .* monotonic",
        r"cmpxchg .* acq_rel acquire",
        r"atomicrmw add .* acq_rel",
        r"fence seq_cst",
    ):
        assert re.search(wanted, text), wanted


def compiled(dispatcher):
    """The LLVM code of a kernel of two addresses or integers."""
    made = fresh(dispatcher)
    made.compile("(int64, int64)")
    return intermediate(made)


def aarch64(text):
    """The assembly that LLVM makes of a kernel's code for aarch64."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip("llvmlite was built without the aarch64 target")
    machine = target.create_target_machine(opt=2)
    text = re.sub(r'target triple = ".*"', f'target triple = "{triple}"', text)
    text = re.sub(r'target datalayout = ".*"', f'target datalayout = "{machine.target_data}"', text)
    text = re.sub(r'"(target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
    text = re.sub(r".*call void @llvm\.x86\.sse2\.pause\(\).*", "", text)  # the hint of a wait loop, in its x86 form
    return machine.emit_assembly(llvm.parse_assembly(text))


def test_on_aarch64_acquire_and_release_are_instructions_of_their_own():
    assembly = aarch64(compiled(all_orders))
    assert re.search(r"\bldap?r\s+x", assembly), "the acquiring load of u8"
    assert re.search(r"\bstlr\s+w", assembly), "the releasing store of u4"
    assert re.search(r"\bstrh\s+w", assembly), "the relaxed store of u2 is a plain one"
    assert re.search(r"\bldaxr\s+x|\bcasal\s+x|__aarch64_cas8_acq_rel", assembly), "the exchange"
    assert re.search(r"\bdmb\s+ish\b", assembly), "the full fence"


@kernel
def relaxed_only(at, value):
    store_relaxed(Cell(at), "u4", value)
    return load_relaxed(Cell(at), "u8")


def test_on_aarch64_relaxed_accesses_are_plain_ones():
    assert not re.search(r"\b(ldap?r|stlr|dmb)\b", aarch64(compiled(relaxed_only)))


@kernel
def pass_alone(at, items):
    return ring.enqueue(at, items, 1, 8, True, ring.ST) + ring.dequeue(at, items, 1, 8, True, ring.ST)


@kernel
def pass_one(at, items):
    return ring.enqueue(at, items, 1, 8, True, ring.MT) + ring.dequeue(at, items, 1, 8, True, ring.MT)


def test_on_aarch64_the_ring_publishes_with_release_and_looks_with_acquire():
    assembly = aarch64(compiled(pass_alone))
    assert len(re.findall(r"\bstlr\s+x", assembly)) == 2, "R0 of both ends"
    assert len(re.findall(r"\bldap?r\s+w", assembly)) == 2, "A1 of both ends"
    assembly = aarch64(compiled(pass_one))
    assert len(re.findall(r"\bstlr\s+w", assembly)) == 2, "R0 of both ends"
    assert len(re.findall(r"\bldap?r\s+w", assembly)) >= 4, "A1 and A2 of both ends"
    assert len(re.findall(r"\bldap?r\s+x", assembly)) >= 2, "the own head of both ends"


@pytest.mark.parametrize("name", ["load_acquire", "store_release", "fetch_add", "fence_full"])
def test_each_says_what_it_orders(name):
    assert (globals()[name].__doc__ or "").strip()
