"""Attaching to a ring of another process: by name and by descriptor, and what is refused when it is not what it seems."""

import array
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

import wirespeed as ws
from tests.conftest import TORTURE
from wirespeed.core import segment
from wirespeed.core.ring import Ring as Record
from wirespeed.core.ring_memory import DTYPE_ROOM, KIND, LAYOUTS
from wirespeed.core.segment import HEADER_SIZE, MAGIC, Header

NESTED = np.dtype([("key", ">u4"), ("place", [("x", "f4"), ("y", "f4")]), ("words", "u8", (3,))])


@pytest.fixture
def name():
    return f"test-{os.getpid()}"


def program(text, *arguments, **options):
    """Run a program in another Python; what it printed."""
    command = [sys.executable, "-c", "import os, sys\nimport numpy as np\nimport wirespeed as ws\n" + text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


# What works.


def test_another_process_attaches_by_name(name):
    with ws.Ring(16, name=name, member_name="maker") as ring:
        ring.enqueue_bulk([1, 2, 3])
        told = program(
            "with ws.Ring.attach(sys.argv[1], member_name='guest') as ring:\n"
            "    print(ring.dequeue_bulk(2).tolist(), ring.enqueue(9), ring.capacity, ring.fd >= 0)\n"
            "    print(sorted(peer.name for peer in ring.peers() if peer.alive))",
            name,
        )
        assert told == "[1, 2] True 15 True\n['guest', 'maker']\n"
        assert ring.dequeue_burst(9).tolist() == [3, 9]
        assert [str(peer) for peer in ring.peers()] == [f"process {os.getpid()} (maker)"]


def test_another_process_attaches_by_a_descriptor_that_it_inherits():
    with ws.Ring(16, shared=True) as ring:
        text = "with ws.Ring.attach(fd=int(sys.argv[1])) as ring: ring.enqueue_bulk([4, 5])"
        program(text, str(ring.fd), pass_fds=[ring.fd])
        assert ring.dequeue_burst(9).tolist() == [4, 5]


def test_another_process_attaches_by_a_descriptor_that_it_is_sent():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs, ws.Ring(16, shared=True) as ring:
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [ring.fd]))])
        text = (
            "import socket\n"
            "with socket.socket(fileno=int(sys.argv[1])) as s: fd = socket.recv_fds(s, 1, 1)[1][0]\n"
            "ring = ws.Ring.attach(fd=fd)\n"
            "os.close(fd)\n"
            "ring.enqueue(6)\n"
            "ring.close()"
        )
        program(text, str(theirs.fileno()), pass_fds=[theirs.fileno()])
        assert ring.dequeue_burst(9).tolist() == [6]


def test_the_name_goes_with_its_maker_and_those_attached_go_on(name):
    ring = ws.Ring(16, name=name)
    ring.enqueue(1)
    with ws.Ring.attach(name) as other:
        ring.close()
        assert not os.path.exists(f"/dev/shm/wirespeed-{name}")
        with pytest.raises(ws.PortError, match="does it still run"):
            ws.Ring.attach(name)
        assert other.dequeue() == 1 and other.enqueue(2) and other.dequeue() == 2
        assert len(other.peers()) == 1
        with ws.Ring.attach(fd=other.fd) as third:
            assert third.enqueue(3) and other.dequeue() == 3
    with ws.Ring(16, name=name):
        pass  # the name is free again


def test_two_rings_in_one_process_do_not_meet(name):
    with ws.Ring(16, name=f"{name}-a") as a, ws.Ring(16, name=f"{name}-b") as b, ws.Ring.attach(f"{name}-a") as c:
        a.enqueue(1)
        b.enqueue(2)
        assert c.dequeue() == 1 and c.dequeue() is None and b.dequeue() == 2
        assert (len(a.peers()), len(b.peers())) == (2, 1)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, "f8", "S12", NESTED, [("a", "u4"), ("b", "datetime64[ns]")]])
def test_the_dtype_goes_with_the_ring(dtype):
    dtype = np.dtype(dtype)
    items = np.frombuffer(np.random.default_rng(3).bytes(5 * dtype.itemsize), dtype)
    with ws.Ring(8, dtype=dtype, shared=True) as ring, ws.Ring.attach(fd=ring.fd) as other:
        assert other.dtype == dtype
        ring.enqueue_bulk(items)
        out = np.empty(5, dtype)  # not the dtype that was read, but one that equals it
        assert other.dequeue_bulk_into(out) == 5 and out.tobytes() == items.tobytes()


