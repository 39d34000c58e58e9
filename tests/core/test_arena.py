"""Arenas: aligned, zeroed, apart from each other, given back once; shared ones at one address in every process."""

import ctypes
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.core.arena import HUGE, LINE, SHARED_BASE, Arena
from wirespeed.errors import GraphError
from wirespeed.jit.libc import map_memory, unmap_memory

SIZES = [1, 4095, 4096, 4097, HUGE - 1, HUGE, HUGE + 1]


@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([1, 2, 8, 64, 256, 4096])), max_size=30))
def test_parts_are_aligned_zeroed_and_do_not_overlap(wanted):
    with Arena(1 << 20) as arena:
        end = arena.address
        for size, align in wanted:
            at = arena.alloc(size, align)
            assert at % align == 0 and at >= end
            assert ctypes.string_at(at, size) == bytes(size)
            ctypes.memset(at, 0xFF, size)
            end = at + size
        assert end <= arena.address + arena.size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("huge", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_an_arena_has_at_least_the_size_that_was_asked_for(size, huge, shared):
    with Arena(size, shared=shared, huge=huge) as arena:
        assert arena.size >= size and arena.pages
        ctypes.memset(arena.address, 0xFF, arena.size)
        assert arena.address % LINE == 0


def test_what_does_not_fit_is_an_error_and_takes_nothing():
    with Arena(4096) as arena:
        arena.alloc(4000, 1)
        with pytest.raises(GraphError, match="has 96 left, 97 were asked for"):
            arena.alloc(97, 1)
        assert arena.alloc(96, 1) == arena.address + 4000


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_must_be_positive(size):
    with pytest.raises(GraphError, match=f"arena size must be positive, got {size}"):
        Arena(size)


def test_closing_twice_is_harmless_and_a_closed_arena_gives_nothing():
    arena = Arena(4096)
    arena.close()
    arena.close()
    with pytest.raises(GraphError, match="closed"):
        arena.alloc(1)


def test_two_shared_arenas_are_at_different_places_above_the_base():
    with Arena(4096, shared=True) as a, Arena(4096, shared=True) as b:
        assert SHARED_BASE <= a.address != b.address >= SHARED_BASE


CHILD = """
import sys
from wirespeed.jit.libc import copy_in, copy_out, map_memory
fd, address, size = map(int, sys.argv[1:])
assert map_memory(size, fd, address) == address
assert copy_out(address, 5) == b"hello"
copy_in(address + 100, b"world")
"""


def test_another_process_maps_a_shared_arena_at_its_address_and_sees_its_bytes():
    with Arena(1 << 16, shared=True) as arena:
        ctypes.memmove(arena.address, b"hello", 5)
        words = [str(word) for word in (arena.fd, arena.address, arena.size)]
        subprocess.run([sys.executable, "-c", CHILD, *words], pass_fds=[arena.fd], check=True)
        assert ctypes.string_at(arena.address + 100, 5) == b"world"


def test_a_place_that_is_taken_is_refused_and_not_mapped_over():
    with Arena(4096, shared=True) as arena:
        ctypes.memmove(arena.address, b"mine", 4)
        with pytest.raises(FileExistsError):
            map_memory(4096, at=arena.address)
        assert ctypes.string_at(arena.address, 4) == b"mine"


def test_memory_of_a_closed_arena_is_unmapped():
    arena = Arena(1 << 16, shared=True)
    address = arena.address
    arena.close()
    assert map_memory(1 << 16, at=address) == address
    unmap_memory(address, 1 << 16)


def test_a_shared_arena_gives_its_file_back():
    before = len(os.listdir("/proc/self/fd"))
    with Arena(4096, shared=True):
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before
