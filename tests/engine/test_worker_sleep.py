"""What an idle worker sleeps on: descriptors that have something for it now, and none that would end every sleep at once."""

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest

from wirespeed.core.stage import Head
from wirespeed.engine.worker import NODE, POLLFD, SOURCE, Node, PollFd, Worker, sleep
from wirespeed.jit.kernel import kernel

POLLIN = 1
FAR_NS = 10**15


@kernel
def sleep_once(worker):
    """One sleep of a worker."""
    sleep(Worker(worker))


class Idle:
    """A worker with sources, each with a descriptor that is readable; ``heads`` are those of their states."""

    def __init__(self, sources: int) -> None:
        self._memory = np.zeros((sources + 1) * 1024, np.uint8)
        base = -(-self._memory.ctypes.data // 64) * 64
        self._nodes = np.zeros(sources * NODE, np.uint8)
        self._fds = np.zeros(sources * POLLFD, np.uint8)
        self._blocked = np.zeros(1, np.uint64)
        self.address = base
        worker = Worker.at(base)
        worker.nodes, worker.n_nodes, worker.n_sources = self._nodes.ctypes.data, sources, sources
        worker.fds, worker.n_fds = self._fds.ctypes.data, sources
        worker.blocked, worker.groups = self._blocked.ctypes.data, 1
        self.numbers, self.heads, self.entries = [], [], []
        for i in range(sources):
            node, entry = Node.at(worker.nodes + NODE * i), PollFd.at(worker.fds + POLLFD * i)
            node.state, node.role = base + 1024 * (i + 1) - 512, SOURCE
            node.fds, node.n_fds = worker.fds + POLLFD * i, 1
            self.numbers.append(os.eventfd(1, os.EFD_NONBLOCK))
            entry.fd, entry.events = self.numbers[-1], POLLIN
            self.heads.append(Head.at(node.state))
            self.entries.append(entry)

    def seen(self) -> list[bool]:
        """Sleep; which descriptors it was found readable by."""
        sleep_once(self.address)
        assert [int(entry.fd) for entry in self.entries] == self.numbers
        return [entry.revents == POLLIN for entry in self.entries]


@pytest.fixture
def idle() -> Iterator[Idle]:
    made = Idle(3)
    yield made
    for fd in made.numbers:
        os.close(fd)


def test_a_worker_sleeps_on_all_descriptors(idle):
    assert idle.seen() == [True, True, True]


def test_traffic_ends_the_sleep_though_another_source_is_not_due_yet(idle):
    idle.heads[0].due_ns = time.monotonic_ns() + FAR_NS
    assert idle.seen() == [False, True, True]
    idle.heads[0].due_ns = 0
    assert idle.seen() == [True, True, True]


def test_a_source_that_is_done_ends_no_sleep(idle):
    idle.heads[1].done = 1
    assert idle.seen() == [True, False, True]


def test_who_is_due_does_not_sleep_at_all(idle):
    idle.heads[2].due_ns = time.monotonic_ns() - 1
    assert idle.seen() == [False, False, False]