def test_who_attaches_after_the_end_gets_what_is_left(name):
    with ws.Ring(16, name=name) as ring:
        ring.enqueue_bulk([1, 2])
        ring.shutdown()
        with ws.Ring.attach(name) as other:
            assert other.is_shut_down and [burst.tolist() for burst in other] == [[1, 2]]
            with pytest.raises(ws.GraphError, match="shut down"):
                other.enqueue(3)


def test_statistics_are_those_of_all_present_and_begin_with_each_member():
    with ws.Ring(16, shared=True) as ring:
        with ws.Ring.attach(fd=ring.fd) as other:
            ring.enqueue_bulk([1, 2, 3])
            other.dequeue_bulk(2)
            for one in (ring, other):
                counted = one.statistics()
                assert (counted.enqueued, counted.dequeued, counted.dequeues) == (3, 2, 1)
        assert ring.statistics().dequeued == 0
        with ws.Ring.attach(fd=ring.fd):
            assert ring.statistics().dequeued == 0, "a new member has done nothing yet"


def test_a_shared_ring_takes_and_gives_back_descriptors_and_memory():
    def held():
        with open("/proc/self/maps", encoding="ascii") as f:
            return len(os.listdir("/proc/self/fd")), sum("wirespeed" in line for line in f)

    before = held()
    for _ in range(3):
        with ws.Ring(16, shared=True) as ring, ws.Ring.attach(fd=ring.fd) as other:
            other.peers()
    assert held() == before


# What is refused.


def test_attaching_needs_a_name_or_a_descriptor(name):
    for arguments in ({}, {"name": name, "fd": 3}):
        with pytest.raises(ws.GraphError, match="either a name or a descriptor"):
            ws.Ring.attach(**arguments)
    for wrong in ("a/b", "..", "x" * 65, "-x"):
        with pytest.raises(ws.GraphError, match="1 to 64 letters, digits"):
            ws.Ring.attach(wrong)


def test_a_name_that_nobody_made_and_one_that_is_taken(name):
    with pytest.raises(ws.PortError, match=f"no ring named '{name}'.*has its maker started") as error:
        ws.Ring.attach(name)
    assert error.value.errno == 2
    with ws.Ring(16, name=name) as ring:
        with pytest.raises(ws.GraphError, match=f"named '{name}' exists already; attach to it.*remove /dev/shm/"):
            ws.Ring(16, name=name)
        with ws.Ring.attach(name) as other:
            assert ring.enqueue(1) and other.dequeue() == 1, "the first one is unharmed"


def test_more_members_than_there_is_room_for():
    with ws.Ring(16, shared=True, members=2) as ring, ws.Ring.attach(fd=ring.fd) as other:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(ws.GraphError, match=r"all 2 members of it are taken.*members=.*recover\(\)"):
            ws.Ring.attach(fd=ring.fd)
        assert len(os.listdir("/proc/self/fd")) == before
        other.close()
        ws.Ring.attach(fd=ring.fd).close()


def test_a_descriptor_of_something_else(tmp_path):
    read, write = os.pipe()
    (tmp_path / "file").write_bytes(b"hello" * 100)
    (tmp_path / "short").write_bytes(b"hello")
    zeros = os.memfd_create("zeros")
    os.ftruncate(zeros, 8192)
    descriptors = [(read, "no ring: 0 bytes of a header"), (zeros, "its first word is 0x0, not 0x")]
    descriptors += [(os.open(tmp_path / "file", os.O_RDWR), "its first word is 0x")]
    descriptors += [(os.open(tmp_path / "short", os.O_RDWR), "5 bytes of a header of 128")]
    try:
        before = len(os.listdir("/proc/self/fd"))
        for fd, words in descriptors:
            with pytest.raises(ws.PeerError, match=words):
                ws.Ring.attach(fd=fd)
        for fd in (999, 1 << 20):
            with pytest.raises(ws.PortError, match=f"no ring at descriptor {fd}: Bad file descriptor"):
                ws.Ring.attach(fd=fd)
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        for fd in (read, write, *(fd for fd, _ in descriptors[1:])):
            os.close(fd)


