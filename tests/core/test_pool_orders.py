"""Every interleaving of the pool's shared part, with stale reads: a packet has one holder, who sees what the last wrote.

What threads share of a pool is its ring, whose step machines these are (tests.core.test_ring_orders); here they go round
with packets: each holder writes to those it has, so two at once, or one that the last one's writes may still reach,
would race.  A put must never find the ring full, even when others are in the middle of a take.
"""

from dataclasses import dataclass, replace

import pytest

from tests.core.interleave import (
    ACQUIRE,
    RELAXED,
    RELEASE,
    Violation,
    explore,
    read,
    store,
    wait,
    write,
)
from tests.core.test_ring_orders import START, WRAP, End, Orders, claim, publish
from wirespeed.core.ring import MT

PROD, CONS = End("prod", MT, WRAP), End("cons", MT, WRAP)


@dataclass(frozen=True)
class Pool:
    """``size`` packets, all free at first, in a ring whose counters are about to wrap."""

    size: int
    orders: Orders

    @property
    def slots(self):
        return 1 << self.size.bit_length()

    def memory(self):
        end = (START + self.size) % WRAP
        filled = {"prod.tail": end, "prod.begun": (end, START)}  # the producers have put all, and no consumer began
        assert filled.keys() == PROD.memory().keys()
        slots = {f"slot{(START + i) % self.slots}": None for i in range(self.slots)}
        slots |= {f"slot{(START + i) % self.slots}": f"packet{i}" for i in range(self.size)}
        return CONS.memory() | filled | slots | {f"packet{i}": 0 for i in range(self.size)}

    def take(self, n):
        """``n`` packets or none."""
        count, first = yield from claim(CONS, PROD, 0, n, True, False, self.orders)
        taken = []
        for i in range(count):
            taken.append((yield read(f"slot{(first + i) % WRAP % self.slots}")))
        if count:
            yield from publish(CONS, first, count, self.orders)
        return taken

    def put(self, packets):
        count, first = yield from claim(PROD, CONS, self.size, len(packets), True, False, self.orders)
        assert count == len(packets), "the ring has a slot for every packet"
        for i, packet in enumerate(packets):
            yield write(f"slot{(first + i) % WRAP % self.slots}", packet)
        yield from publish(PROD, first, count, self.orders)

    def use(self, packets):
        for packet in packets:
            yield write(packet, (yield read(packet)) + 1)


def worker(pool, name, bursts, together):
    """Take bursts and use them; put each back at once, or all of them together, as a cache that is flushed does."""

    def run():
        kept, used = [], 0
        for n in bursts:
            packets = yield from pool.take(n)
            yield from pool.use(packets)
            used += len(packets)
            kept += packets
            if kept and not together:
                yield from pool.put(kept)
                kept = []
        if kept:
            yield from pool.put(kept)
        yield store(f"{name}.done", 1, RELEASE)
        return used

    return run


def auditor(pool, names):
    """When all are done every packet is back, once, and has been written to as often as it was used."""

    def run():
        for name in names:
            yield wait(f"{name}.done", 1, ACQUIRE)
        packets = yield from pool.take(pool.size)
        uses = 0
        for packet in packets:
            uses += yield read(packet)
        return sorted(packets), uses

    return run


def run(pool, bursts, together):
    names = [f"worker{i}" for i in range(len(bursts))]
    programs = {n: worker(pool, n, b, t) for n, b, t in zip(names, bursts, together, strict=True)}

    def check(results):
        *used, (packets, uses) = results
        assert packets == sorted(f"packet{i}" for i in range(pool.size))
        assert uses == sum(used)

    memory = pool.memory() | {f"{name}.done": 0 for name in names}
    return explore(programs | {"auditor": auditor(pool, names)}, memory, check)


CASES = {
    "two that take turns": (1, ((1, 1), (1,)), (False, False)),
    "two with a packet each": (2, ((1, 1), (1,)), (False, False)),
    "one that puts two at once": (3, ((1, 1), (1, 1)), (True, False)),
    "bursts of two": (3, ((2,), (1, 2)), (False, True)),
    "three threads": (2, ((1,), (1,), (1,)), (False, False, False)),
}


@pytest.mark.parametrize("name", CASES)
def test_in_every_order_of_events_a_packet_has_one_holder_and_all_come_back(name):
    size, bursts, together = CASES[name]
    assert run(Pool(size, Orders()), bursts, together) > 100


@pytest.mark.parametrize("weak", ["tail", "publish"])
def test_without_an_order_of_the_ring_a_packet_is_seen_half_written(weak):
    size, bursts, together = CASES["two that take turns"]
    with pytest.raises(Violation, match="races"):
        run(Pool(size, replace(Orders(), **{weak: RELAXED})), bursts, together)
