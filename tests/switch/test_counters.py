"""Counters: every number has one holder, and begins at nothing whatever its last one counted."""

import ctypes
import random

import pytest

from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError
from wirespeed.switch import counters as counters_module
from wirespeed.switch.counters import Counters
from wirespeed.switch.memory import TABLES
from wirespeed.switch.state import State

FEW = TABLES + 40


class Worker:
    def __init__(self, arena: Arena) -> None:
        self.address = arena.alloc(State.size)
        paths = State.at(self.address).paths
        paths.totals, paths.n_totals = arena.alloc(16 * FEW), FEW
        self.totals = (ctypes.c_uint64 * (2 * FEW)).from_address(paths.totals)

    def count(self, number: int, packets: int, size: int) -> None:
        self.totals[2 * number] += packets
        self.totals[2 * number + 1] += size


def test_a_number_counts_what_its_holder_got_through_all_holders_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "MOST", FEW)
    counters, rng = Counters(), random.Random(3)
    arena = Arena(1 << 18)
    workers = [Worker(arena) for _ in range(3)]
    counters.states = [worker.address for worker in workers]
    held: dict[int, list[int]] = {}  # number: base and what the model counted
    for _ in range(6000):
        how = rng.random()
        if how < 0.3 and len(held) < 30:
            number, packets, size = counters.take()
            assert number not in held
            assert TABLES <= number < FEW
            held[number] = [packets, size, 0, 0]
        elif how < 0.55 and held:
            number = rng.choice(list(held))
            del held[number]
            counters.give(number)
        elif held:
            number, packets = rng.choice(list(held)), rng.randrange(5)
            rng.choice(workers).count(number, packets, 60 * packets)
            held[number][2] += packets
            held[number][3] += 60 * packets
        if rng.random() < 0.002 and len(workers) > 1:
            counters.end(workers.pop(rng.randrange(len(workers))).address)
            workers.append(Worker(arena))
            counters.states.append(workers[-1].address)
        if rng.random() < 0.05:
            totals = counters.totals()
            for number, (base, base_bytes, packets, size) in held.items():
                assert int(totals[2 * number]) - base == packets
                assert int(totals[2 * number + 1]) - base_bytes == size
    arena.close()


def test_when_all_numbers_are_given_out_that_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "MOST", FEW)
    counters = Counters()
    numbers = [counters.take()[0] for _ in range(FEW - TABLES)]
    assert numbers == list(range(TABLES, FEW))
    with pytest.raises(GraphError, match="at most"):
        counters.take()
    counters.give(numbers[7])
    assert counters.take()[0] == numbers[7]


def test_numbers_that_were_given_back_come_again_when_there_are_no_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "MOST", TABLES + 3)
    counters = Counters()
    first = counters.take()[0]
    counters.give(first)
    assert [counters.take()[0] for _ in range(3)] == [first + 1, first + 2, first]
