"""Compiled BPF programs against an interpreter of ten lines a code, and against libpcap's, on every program that is valid."""

import ctypes
import ctypes.util
import gc
import mmap
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.jit.bpf_programs import (
    ADD,
    BY_X,
    DIV,
    FRAMES,
    IMM,
    IND_B,
    JA,
    JEQ,
    LD_B,
    LD_H,
    LD_W,
    LDX_IMM,
    LEN,
    LSH,
    MEM,
    MOD,
    MSH,
    RET_A,
    RET_K,
    RSH,
    ST,
    STX,
    TAX,
    TXA,
    Program,
    interpret,
    programs,
)
from wirespeed.errors import GraphError
from wirespeed.jit import bpf
from wirespeed.jit.bpf import WORD, call_filter
from wirespeed.jit.kernel import kernel


@given(programs(), FRAMES, st.integers(0, WORD))
@example([(LDX_IMM, 0, 0, WORD), (IND_B, 0, 0, 1), (RET_K, 0, 0, 1)], [b"abc"], 3)
@example([(LDX_IMM, 0, 0, 2), (IND_B, 0, 0, WORD), (RET_K, 0, 0, 1)], [b"abc"], 3)
@example([(IMM, 0, 0, 1), (LSH, 0, 0, 32), (JEQ, 0, 1, 0), (RET_K, 0, 0, 7), (RET_K, 0, 0, 8)], [b""], 0)
@example([(JA, 0, 0, WORD), (RET_K, 0, 0, 1)], [b"ends"], 4)
def test_compiled_programs_say_what_the_interpreter_says(program: Program, frames: list[bytes], wire: int) -> None:
    code = bpf.compile(program)
    for frame in frames:
        assert code(frame, wire) == interpret(program, frame, wire)
        for short in range(min(len(frame), 4)):
            assert code(frame[:short]) == interpret(program, frame[:short])


@kernel
def calls(code, frame, captured, wire):
    return call_filter(code, frame, captured, wire)


class Fence:
    """A page with one on either side that nobody can touch."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
        self.first = ctypes.addressof(ctypes.c_char.from_buffer(self._pages)) + mmap.PAGESIZE
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for outside in (self.first - mmap.PAGESIZE, self.first + mmap.PAGESIZE):
            assert libc.mprotect(outside, mmap.PAGESIZE, 0) == 0  # PROT_NONE

    def put(self, frame: bytes, last: bool) -> int:
        """Copy a frame to the page's end, or to its beginning; its address."""
        at = mmap.PAGESIZE - len(frame) if last else 0
        self._pages[mmap.PAGESIZE + at : mmap.PAGESIZE + at + len(frame)] = frame
        return self.first + at


FENCE = Fence()


@given(programs(), FRAMES)
def test_no_program_touches_a_byte_outside_of_the_frame(program: Program, frames: list[bytes]) -> None:
    code = bpf.compile(program)
    for frame in frames:
        for last in (True, False):
            assert calls(code.address, FENCE.put(frame, last), len(frame), len(frame)) == interpret(program, frame)


def libpcap() -> Any:
    """libpcap's interpreter: ``bpf_filter(program, frame, wire, captured)``."""
    name = ctypes.util.find_library("pcap")
    if name is None:
        pytest.skip("libpcap is not installed")
    function = ctypes.CDLL(name).bpf_filter
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = ctypes.c_uint
    return function


@given(programs(back=False), FRAMES)
def test_compiled_programs_say_what_libpcap_says(program: Program, frames: list[bytes]) -> None:
    bpf_filter = libpcap()
    # libpcap's cells of memory begin with whatever the stack had.
    whole = [(ST, 0, 0, k) for k in range(16)] + program
    code = bpf.compile(whole)
    image = b"".join(struct.pack("=HBBI", *step) for step in whole)
    for frame in frames:
        assert code(frame) == bpf_filter(image, frame, len(frame), len(frame))


