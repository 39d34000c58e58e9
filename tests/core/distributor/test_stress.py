"""Threads that work on real lines: workers come, go, hang and die while millions of items pass, more of them than cores.

Every item says its flow and its place in it.  A worker notes on each flow of the line in its hand that it is there: so
two that have one flow at once meet.  And in plain memory it writes which place it has done: who comes next must find
the one before, which it does only if all that its forerunner wrote is there for it to see.
"""

import threading

import numpy as np
import pytest

from tests.core.distributor.plain_distributor import MODES, Driven
from wirespeed.core.distributor import attendance, desk, process
from wirespeed.core.distributor.backlog import Backlog, Distributor
from wirespeed.core.distributor.desk import IS_CLOSED, NOT_YET, NOTHING, WAS_FENCED
from wirespeed.core.distributor.turns import backlog_of
from wirespeed.jit.atomics import exchange, load_acquire, store_release
from wirespeed.jit.intrinsics import load_u64, pause, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns, sys_yield

u32, i64, u64 = np.uint32, np.int64, np.uint64
FLOW_BITS = 12
LEAVES, CONSUMES, HANGS, DIES = 1, 2, 4, 8
BUSY, HANGING, DYING, GIVEN_UP = 0, 1, 2, 3  # what becomes of a worker
BATCH = 64
PATIENCE_NS = 60_000_000_000  # in which something happens, or the test has failed

Flow = layout("StressFlow", [("worker", "u4"), (None, 4), ("place", "u8"), ("back", "u8"), ("next", "u8")], size=64)
Role = layout(
    "StressRole",
    [
        ("cursor", "i8"), ("flows", "i8"), ("does", "i8"), ("me", "i8"), ("seed", "u8"), ("owner", "u8"),
        ("got", "i8"), ("lines", "i8"), ("consumed", "i8"), ("leaves", "i8"), ("hangs", "i8"), ("deaths", "i8"),
        ("at_once", "i8"), ("out_of_order", "i8"), ("strange", "i8"), (None, 8),
        ("fate", "u4"), (None, 124),
    ],
    size=256,
)  # fmt: skip
Source = layout(
    "StressSource",
    [
        ("distributor", "i8"), ("flows", "i8"), ("mask", "i8"), ("roles", "i8"), ("workers", "i8"), ("does", "i8"),
        ("items", "i8"), ("tags", "i8"), ("out", "i8"), ("seed", "u8"),
        ("came", "i8"), ("out_of_order", "i8"), ("fenced", "i8"), ("buried", "i8"), ("stuck", "i8"),
    ],
)  # fmt: skip

FLOW, ROLE = Flow.size, Role.size


@kernel(inline=True)
def random_of(record):
    record.seed ^= record.seed << u64(13)
    record.seed ^= record.seed >> u64(7)
    record.seed ^= record.seed << u64(17)
    return i64(record.seed >> u64(20)) & 0xFFFFFF


@kernel(inline=True)
def relax(spins):
    for _ in range(16):
        pause()
    if spins & 3 == 3:
        sys_yield()


@kernel
def work_on(role, items, n):
    """Do the items of a line, and keep those that are returned in front; how many."""
    r = Role(role)
    me = u32(r.me + 1)
    for k in range(n):
        flow = r.flows + FLOW * i64(load_u64(items + 8 * k) & u64((1 << FLOW_BITS) - 1))
        before = exchange(Flow(flow), "worker", me)
        if before != u32(0) and before != me:
            r.at_once += 1
    for k in range(n):
        item = load_u64(items + 8 * k)
        f = Flow(r.flows + FLOW * i64(item & u64((1 << FLOW_BITS) - 1)))
        place = item >> u64(FLOW_BITS)
        if (r.does & HANGS == 0 and place != f.place + u64(1)) or place <= f.place:
            r.out_of_order += 1
        f.place = place
    kept = i64(0)
    for k in range(n):
        item = load_u64(items + 8 * k)
        flow = r.flows + FLOW * i64(item & u64((1 << FLOW_BITS) - 1))
        exchange(Flow(flow), "worker", 0)
        if r.does & CONSUMES and (item >> u64(FLOW_BITS)) & u64(7) == u64(3):
            continue
        store_u64(items + 8 * kept, item)
        kept += 1
    r.got += n
    r.lines += 1
    r.consumed += n - kept
    return kept


@kernel
def suffer(role, fate):
    """Hang, or die, until the distributor has noticed; a line may be in the hand, which nobody touches any more."""
    r = Role(role)
    store_release(r, "fate", u32(fate))
    spins = i64(0)
    while load_acquire(r, "fate") != BUSY:
        relax(spins)
        spins += 1
    if fate == HANGING:
        desk.request(r.cursor, desk.items_of(r.cursor), i64(1))  # it wakes up, and knows nothing yet
        r.hangs += 1
    else:
        r.deaths += 1
        r.owner += u64(1 << 32)
        desk.own(desk.Cursor(r.cursor).desk, r.owner)
        desk.join(r.cursor)


