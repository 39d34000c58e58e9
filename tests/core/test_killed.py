"""Processes that work on a ring are killed at any moment: what was published is neither lost nor doubled, and in order.

Producers and consumers run in tight loops as processes of their own; one of them is killed, the test notices it, and
recovers the ring under the others, and a new one takes its place.  What each did lies in memory that outlives it: how
many items a producer put in for certain, and how many it may have; what a consumer got, which it has the ring write
there.  So each item that was published can be told from each that was not.

The processes are forks of one that has loaded everything and has no ring open: see :func:`nursery`.
"""

import ctypes
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import wirespeed as ws
from wirespeed.core.member import CONS, DONE, IDLE, PROD, Member, dequeue_by, enqueue_by
from wirespeed.jit.atomics import store_release
from wirespeed.jit.intrinsics import store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

u64, i64 = np.uint64, np.int64
ITEM = np.dtype(
    [("key", "u8"), ("value", "u8")]
)  # the number of its producer and a serial, and all bits of that inverted
LOG = 1 << 19  # items of a consumer's log
MOST = 8  # items a call
# What a process says of itself; of a producer's items so many are in for certain, and so many may be.
Words = layout("Words", [("running", "u8"), ("sure", "u8"), ("tried", "u8"), ("left", "u8")], size=64)
ROW = Words.size + LOG * ITEM.itemsize
SLOTS = 4
GO_ON, DRAIN, STOP = 0, 1, 2  # the first word of all, which comes behind the rows
EPOCH = 25  # kills of one ring
WRAP = 1 << 32
PAUSES, CALLS = 256, 1000


@kernel
def produce_calls(ring, member, words, items, ident, seed):
    """CALLS bursts, or until one cannot be ended here; the code that it returned."""
    w = Words(words)
    for k in range(CALLS):
        seed = seed * u64(6364136223846793005) + u64(1442695040888963407)
        n = i64(seed >> u64(62)) + 1
        serial = w.sure
        for i in range(n):
            key = (ident << u64(32)) + serial + u64(i)
            store_u64(items + 16 * i, key)
            store_u64(items + 16 * i + 8, ~key)
        store_release(w, "tried", serial + u64(n))
        code = enqueue_by(ring, member, items, n, k % 4 == 0, i64(PAUSES))
        if code < 0:
            return code
        store_release(w, "sure", serial + u64(code))
    return i64(0)


@kernel
def consume_calls(ring, member, words, log, seed):
    """The same at the other end; what is taken out goes behind what is in the log."""
    w = Words(words)
    for k in range(CALLS):
        if w.sure > u64(LOG - MOST):
            break
        seed = seed * u64(6364136223846793005) + u64(1442695040888963407)
        n = i64(seed >> u64(62)) + 1
        code = dequeue_by(ring, member, log + 16 * i64(w.sure), n, k % 4 == 0, i64(PAUSES))
        if code < 0:
            return code
        store_release(w, "sure", w.sure + u64(code))
    return i64(0)