@pytest.mark.parametrize("length", [1000, 3000, 9000])
def test_long_programs_say_what_the_interpreter_says(length: int) -> None:
    program = [(LD_W, 0, 0, 0)]
    for k in range(length):
        program += [(JEQ, 0, 1, 7 * k), (RET_K, 0, 0, k + 1)]
    program.append((RET_A, 0, 0, 0))
    code = bpf.compile(program)
    for value in (0, 7, 8, 7 * (length - 1), 7 * length, WORD):
        frame = value.to_bytes(4)
        assert code(frame) == interpret(program, frame)
    assert code(b"abc") == 0


@pytest.mark.parametrize("shift", [0, 1, 31, 32, 33, 63, 64, WORD])
@pytest.mark.parametrize("op", [LSH, RSH])
def test_a_shift_by_32_or_more_leaves_nothing(op: int, shift: int) -> None:
    value = 0x80000001
    wanted = 0 if shift >= 32 else (value << shift if op == LSH else value >> shift) & WORD
    by_k = [(IMM, 0, 0, value), (op, 0, 0, shift), (RET_A, 0, 0, 0)]
    by_x = [(IMM, 0, 0, value), (LDX_IMM, 0, 0, shift), (op | BY_X, 0, 0, 0), (RET_A, 0, 0, 0)]
    assert bpf.compile(by_k)(b"") == bpf.compile(by_x)(b"") == wanted


@pytest.mark.parametrize("op", [DIV, MOD])
def test_division_by_an_index_of_zero_rejects_the_frame(op: int) -> None:
    program = [(LEN, 0, 0, 0), (MSH, 0, 0, 0), (op | BY_X, 0, 0, 0), (RET_K, 0, 0, 1)]
    assert bpf.compile(program)(b"\x05") == 1
    assert bpf.compile(program)(b"\x50") == 0


@pytest.mark.parametrize(("code", "size"), [(LD_W, 4), (LD_H, 2), (LD_B, 1)])
def test_a_load_needs_all_its_bytes(code: int, size: int) -> None:
    frame = bytes(range(1, 21))
    for at in (*range(24), 0xFFFFFFFE, WORD):
        wanted = int.from_bytes(frame[at : at + size], "big") if at + size <= len(frame) else 0
        assert bpf.compile([(code, 0, 0, at), (RET_A, 0, 0, 0)])(frame) == wanted


def test_an_offset_that_would_wrap_is_beyond_the_frame() -> None:
    for x, k in [(WORD, 1), (1, WORD), (0x80000000, 0x80000000), (WORD, WORD), (0xFFFFFFF0, 0x10)]:
        program = [(LDX_IMM, 0, 0, x), (IND_B, 0, 0, k), (RET_K, 0, 0, 1)]
        assert bpf.compile(program)(bytes(64)) == 0