@kernel
def work(role):
    """A worker's whole life."""
    r = Role(role)
    if not desk.own(desk.Cursor(r.cursor).desk, r.owner):
        r.strange += 1
    desk.join(r.cursor)
    spins = i64(0)
    while True:
        n = desk.poll(r.cursor)
        if n == NOTHING or n == NOT_YET:
            relax(spins)
            spins += 1
            continue
        spins = i64(0)
        if n == IS_CLOSED:
            return
        if n == WAS_FENCED:
            desk.join(r.cursor)
            continue
        if n < 0:
            r.strange += 1
            return
        luck = random_of(r)
        if r.does & HANGS and luck & 0x3FF == 5:
            suffer(role, i64(HANGING))
            continue
        if r.does & DIES and luck & 0x3FF == 7:
            suffer(role, i64(DYING))
            continue
        items = desk.items_of(r.cursor)
        kept = work_on(role, items, n)
        if r.does & LEAVES and luck & 0xFF == 3:
            desk.leave(r.cursor, items, kept)
            r.leaves += 1
            for _ in range(luck >> 8 & 0xFF):
                pause()
            desk.join(r.cursor)
        else:
            desk.request(r.cursor, items, kept)


@kernel
def drain(source):
    """Take what came back, and look at its order; how many."""
    s = Source(source)
    n = process.returned(s.distributor, s.out, i64(BATCH))
    for k in range(n):
        item = load_u64(s.out + 8 * k)
        f = Flow(s.flows + FLOW * i64(item & u64((1 << FLOW_BITS) - 1)))
        place = item >> u64(FLOW_BITS)
        if (s.does & (HANGS | CONSUMES) == 0 and place != f.back + u64(1)) or place <= f.back:
            s.out_of_order += 1
        f.back = place
    s.came += n
    return n


@kernel
def judge(source):
    """Fence who hangs, bury who is dead."""
    s = Source(source)
    d = Distributor(s.distributor)
    for number in range(s.workers):
        r = Role(s.roles + ROLE * number)
        fate = load_acquire(r, "fate")
        if fate == HANGING:
            lost = attendance.fence(d, Backlog(backlog_of(d, i64(number))))
            if lost >= -1:
                s.fenced += 1
                store_release(r, "fate", u32(BUSY))
        elif fate == DYING and attendance.bury(d, Backlog(backlog_of(d, i64(number))), r.owner) == 1:
            s.buried += 1
            store_release(r, "fate", u32(BUSY))


@kernel
def fill_batch(source):
    s = Source(source)
    for k in range(BATCH):
        luck = random_of(s)
        # Half of all items are of few flows.
        flow = (luck >> 1) & (s.mask if luck & 1 else s.mask & 3)
        f = Flow(s.flows + FLOW * flow)
        f.next += u64(1)
        store_u64(s.items + 8 * k, f.next << u64(FLOW_BITS) | u64(flow))
        store_u32(s.tags + 4 * k, u32(flow * 2654435761))


@kernel
def distribute(source, batches):
    """Send all, take back all, and say that it is over; whether nothing got stuck."""
    s = Source(source)
    d = Distributor(s.distributor)
    last = monotonic_ns()
    spins = i64(0)
    for _ in range(batches):
        fill_batch(source)
        done = i64(0)
        while done < BATCH:
            n = process.process_patiently(s.distributor, s.items + 8 * done, s.tags + 4 * done, BATCH - done, i64(64))
            done += n
            n += drain(source)
            judge(source)
            if n > 0:
                spins = i64(0)
                continue
            relax(spins)
            spins += 1
            if spins & 0xFFF == 1:
                last = monotonic_ns()
            elif spins & 0xFFF == 0 and spins > 0xFFFF and monotonic_ns() - last > PATIENCE_NS:
                s.stuck = 1
                attendance.close(d)
                return False
    start = monotonic_ns()
    while d.outstanding > 0 or d.returns_head != d.returns_tail:
        process.process(s.distributor, s.items, s.tags, i64(0))
        judge(source)
        if drain(source) == 0:
            relax(i64(3))
        if monotonic_ns() - start > PATIENCE_NS:
            s.stuck = 2
            break
    attendance.close(d)
    for number in range(s.workers):
        store_release(Role(s.roles + ROLE * number), "fate", u32(BUSY))
    return s.stuck == 0


def aligned(size):
    memory = np.zeros(size + 128, np.uint8)
    return memory, memory.ctypes.data + -memory.ctypes.data % 128


