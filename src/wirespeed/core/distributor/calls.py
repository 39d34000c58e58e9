"""What Python calls of a distributor and of a worker: one entry each.

A *binding* is what one Python object has of a distributor: where it is, and what its arrays look like.  It lies, like
everything that is private here, on pages that a forked child finds zeroed, so that the child's copy of the object is
told apart: what points nowhere is GONE.

Thread rules: entries that wait release the GIL, and change nothing; the others hold it, and are over soon.
"""

import numpy as np

from wirespeed.core.calls import GONE, NO_ARRAY
from wirespeed.core.distributor import attendance, desk
from wirespeed.core.distributor.backlog import Backlog, Distributor
from wirespeed.core.distributor.desk import Cursor, Desk, Desks, Line
from wirespeed.core.distributor.process import anything, forget_returned, process, returned
from wirespeed.core.distributor.turns import backlog_of
from wirespeed.core.slots import copy_words
from wirespeed.jit.arrays import data_of, length_of, writeable
from wirespeed.jit.atomics import exchange, fence_full, load_acquire, load_relaxed, store_relaxed
from wirespeed.jit.intrinsics import pause
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import futex_wait, monotonic_ns, sys_yield
from wirespeed.jit.python import address_of
from wirespeed.jit.types import int64, reference, uint64

i64, u64 = np.int64, np.uint64
NAP_NS = 1_000_000  # a sleep is no longer, for who wakes sleepers can miss one that is about to
EINTR = -4
READY, TIME_OVER = 1, 0

Binding = layout(
    "DistributorBinding",
    [
        ("distributor", "i8"),
        ("array_type", "i8"),  # address of the type numpy.ndarray
        ("items", "i8"),  # address of the dtype of items
        ("tags", "i8"),  # and of that of tags
    ],
    size=64,
)


@entry(int64(int64, reference, reference, int64))
def process_arrays(binding, items, tags, start):
    """Give the items of an array from number ``start`` on to workers; how many, or a code."""
    b = Binding(binding)
    if b.distributor == 0:
        return i64(GONE)
    n = length_of(address_of(items), b.array_type, b.items)
    if n < 0 or n != length_of(address_of(tags), b.array_type, b.tags):
        return i64(NO_ARRAY)
    start = min(start, n)
    return process(
        b.distributor, data_of(address_of(items)) + 8 * start, data_of(address_of(tags)) + 4 * start, n - start
    )


@entry(int64(int64, reference))
def returned_into(binding, out):
    """Fill an array with items that came back, from its beginning; how many, or a code."""
    b = Binding(binding)
    if b.distributor == 0:
        return i64(GONE)
    n = length_of(address_of(out), b.array_type, b.items)
    if n < 0 or not writeable(address_of(out)):
        return i64(NO_ARRAY)
    return returned(b.distributor, data_of(address_of(out)), n)


@entry(int64(int64))
def look_at_all(binding):
    """Look at all workers; 0, or GONE."""
    at = Binding(binding).distributor
    return process(at, i64(0), i64(0), i64(0)) if at != 0 else i64(GONE)


@entry(int64(int64))
def forget(binding):
    """:func:`wirespeed.core.distributor.process.forget_returned`."""
    at = Binding(binding).distributor
    return forget_returned(at) if at != 0 else i64(GONE)


@kernel(inline=True)
def _backlog(binding, number):
    """The backlog of a worker, of whose number the caller has made sure."""
    return Backlog(backlog_of(Distributor(Binding(binding).distributor), number))


@entry(int64(int64, int64))
def stall(binding, number):
    """Have what is for a worker parked until it gives something back."""
    if Binding(binding).distributor == 0:
        return i64(GONE)
    _backlog(binding, number).stalled = 1
    return i64(0)


@entry(int64(int64, int64, uint64))
def bury(binding, number, owner):
    """:func:`wirespeed.core.distributor.attendance.bury` of a worker by its number."""
    if Binding(binding).distributor == 0:
        return i64(GONE)
    return attendance.bury(Distributor(Binding(binding).distributor), _backlog(binding, number), owner)


@entry(int64(int64, int64))
def fence(binding, number):
    """:func:`wirespeed.core.distributor.attendance.fence` of a worker by its number."""
    if Binding(binding).distributor == 0:
        return i64(GONE)
    return attendance.fence(Distributor(Binding(binding).distributor), _backlog(binding, number))


@entry(int64(int64))
def close(binding):
    """Tell the workers that it is over."""
    if Binding(binding).distributor == 0:
        return i64(GONE)
    attendance.close(Distributor(Binding(binding).distributor))
    return i64(0)


@kernel(inline=True)
def _spin(spins):
    for _ in range(32):
        pause()
    if spins % 8 == 7:
        sys_yield()


@entry(int64(int64, int64, int64), nogil=True)
def wait(binding, timeout_ns, spin_ns):
    """Wait until a worker has given something back or wishes something: READY, TIME_OVER or GONE; it may end early."""
    at = Binding(binding).distributor
    if at == 0:
        return i64(GONE)
    desks = Distributor(at).desks
    start = monotonic_ns()
    now, spins = start, i64(0)
    while now - start < timeout_ns:
        bell = load_acquire(Desks(desks), "bell")
        if anything(at):
            return i64(READY)
        if now - start < spin_ns:
            _spin(spins)
            spins += 1
        else:
            exchange(Desks(desks), "asleep", 1)  # S0
            fence_full()
            if anything(at):  # S1
                return i64(READY)
            rest = min(i64(NAP_NS), timeout_ns - (now - start))
            if futex_wait(desks + desk.BELL, i64(bell), rest) == EINTR:
                return i64(TIME_OVER)
        now = monotonic_ns()
    return i64(TIME_OVER)


