"""Memory that readers reach by address: no two blocks overlap, none is used again while somebody may be in it."""

import random
from itertools import pairwise

import pytest

from tests.conftest import TORTURE
from wirespeed.errors import GraphError
from wirespeed.switch.heap import FIRST_CHUNK, LEAST, Heap

STEPS = 200_000 if TORTURE else 8_000


def rounded(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length())


def test_blocks_never_overlap_and_are_used_again_only_when_no_reader_can_be_there() -> None:
    heap, rng = Heap(), random.Random(1)
    held: dict[int, int] = {}  # address: size
    waiting: list[tuple[int, int, int]] = []  # version, address, size
    version, reused, freed = 1, 0, set()
    for _ in range(STEPS):
        how = rng.random()
        if how < 0.5:
            size = rng.choice((1, 31, 32, 33, 100, 1000, 5000))
            address = heap.alloc(size)
            assert address % LEAST == 0
            held[address] = size
            reused += address in freed
            taken = held | {a: s for _, a, s in waiting}
            assert len(taken) == len(held) + len(waiting), "a block that somebody has, or may be in, was given out"
        elif held and how < 0.9:
            address = rng.choice(list(held))
            size = held.pop(address)
            heap.free(address, size, version)
            waiting.append((version, address, size))
        elif how < 0.95:
            version += 1
        else:
            safe = rng.randrange(max(1, version - 3), version + 1)
            heap.reclaim(safe)
            freed |= {address for v, address, _ in waiting if v <= safe}
            waiting = [one for one in waiting if one[0] > safe]
    ends = sorted((a, a + rounded(s)) for a, s in [*held.items(), *((a, s) for _, a, s in waiting)])
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert reused > STEPS // 50
    heap.close()
    heap.close()


def test_what_waits_behind_a_later_version_waits_too() -> None:
    heap = Heap()
    first, second = heap.alloc(64), heap.alloc(64)
    heap.free(first, 64, 5)
    heap.free(second, 64, 4)
    heap.reclaim(4)
    assert heap.alloc(64) not in (first, second)
    heap.reclaim(5)
    assert {heap.alloc(64), heap.alloc(64)} == {first, second}
    heap.close()


def test_no_more_is_mapped_than_is_allowed_and_what_is_free_can_still_be_had() -> None:
    heap = Heap(FIRST_CHUNK)
    blocks = []
    with pytest.raises(GraphError, match="allow the switch more memory"):
        while True:
            blocks.append(heap.alloc(4096))
    assert 40 < len(blocks) <= FIRST_CHUNK // 4096
    heap.free(blocks[0], 4096, 1)
    heap.reclaim(1)
    assert heap.alloc(4096) == blocks[0]
    heap.close()


def test_a_block_may_be_larger_than_any_chunk() -> None:
    heap = Heap()
    address = heap.write(b"\x5a" * (40 << 20))
    assert address
    heap.close()
