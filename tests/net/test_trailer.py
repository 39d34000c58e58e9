"""The trailer: its bytes, the sum over them, and that damage is told."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.jit.kernel import kernel
from wirespeed.net.trailer import (
    CORRUPT,
    FOREIGN,
    GOOD,
    LOW_48,
    MAGIC,
    TRAILER,
    elapsed_48,
    read_trailer,
    write_trailer,
)

streams, numbers = st.integers(0, 0xFFFF), st.integers(0, LOW_48)


@kernel
def write(at, stream, sequence, time):
    return write_trailer(at, stream, sequence, time)


@kernel
def read(at):
    return read_trailer(at)


@kernel
def elapsed(now, time):
    return elapsed_48(now, time)


def written(stream, sequence, time):
    memory = np.zeros(TRAILER, np.uint8)
    total = write(memory.ctypes.data, stream, sequence, time)
    return memory, total


@given(streams, numbers, numbers)
def test_what_is_written_is_read_again(stream, sequence, time):
    memory, _ = written(stream, sequence, time)
    assert read(memory.ctypes.data) == (GOOD, stream, sequence, time)


@given(streams, numbers, numbers)
def test_fields_stand_in_network_order_and_their_sum_is_that_of_their_words(stream, sequence, time):
    memory, total = written(stream, sequence, time)
    words = struct.unpack(">9H", memory.tobytes())
    assert sum(words) == total
    assert words[0] == MAGIC and words[2] == stream
    assert memory[6:12].tobytes() == sequence.to_bytes(6, "big")
    assert memory[12:18].tobytes() == time.to_bytes(6, "big")


@given(streams, numbers, st.integers(0, 1 << 62))
def test_a_time_is_kept_modulo_two_to_the_48(stream, sequence, time):
    memory, _ = written(stream, sequence, time)
    assert read(memory.ctypes.data)[3] == time & LOW_48


@given(streams, numbers, numbers, st.integers(0, 8 * TRAILER - 1))
def test_one_flipped_bit_is_told(stream, sequence, time, bit):
    memory, _ = written(stream, sequence, time)
    memory[bit // 8] ^= 1 << bit % 8
    kind = read(memory.ctypes.data)[0]
    assert kind == (FOREIGN if bit < 16 else CORRUPT)


@given(st.binary(min_size=TRAILER, max_size=TRAILER))
def test_any_other_bytes_are_no_trailer(data):
    memory = np.frombuffer(data, np.uint8).copy()
    kind = read(memory.ctypes.data)[0]
    if data[:2] != MAGIC.to_bytes(2, "big"):
        assert kind == FOREIGN


@given(st.integers(0, 1 << 62), st.integers(-(1 << 47) + 1, (1 << 47) - 1))
def test_elapsed_time_is_a_difference_of_two_clocks_that_go_round(sent, gone):
    if sent + gone >= 0:
        assert elapsed(sent + gone, sent & LOW_48) == gone


@pytest.mark.parametrize("gone", [-1, 0, 1])
def test_a_clock_that_goes_round_meanwhile_makes_no_difference(gone):
    assert elapsed((1 << 48) + gone, LOW_48) == gone + 1