class Stress:
    """A distributor, the threads of its workers, and what they found."""

    def __init__(self, workers, does, flows, n, **shape):
        self.d = Driven(workers, start=(1 << 32) - 1000, **shape)
        sizes = [FLOW << FLOW_BITS, ROLE * workers, Source.size, 8 * BATCH, 4 * BATCH, 8 * BATCH]
        self._memory, places = zip(*map(aligned, sizes))
        table, roles, source, items, tags, out = places
        self.roles = [Role.at(roles + ROLE * number) for number in range(workers)]
        for number, role in enumerate(self.roles):
            role.cursor, role.flows, role.does, role.me = self.d.cursors[number], table, does, number
            role.seed, role.owner = 88172645463325252 + 977 * number, 1 << 32 | number + 1
        s = self.source = Source.at(source)
        s.distributor, s.flows, s.mask, s.roles, s.workers, s.does = self.d.at, table, flows - 1, roles, workers, does
        s.items, s.tags, s.out, s.seed = items, tags, out, 0x2545F4914F6CDD1D
        self.n = n // BATCH * BATCH
        threads = [
            threading.Thread(target=work, args=(roles + ROLE * number,), daemon=True) for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        self.ended = distribute(source, self.n // BATCH)
        for thread in threads:
            thread.join(20)
        self.hanging = [number for number, thread in enumerate(threads) if thread.is_alive()]

    def check(self):
        assert self.ended, f"nothing went on ({self.source.stuck}): {self.d.record}, {self.d.held()[:5]}"
        assert not self.hanging, f"workers {self.hanging} did not end"
        for name in ("at_once", "out_of_order", "strange"):
            assert [getattr(role, name) for role in self.roles] == [0] * len(self.roles), name
        s, backlogs = self.source, self.d.backlogs
        assert s.out_of_order == 0
        got, lost = sum(role.got for role in self.roles), sum(int(b.lost) for b in backlogs)
        consumed = sum(role.consumed for role in self.roles)
        assert self.d.record.processed == self.n == got + lost
        assert s.came == got - consumed
        for role, b in zip(self.roles, backlogs):
            assert (b.returned, b.consumed, b.added, b.malformed) == (role.got - role.consumed, role.consumed, 0, 0)
            assert b.takeovers == role.deaths
        assert self.d.held() == [] and self.d.record.outstanding == 0
        assert s.fenced == sum(role.hangs for role in self.roles)


SHAPES = {**MODES, "widest": {"burst": 31, "lines": 2, "slots": 2}}


def sizes(n):
    return pytest.mark.parametrize("n", [n, pytest.param(100_000_000, marks=pytest.mark.torture)])


@sizes(300_000)
@pytest.mark.parametrize("mode", SHAPES)
def test_flows_keep_their_order_and_are_never_on_two_workers(mode, n):
    run = Stress(3, CONSUMES, 64, n // 10 if mode == "single" else n, **SHAPES[mode])
    run.check()
    assert all(role.got > 0 for role in run.roles)


@sizes(2_000_000)
@pytest.mark.parametrize("workers", [2, 4])
def test_workers_leave_and_come_back_while_millions_of_items_pass(workers, n):
    run = Stress(workers, LEAVES, 4096, n, burst=15, lines=16)
    run.check()
    assert all(role.got > 0 for role in run.roles)
    assert sum(role.leaves for role in run.roles) > n // 15 // 1000


@sizes(300_000)
@pytest.mark.parametrize("mode", SHAPES)
def test_workers_leave_hang_and_die_in_every_mode(mode, n):
    run = Stress(4, LEAVES | CONSUMES | HANGS | DIES, 256, n // 6 if mode == "single" else n, **SHAPES[mode])
    run.check()
    assert sum(role.hangs for role in run.roles) > 0
    assert sum(role.deaths for role in run.roles) > 0
    assert sum(role.leaves for role in run.roles) > 0


@sizes(300_000)
def test_dead_workers_lose_nothing(n):
    run = Stress(3, LEAVES | DIES, 256, n, burst=3, lines=4)
    run.check()
    assert sum(role.deaths for role in run.roles) > 0
    assert sum(int(b.lost) for b in run.d.backlogs) == 0


@sizes(200_000)
@pytest.mark.parametrize("mode", ["single", "pipelined"])
def test_many_more_workers_than_cores_get_on(mode, n):
    run = Stress(12, 0, 4096, n // 8 if mode == "single" else n, **SHAPES[mode])
    run.check()
    assert all(role.got > 0 for role in run.roles)


@sizes(200_000)
def test_few_returns_and_little_to_park_lose_nothing_either(n):
    run = Stress(3, LEAVES, 64, n, burst=15, lines=4, returns=16, park=2)
    run.check()