def copy_of(ring, change, cut=0):
    """A descriptor of a copy of a ring's memory, changed."""
    owner = ring._memory.owner
    raw = bytearray(os.pread(owner.fd, owner.size, 0))
    change(raw)
    fd = os.memfd_create("copy")
    os.write(fd, raw[: len(raw) - cut])
    return fd


def header(**values):
    def change(raw):
        for field, value in values.items():
            setattr(Header(raw), field, value)

    return change


def record(**values):
    def change(raw):
        for field, value in values.items():
            end, _, part = field.partition("__")
            whole = Record(raw, HEADER_SIZE + DTYPE_ROOM)
            setattr(getattr(whole, end) if part else whole, part or end, value)

    return change


def dtype(text):
    def change(raw):
        raw[HEADER_SIZE : HEADER_SIZE + DTYPE_ROOM] = text.ljust(DTYPE_ROOM, b"\0")

    return change


@pytest.mark.parametrize(
    "change, words",
    [
        (header(magic=0), "its first word is 0x0"),
        (header(version=2), "another release of wirespeed .version 2, .*here 1.*have both processes use the same"),
        (header(layouts=5), "another release.*layouts 0x5"),
        (header(kind=7), "shared memory of kind 7, not 1"),
        (header(size=1 << 40), r"says that it has 1099511627776 bytes, the file has \d+"),
        (header(size=-4096), "says that it has -4096 bytes"),
        (header(members=0), "does not fit"),
        (header(members=-(1 << 40)), "does not fit"),
        (header(member_count=0), "does not fit"),
        (header(member_count=1 << 31), r"2147483648 members in \d+ bytes"),
        (record(mask=0xFFFFFFFF), "4294967296 slots of 8 bytes"),
        (record(mask=30), "31 slots"),
        (record(capacity=0), "does not fit"),
        (record(capacity=99), "does not fit"),
        (record(size=0), "of 0 bytes"),
        (record(size=16), "of 16 bytes"),
        (record(prod_sync=4), "does not fit"),
        (record(cons_sync=1 << 31), "does not fit"),
        (record(prod__tail=99), "ends do not fit together: taken up to 0, put in up to 99, of 15"),
        (record(cons__tail=1), "ends do not fit"),
        (dtype(b""), "dtype cannot be read"),
        (dtype(b"'<u8"), "dtype cannot be read"),
        (dtype(b"'<u8'" + b" " * 2000), "dtype cannot be read|does not fit|says that"),
        (dtype(b"__import__('os').abort()"), "dtype cannot be read"),
        (dtype(b"(" * 1000), "dtype cannot be read"),
        (dtype(b"\xff\xfe"), "dtype cannot be read"),
        (dtype(b"'|O'"), "Python objects, which cannot leave"),
        (dtype(b"'<u4'"), "does not fit"),
    ],
)  # fmt: skip
def test_a_ring_that_is_none_is_refused_with_a_reason(change, words):
    with ws.Ring(16, shared=True, members=4) as ring:
        fd = copy_of(ring, change)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(ws.PeerError, match=words):
            ws.Ring.attach(fd=fd)
        assert len(os.listdir("/proc/self/fd")) == before
        os.close(fd)


def test_a_ring_that_is_cut_off_is_refused():
    with ws.Ring(1024, shared=True, members=4) as ring:
        size = ring._memory.owner.size
        for cut, change in (
            (1, header()),
            (4096, header()),
            (4096, header(size=size - 4096)),
            (size - 128, header(size=128)),
        ):
            fd = copy_of(ring, change, cut)
            with pytest.raises(ws.PeerError, match=r"says that it has|does not fit|is cut off"):
                ws.Ring.attach(fd=fd)
            os.close(fd)


def test_another_kind_of_segment_is_refused():
    with ws.Ring(16, shared=True):
        other = segment.create(KIND + 1, 100, LAYOUTS)
        segment.publish(other)
        with pytest.raises(ws.PeerError, match="of kind 2, not 1"):
            ws.Ring.attach(fd=other.fd)
        other.close()