# The worker's side.


@kernel(inline=True)
def _take(cursor, items):
    """Take the next line, and copy its items; how many, or a code."""
    n = desk.poll(cursor)
    if n > 0:
        copy_words(items, desk.items_of(cursor), 8 * n)
    return n


@entry(int64(int64, int64))
def poll(cursor, items):
    """Take the next line, and copy its items to ``items``, where there is room for a burst; how many, or a code."""
    return _take(cursor, items) if Cursor(cursor).desks != 0 else i64(GONE)


@entry(int64(int64, int64, int64))
def turn(cursor, items, n):
    """Give the line in hand back with the ``n`` items at ``items``, and take the next into the same place."""
    if Cursor(cursor).desks == 0:
        return i64(GONE)
    code = desk.request(cursor, items, n)
    return _take(cursor, items) if code == 0 else code


@entry(int64(int64, int64, int64))
def request(cursor, items, n):
    """:func:`wirespeed.core.distributor.desk.request`."""
    return desk.request(cursor, items, n) if Cursor(cursor).desks != 0 else i64(GONE)


@entry(int64(int64, int64, int64))
def leave(cursor, items, n):
    """:func:`wirespeed.core.distributor.desk.leave`."""
    return desk.leave(cursor, items, n) if Cursor(cursor).desks != 0 else i64(GONE)


@entry(int64(int64))
def abandon(cursor):
    """:func:`wirespeed.core.distributor.desk.abandon`."""
    if Cursor(cursor).desks == 0:
        return i64(GONE)
    desk.abandon(cursor)
    return i64(0)


@kernel(inline=True)
def _hand_over(c, living):
    """Make a cursor's desk the calling thread's; whether it still was that of who used it last."""
    if not desk.hand_over(c.desk, c.owner, living):
        return False
    c.owner = living
    return True


@entry(int64(int64, uint64))
def take_over(cursor, living):
    """Have the calling thread be the worker; WAS_FENCED when who was it is taken for gone."""
    c = Cursor(cursor)
    if c.desks == 0:
        return i64(GONE)
    return i64(0) if _hand_over(c, living) else i64(desk.WAS_FENCED)


@entry(int64(int64, uint64))
def resign(cursor, living):
    """Leave, and let go of the desk, if it still is ours: who used it may have ended, and it be another's by now.

    ``living`` is the calling thread, from whom nobody takes the desk meanwhile.  All in one: nothing interrupts it.
    """
    c = Cursor(cursor)
    if c.desks == 0:
        return i64(GONE)
    if _hand_over(c, living):
        if c.joined != 0:
            desk.abandon(cursor)
        desk.disown(c.desk, living)
    c.desks = 0
    c.hand, c.joined = 0, 0
    c.grant = u64(0)
    return i64(0)


@entry(int64(int64))
def join(cursor):
    """:func:`wirespeed.core.distributor.desk.join`."""
    if Cursor(cursor).desks == 0:
        return i64(GONE)
    desk.join(cursor)
    return i64(0)


@kernel(inline=True)
def _is_there(cursor):
    """Whether :func:`poll` would say anything but to wait."""
    c = Cursor(cursor)
    grant = load_acquire(Desk(c.desk), "grant")  # W3 pairs with D3
    if not desk.gives_lines(c, grant):
        return desk.refused(c, grant) != desk.NOT_YET
    return load_relaxed(Line(c.lines + c.line_size * i64(c.next & c.mask)), "seq") == c.next


@entry(int64(int64, int64, int64), nogil=True)
def wait_for_line(cursor, timeout_ns, spin_ns):
    """Wait until the next line is there, or there will be none: READY, TIME_OVER or GONE; it may end early."""
    c = Cursor(cursor)
    if c.desks == 0:
        return i64(GONE)
    d = Desk(c.desk)
    start = monotonic_ns()
    now, spins = start, i64(0)
    while now - start < timeout_ns:
        if _is_there(cursor):
            return i64(READY)
        if now - start < spin_ns:
            _spin(spins)
            spins += 1
        else:
            # It sleeps on the word that says what changes: the grant, or the number of the line in the next one's place.
            word = c.lines + c.line_size * i64(c.next & c.mask) if c.grant != u64(0) else c.desk + desk.STATE
            seen = load_relaxed(Line(word), "seq")
            exchange(d, "asleep", 1)  # S0
            fence_full()
            if _is_there(cursor):  # S1
                store_relaxed(d, "asleep", 0)
                return i64(READY)
            slept = futex_wait(word, i64(seen), min(i64(NAP_NS), timeout_ns - (now - start)))
            store_relaxed(d, "asleep", 0)
            if slept == EINTR:
                return i64(TIME_OVER)
        now = monotonic_ns()
    return i64(TIME_OVER)