def test_a_loop_may_turn_as_often_as_the_frame_has_bytes() -> None:
    # Look for the first byte of 7, from the front.
    search = [(IND_B, 0, 0, 0), (JEQ, 4, 0, 7), (TXA, 0, 0, 0), (ADD, 0, 0, 1), (TAX, 0, 0, 0), (JA, 0, 0, -6 & WORD)]
    code = bpf.compile([*search, (RET_K, 0, 0, 9)])
    assert code(bytes(39) + b"\x07") == 9
    assert code(bytes(40)) == 0
    assert bpf.compile([(JA, 0, 0, WORD), (RET_K, 0, 0, 1)])(bytes(100)) == 0  # a loop that never ends


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ([], "1 to 65536 steps, got 0"),
        ([(RET_K, 0, 0, 0)] * 65537, "1 to 65536 steps, got 65537"),
        ([(LD_B, 0, 0, 0)], "must end in a return"),
        ([(RET_K, 0, 0, 1), (JEQ, 0, 0, 0)], "must end in a return, got code 0x15"),
        ([(JEQ, 1, 0, 0), (RET_K, 0, 0, 0)], "step 0, .*jumps out of the program, which has 2 steps"),
        ([(JEQ, 0, 255, 0), (RET_K, 0, 0, 0)], "jumps out"),
        ([(JA, 0, 0, 1), (RET_K, 0, 0, 0)], "jumps out"),
        ([(JA, 0, 0, 0x7FFFFFFF), (RET_K, 0, 0, 0)], "jumps out"),
        ([(JA, 0, 0, -3 & WORD), (RET_K, 0, 0, 0)], "jumps out"),
        ([(MEM, 0, 0, 16), (RET_K, 0, 0, 0)], "16 cells"),
        ([(STX, 0, 0, WORD), (RET_K, 0, 0, 0)], "16 cells"),
        ([(DIV, 0, 0, 0), (RET_K, 0, 0, 0)], "divides by zero"),
        ([(MOD, 0, 0, 0), (RET_K, 0, 0, 0)], "divides by zero"),
        ([(0x0E, 0, 0, 0), (RET_K, 0, 0, 0)], "no such code"),
        ([(0xFFFF, 0, 0, 0), (RET_K, 0, 0, 0)], "no such code"),
        ([(LD_B, 0, 0, 1 << 32), (RET_K, 0, 0, 0)], "32 bits"),
        ([(LD_B, 0, 0, -1), (RET_K, 0, 0, 0)], "32 bits"),
        ([(LD_B, 256, 0, 0), (RET_K, 0, 0, 0)], "32 bits, jt and jf into 8"),
    ],
)
def test_a_program_that_is_not_valid_is_refused(program: Program, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        bpf.compile(program)


@given(st.lists(st.tuples(st.integers(0, 0xFF), st.integers(0, 4), st.integers(0, 4), st.integers(0, 20)), max_size=8))
def test_whatever_is_given_is_refused_or_runs(program: Program) -> None:
    try:
        code = bpf.compile([*program, (RET_K, 0, 0, 1)])
    except GraphError:
        return
    assert code(bytes(range(32))) == interpret([*program, (RET_K, 0, 0, 1)], bytes(range(32)))


def test_a_kernel_calls_it_by_its_address() -> None:
    code = bpf.compile([(LD_H, 0, 0, 12), (JEQ, 0, 1, 0x0800), (LEN, 0, 0, 0), (RET_A, 0, 0, 0)])
    frame = np.frombuffer(bytes(12) + b"\x08\x00" + bytes(46), np.uint8)
    assert calls(code.address, frame.ctypes.data, 60, 1514) == 1514
    assert calls(code.address, frame.ctypes.data, 13, 1514) == 0


def test_equal_programs_are_compiled_once_while_one_of_them_is_held() -> None:
    program = [(LD_B, 0, 0, 23), (JEQ, 0, 1, 6), (RET_K, 0, 0, 1), (RET_K, 0, 0, 0)]
    assert bpf.compile(program) is bpf.compile(list(program))


def test_code_that_is_held_outlives_any_number_of_others() -> None:
    held = bpf.compile([(LD_B, 0, 0, 1), (RET_A, 0, 0, 0)])
    for k in range(bpf.KEPT + 8):
        assert bpf.compile([(RET_K, 0, 0, k)])(b"") == k
    gc.collect()
    assert held(b"\x01\x02") == 2


def test_the_machine_code_can_be_read() -> None:
    program = [(LD_H, 0, 0, 12), (JEQ, 0, 1, 0x86DD), (RET_K, 0, 0, 1), (RET_K, 0, 0, 0)]
    assert "ret" in bpf.assembly(program)
    assert "define" in bpf.intermediate(program) and "alloca" not in bpf.intermediate(program)


def test_a_comparison_with_the_captured_bytes_that_follows_from_another_is_left_out() -> None:
    program = [
        (LD_H, 0, 0, 36),
        (JEQ, 0, 5, 80),
        (LD_B, 0, 0, 23),
        (JEQ, 0, 3, 6),
        (LD_H, 0, 0, 12),
        (JEQ, 0, 1, 0x800),
    ]
    code = bpf.intermediate([*program, (RET_K, 0, 0, 1), (RET_K, 0, 0, 0)])
    assert code.count("icmp ugt i64 %captured") + code.count("icmp ult i64 %captured") == 1