def test_a_segment_is_named_only_when_it_is_whole_and_nobody_can_cut_it(name):
    made = segment.create(KIND, 100, LAYOUTS, name=name)
    assert not os.path.exists(f"/dev/shm/wirespeed-{name}") and made.header.magic == 0
    segment.publish(made, name)
    assert made.header.magic == MAGIC and os.stat(f"/dev/shm/wirespeed-{name}").st_mode & 0o777 == 0o600
    made.close()
    made.close()
    with ws.Ring(16, shared=True) as ring:
        for size in (0, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(ring.fd, size)


def test_a_segment_larger_than_memory_is_refused():
    with pytest.raises(ws.PortError, match=r"no shared memory of 4398\d+ bytes: the machine has \d+ left"):
        ws.Ring(1 << 30, shared=True, dtype="S4096")


def test_a_dtype_too_long_for_its_place_is_refused():
    with pytest.raises(ws.GraphError, match="use shorter field names"):
        ws.Ring(16, shared=True, dtype=[(f"field-{'x' * 50}-{k}", "u4") for k in range(30)])


FUZZ = """
import random, signal
from tests.core.test_segment import copy_of
from wirespeed.core import calls
from wirespeed.core.member import Member
from wirespeed.core.ring import SLOTS
from wirespeed.core.ring_memory import DTYPE_ROOM
from wirespeed.core.segment import HEADER_SIZE

class Hung(Exception):
    pass

def hung(*_):
    raise Hung

with ws.Ring(16, shared=True) as ring:  # loads every kernel before there is an alarm
    ring._waiting.settle(-1, 0)
    ring.dequeue_burst(1, timeout_s=0.001)
    ring.enqueue_burst([1])
    ring.dequeue_burst(1)
    own = Member.at(ring._memory.members.own)
    own.prod.first, own.prod.count, own.prod.state = 0, 0, 2
    ring.recover(0.1)
    calls.abandon_claim.function(ring._at, 0, 1, 0)
    ring.reset()
signal.signal(signal.SIGALRM, hung)
first, last, refused, worked, waited = int(sys.argv[1]), int(sys.argv[2]), 0, 0, 0
# All that is neither a slot nor padding: the header, the dtype's text, the record, and the members.
places = [*range(HEADER_SIZE), *range(HEADER_SIZE, HEADER_SIZE + 8)]
record = HEADER_SIZE + DTYPE_ROOM
places += [*range(record, record + 36), *range(record + 128, record + 136), *range(record + 256, record + 268)]
places += [*range(record + 384, record + 392), *range(record + 512, record + 524)]
members = record + SLOTS + 128 + 128
places += range(members, members + 32)
for seed in range(first, last):
    chance = random.Random(seed)
    syncs = chance.choice(["st", "mt", "rts", "hts"]), chance.choice(["st", "mt", "rts", "hts"])
    with ws.Ring(16, shared=True, prod=syncs[0], cons=syncs[1], members=4) as ring:
        ring.enqueue_bulk(list(range(9)))
        ring.dequeue_bulk(4)

        def change(raw):
            for _ in range(chance.choice([1, 1, 1, 2, 5])):
                at = chance.choice(places)
                raw[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, raw[at] ^ 1 << chance.randrange(8), chance.randrange(256)])

        fd = copy_of(ring, change)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            got = ws.Ring.attach(fd=fd)
        except (ws.PeerError, ws.PortError, ws.GraphError):
            refused += 1
            continue
        worked += 1
        for call in (
            lambda: got.enqueue_burst([1, 2, 3]), lambda: got.dequeue_burst(8), lambda: got.enqueue_bulk(list(range(30))),
            lambda: got.dequeue_burst(40), got.peers, got.dump, lambda: got.recover(0.001), lambda: got.enqueue(1), got.reset,
        ):
            try:
                call()
            except (ws.PeerError, ws.GraphError, TimeoutError):
                pass
        got.close()
    except Hung:
        waited += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(fd)
print(refused, worked, waited)
"""


@pytest.mark.parametrize("part", range(2))
def test_no_byte_of_a_ring_that_is_wrong_makes_a_process_crash(part):
    n = 20_000 if TORTURE else 400
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    refused, worked, waited = map(int, program(FUZZ, str(part * n), str((part + 1) * n), env=environment).split())
    assert refused > n / 4 and worked > n / 10, (refused, worked, waited)
    assert refused + worked >= n