class Board:
    """The memory in which the processes say what they did."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.raw = mmap.mmap(f.fileno(), SLOTS * ROW + 8)
        self.order = np.frombuffer(self.raw, u64, 1, SLOTS * ROW)

    def row(self, slot):
        return Words(self.raw, slot * ROW), np.frombuffer(self.raw, ITEM, LOG, slot * ROW + Words.size)


def produce(ring, board, words, ident, chance):
    """Calls from Python."""
    while board.order[0] == GO_ON:
        serial, n = words.sure, chance.randrange(1, MOST + 1)
        burst = np.empty(n, ITEM)
        burst["key"] = np.arange(serial, serial + n, dtype=u64) + u64(ident << 32)
        burst["value"] = ~burst["key"]
        words.tried = serial + n
        call = ring.enqueue_bulk if chance.random() < 0.3 else ring.enqueue_burst
        try:
            words.sure = serial + call(burst, timeout_s=chance.choice((0.0, 0.0, 0.002)))
        except ws.PeerError:  # somebody is dead, and the call has not happened
            time.sleep(0.0003)
        words.running = 1


def consume(ring, board, words, log, chance):
    while board.order[0] != STOP and words.sure < LOG - MOST:
        out = log[words.sure : words.sure + chance.randrange(1, MOST + 1)]
        call = ring.dequeue_bulk_into if chance.random() < 0.3 else ring.dequeue_burst_into
        try:
            words.sure += call(out, timeout_s=chance.choice((0.0, 0.0, 0.002)))
        except ws.PeerError:
            out[:] = 0
            time.sleep(0.0003)
        words.running = 1


def produce_quickly(ring, board, words, ident, chance):
    """Calls from compiled code, so that nearly every moment is one in the middle of a call."""
    items, at, own = np.empty(MOST, ITEM), address(words), ring._memory.members.own
    words.running = 1
    while board.order[0] == GO_ON:
        seed = u64(chance.getrandbits(64))
        code = produce_calls(ring._memory.ring, own, at, items.ctypes.data, u64(ident), seed)
        try:
            if code < 0:
                words.sure += ring._waiting.settle(code, PROD)
        except ws.PeerError:
            time.sleep(0.0003)


def consume_quickly(ring, board, words, log, chance):
    at, own = address(words), ring._memory.members.own
    words.running = 1
    while board.order[0] != STOP and words.sure <= LOG - MOST:
        code = consume_calls(ring._memory.ring, own, at, log.ctypes.data, u64(chance.getrandbits(64)))
        try:
            if code < 0:
                words.sure += ring._waiting.settle(code, CONS)
        except ws.PeerError:
            log[words.sure : words.sure + MOST] = 0
            time.sleep(0.0003)


def address(words):
    return words._array.ctypes.data


def live(role, name, path, slot, ident):
    """What a forked process does, until it is killed or told to stop."""
    board, chance = Board(path), random.Random(ident)
    words, log = board.row(slot)
    ring = ws.Ring.attach(name, member_name=f"{role} {ident}")
    quick = chance.random() < 0.9
    if role == "producer":
        (produce_quickly if quick else produce)(ring, board, words, ident, chance)
    else:
        (consume_quickly if quick else consume)(ring, board, words, log, chance)
    ring.close()
    words.left = 1


def end_with_parent():
    """Have the kernel kill this process when its parent ends (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def nursery():
    """Fork a process for each line of input; the answer is its number."""
    end_with_parent()
    with ws.Ring(8, shared=True, dtype=ITEM) as ring:  # loads every kernel
        ring.enqueue_burst(np.zeros(3, ITEM))
        ring.dequeue_burst_into(np.zeros(9, ITEM), timeout_s=0.001)
        ring.dequeue_burst_into(np.zeros(9, ITEM), timeout_s=0.001)
        items, words, own = np.zeros(MOST, ITEM), Words(bytearray(Words.size)), ring._memory.members.own
        produce_calls(ring._memory.ring, own, address(words), items.ctypes.data, u64(1), u64(1))
        words.sure = LOG
        consume_calls(ring._memory.ring, own, address(words), items.ctypes.data, u64(1))
        ring._waiting.settle(-1, PROD)
    for line in sys.stdin:
        role, name, path, slot, ident = line.split()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                end_with_parent()
                live(role, name, path, int(slot), int(ident))
                status = 0
            finally:
                sys.stderr.flush()
                if status:
                    sys.excepthook(*sys.exc_info())
                os._exit(status)
        print(child, flush=True)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


class Life:
    """One process, as the test sees it."""

    def __init__(self, role, pid, slot, ident, words, log, recoveries):
        self.role, self.pid, self.slot, self.ident = role, pid, slot, ident
        self.words, self.log = words, log
        self.recoveries = recoveries  # before it began that gave items back


class Field:
    """A ring, the processes that work on it, and the books."""

    def __init__(self, nursery, path, prod, cons, chance, name):
        self.nursery, self.chance = nursery, chance
        self.path, self.board = path, Board(path)
        self.board.order[0] = GO_ON
        self.name = name
        self.ring = ws.Ring(16, dtype=ITEM, prod=prod, cons=cons, name=name, members=8)
        self.relaxed = cons == "rts"
        self.may_be_two = "rts" not in (prod, cons)
        self.overtaking = cons in ("mt", "rts")
        self.alone = cons == "st"
        self.start(chance.choice((0, WRAP - chance.randrange(1, 5000))))
        self.idents = 0
        self.gave_back = 0  # recoveries that returned items
        self.gone = {}  # a producer's number: what it had put in for certain, and may have
        self.got = []  # of each consumer: its items
        self.told = Counter()
        each = 1 if prod == "st" else 2
        self.lives = [self.begin(role, slot) for slot, role in enumerate(["producer"] * each + ["consumer"] * each)]

    def start(self, counter):
        self.first = counter
        record = self.ring._memory.record
        for end, sync in ((record.prod, record.prod_sync), (record.cons, record.cons_sync)):
            end.tail = end.position = counter
            end.head = end.seen = 0 if sync == 2 else counter  # of "rts", where they count claims

    def begin(self, role, slot):
        words, log = self.board.row(slot)
        log[: words.sure + MOST] = 0
        words.running = words.sure = words.tried = words.left = 0
        self.idents += 1
        self.nursery.stdin.write(f"{role} {self.name} {self.path} {slot} {self.idents}\n")
        pid = int(self.nursery.stdout.readline())
        return Life(role, pid, slot, self.idents, words, log, self.gave_back)

    def wait_for(self, what, lives):
        end = time.monotonic() + 60
        while not all(getattr(life.words, what) for life in lives):
            assert time.monotonic() < end, (what, self.ring.dump())
            self.look_for_leavers(lives)
            time.sleep(0.0002)

    def look_for_leavers(self, but=()):
        """A consumer whose log is full has left; another one comes."""
        for k, life in enumerate(self.lives):
            if life.words.left and life not in but and self.board.order[0] == GO_ON:
                self.close_book(life, life.words.sure)
                self.lives[k] = self.begin(life.role, life.slot)

    def kill(self):
        """One round: kill, notice, recover, replace; how many were killed."""
        self.look_for_leavers()
        n = 2 if self.may_be_two and self.chance.random() < 0.15 else 1
        victims = self.chance.sample(self.lives, n)
        self.wait_for("running", victims)
        time.sleep(self.chance.uniform(0, 0.003))
        if self.chance.random() < 0.7:
            self.catch(victims[0])
        for life in victims:
            os.kill(life.pid, signal.SIGKILL)
        numbers = {life.pid for life in victims}
        end = time.monotonic() + 30
        while any(peer.alive for peer in self.ring.peers() if peer.pid in numbers):
            assert time.monotonic() < end, "a process that was killed lives"
        members = {record.pid: at for at, record in self.ring._memory.members.records()}
        staying = {record.pid for _, record in self.ring._memory.members.records() if record.started}
        published = {life.pid: self.was_published(members.get(life.pid)) for life in victims}
        found = self.recover()
        # Who had left already, its log full, is no member any more; who was killed while it gave its record back may be one.
        dead = {peer.pid for peer in found.dead}
        assert numbers & staying <= dead <= numbers & members.keys()
        self.told["dropped"] += found.dropped
        self.told["returned"] += found.returned
        self.gave_back += found.returned > 0
        for peer in found.dead:
            self.told[" ".join(w for w in peer.doing.split() if not w.isdigit()) or "nothing"] += 1
        for life in victims:
            given = published[life.pid] if not self.relaxed else not found.returned
            self.bury(life, given)
            self.lives[self.lives.index(life)] = self.begin(life.role, life.slot)
        return n

    def catch(self, life):
        """Stop a process, at any moment, until it is in the middle of a call; not for ever."""
        records = [record for _, record in self.ring._memory.members.records() if record.pid == life.pid]
        for _ in range(12 if records else 0):
            os.kill(life.pid, signal.SIGSTOP)
            while Path(f"/proc/{life.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ":
                time.sleep(0)
            if records[0].prod.state or records[0].cons.state:
                return
            os.kill(life.pid, signal.SIGCONT)
            time.sleep(self.chance.uniform(0, 0.0003))

    def was_published(self, at):
        """Whether a dead consumer's last claim was: then the tail is past it, and only then."""
        if at is None:
            return True
        intent, tail = Member.at(at).cons, self.ring._memory.record.cons.tail
        if self.alone:  # it makes no notes, but what was taken out it took
            return (tail - self.first) % WRAP > sum(map(len, self.got)) + self.lives[-1].words.sure
        if intent.state in (IDLE, DONE) or intent.count == 0:
            return True
        return (tail - intent.first - intent.count) % WRAP < WRAP // 2

    def recover(self):
        end = time.monotonic() + 60
        while True:
            try:
                return self.ring.recover()
            except TimeoutError:  # two cores, many processes: one may be out of its turn for long
                self.told["waited"] += 1
                assert time.monotonic() < end, self.ring.dump()

    def bury(self, life, given):
        length = life.words.sure
        if life.role == "consumer" and given:
            # What it was given in its last call, of which it had no time to make a note.
            rest = life.log["key"][length : length + MOST]
            length += int(np.argmin(rest != 0)) if (rest == 0).any() else len(rest)
            self.told["given and not noted"] += length - life.words.sure
        self.close_book(life, length)

    def close_book(self, life, length):
        if life.role == "producer":
            self.gone[life.ident] = life.words.sure, life.words.tried
            return
        items = life.log[:length].copy()
        assert (items["value"] == ~items["key"]).all(), "an item was torn"
        late = self.gave_back - life.recoveries if self.overtaking else 0
        for ident in np.unique(items["key"] >> u64(32)):
            serials = (items["key"][items["key"] >> u64(32) == ident] & u64(WRAP - 1)).astype(np.int64)
            back = int((np.diff(serials) <= 0).sum())
            # Items that went back to the front come after those that another had taken behind them.
            assert back <= late, f"out of order {back} times, {late} recoveries returned items"
        self.got.append(items["key"])

    def finish(self):
        """Stop all, and check that each item is where it must be."""
        self.board.order[0] = DRAIN
        self.wait_for("left", [life for life in self.lives if life.role == "producer"])
        for life in self.lives:
            if life.role == "producer":
                self.gone[life.ident] = life.words.sure, life.words.sure
        self.board.order[0] = STOP
        self.wait_for("left", [life for life in self.lives if life.role == "consumer"])
        for life in self.lives:
            if life.role == "consumer":
                self.close_book(life, life.words.sure)
        assert [peer.pid for peer in self.ring.peers()] == [os.getpid()]
        while len(rest := self.ring.dequeue_burst(MOST)):
            assert (rest["value"] == ~rest["key"]).all()
            self.got.append(rest["key"])
        assert len(self.ring) == 0 and not self.ring.recover().dead
        self.ring.close()
        keys = np.sort(np.concatenate(self.got))
        assert len(np.unique(keys)) == len(keys), "an item was doubled"
        for ident, (sure, tried) in self.gone.items():
            own = keys[keys >> u64(32) == ident] & u64(WRAP - 1)
            assert np.array_equal(own, np.arange(len(own))), "an item was lost"
            assert sure <= len(own) <= max(sure, tried), (ident, sure, len(own), tried)
        self.told["items"] += len(keys)


def rounds(tmp_path, prod, cons, wanted, record_property):
    """Kill until as many are dead as ``wanted``."""
    memory = os.memfd_create("board")
    os.ftruncate(memory, SLOTS * ROW + 8)
    path = f"/proc/{os.getpid()}/fd/{memory}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    errors = open(tmp_path / "errors", "w+")  # noqa: SIM115
    told: Counter[str] = Counter()
    begun = time.monotonic()
    with errors, subprocess.Popen(
        [sys.executable, "-c", "from tests.core.test_killed import nursery; nursery()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        text=True, bufsize=1, env=environment,
    ) as process:  # fmt: skip
        try:
            while told["kills"] < wanted:
                chance = random.Random(f"{prod} {cons} {told['kills']}")
                field = Field(process, path, prod, cons, chance, f"killed-{os.getpid()}-{prod}-{cons}-{told['kills']}")
                kills = 0
                try:
                    while kills < min(EPOCH, wanted - told["kills"]):
                        kills += field.kill()
                        field.told["rounds"] += 1
                    field.finish()
                finally:
                    field.ring.close()
                told += field.told
                told["kills"] += kills
        finally:
            process.stdin.close()
            process.kill()  # and its children with it
            os.close(memory)
            errors.seek(0)
            wrong = errors.read()
    assert not wrong, wrong
    text = ", ".join(f"{what} {count}" for what, count in told.most_common())
    record_property("kills", told["kills"])
    print(f"{prod}/{cons}: {told['kills']} killed in {time.monotonic() - begun:.1f} s: {text}")


PAIRS = [("st", "st"), ("mt", "mt"), ("rts", "rts"), ("hts", "hts"), ("mt", "rts"), ("hts", "mt")]


@pytest.mark.parametrize("prod, cons", PAIRS)
def test_processes_that_are_killed_lose_and_double_nothing(tmp_path, prod, cons, record_property):
    rounds(tmp_path, prod, cons, 12, record_property)


@pytest.mark.torture
@pytest.mark.parametrize("prod, cons", PAIRS)
def test_a_thousand_processes_that_are_killed_lose_and_double_nothing(tmp_path, prod, cons, record_property):
    rounds(tmp_path, prod, cons, 200 if prod == cons else 150, record_property)
