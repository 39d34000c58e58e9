"""What Python calls of a ring: one entry a method, each with the ring's binding as its first argument.

A *binding* is what one Python object has of a ring: where it is, which member it works as, and what arrays of its
items look like.  It lies on a page that a forked child finds zeroed, so that the child's copy of the object is told
apart without a system call: a binding without a ring is GONE.

Thread rules: entries that may wait release the GIL; the others hold it, and are over in less time than it takes to
hand it on.
"""

import numpy as np

from wirespeed.core.member import (
    HELD,
    PROD,
    UNABLE,
    Member,
    abandon,
    begin,
    dequeue_by,
    end,
    enqueue_by,
    finish,
    intent_of,
    wake,
)
from wirespeed.core.peek import dequeue_finish, dequeue_places, enqueue_commit, enqueue_places
from wirespeed.core.ring import HTS, ST, Intent, Ring, used
from wirespeed.jit.arrays import data_of, length_of, writeable
from wirespeed.jit.atomics import fence_full, load_acquire, load_relaxed, store_relaxed, store_release
from wirespeed.jit.intrinsics import load_i64, pause, stack, store_u64
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.layout import address, layout
from wirespeed.jit.libc import futex_wait, monotonic_ns, sys_thread, sys_yield
from wirespeed.jit.python import (
    add_reference,
    address_of,
    as_reference,
    cut_list,
    list_items,
    list_length,
    new_integer,
    new_list,
    small_integer,
    type_of,
)
from wirespeed.jit.types import boolean, int64, reference

u32, i64, u64 = np.uint32, np.int64, np.uint64
# What an entry returns instead of a count; UNABLE and what is a little less are as in wirespeed.core.member.
GONE, SHUT, NO_ARRAY = -(1 << 40), -(1 << 41), -(1 << 42)
READY, TIME_OVER = 1, 0

Binding = layout(
    "Binding",
    [
        ("ring", "i8"),
        ("member", "i8"),
        ("array_type", "i8"),  # address of the type numpy.ndarray
        ("list_type", "i8"),  # of the type list
        ("int_type", "i8"),  # of the type int
        ("descr", "i8"),  # address of the dtype of the items
        ("patience", "i8"),  # how often a call pauses for earlier claims before it hands the waiting to Python
    ],
    size=64,
)


@kernel
def _enqueue(binding, items, n, exact):
    b = Binding(binding)
    if b.ring == 0:
        return i64(GONE)
    r = Ring(b.ring)
    if load_acquire(r, "closed") != 0:
        return i64(SHUT)
    if n > i64(r.capacity):  # counters have 32 bits
        if exact:
            Member(b.member).refused += u64(1)
            return i64(0)
        n = i64(r.capacity)
    return enqueue_by(b.ring, b.member, items, n, exact, b.patience)


@kernel
def _dequeue(binding, items, n, exact):
    b = Binding(binding)
    if b.ring == 0:
        return i64(GONE)
    if n > i64(Ring(b.ring).capacity):
        if exact:
            Member(b.member).empty += u64(1)
            return i64(0)
        n = i64(Ring(b.ring).capacity)
    return dequeue_by(b.ring, b.member, items, n, exact, b.patience)


@entry(int64(int64, reference, boolean))
def enqueue_array(binding, items, exact):
    """Put the items of an array in; how many, or a code."""
    b, array = Binding(binding), address_of(items)
    n = length_of(array, b.array_type, b.descr)
    if n < 0:
        return i64(NO_ARRAY)
    return _enqueue(binding, data_of(array), n, exact)


@entry(int64(int64, reference, boolean))
def dequeue_array(binding, items, exact):
    """Fill an array from its beginning; how many items, or a code."""
    b, array = Binding(binding), address_of(items)
    n = length_of(array, b.array_type, b.descr)
    if n < 0 or not writeable(array):
        return i64(NO_ARRAY)
    return _dequeue(binding, data_of(array), n, exact)


@entry(int64(int64, reference))
def enqueue_value(binding, item):
    """Put one integer of up to 63 bits in, for items of 64; 1, 0, or a code: NO_ARRAY for any other object."""
    if type_of(address_of(item)) != Binding(binding).int_type:
        return i64(NO_ARRAY)
    value = small_integer(address_of(item))
    if value < 0:
        return i64(NO_ARRAY)
    at = stack(8)
    store_u64(at, value)
    return _enqueue(binding, at, i64(1), True)


@kernel(inline=True)
def _dequeue_value(binding, default, signed):
    at = stack(8)
    if _dequeue(binding, at, i64(1), True) != 1:
        add_reference(address_of(default))
        return as_reference(address_of(default))
    value = load_i64(at)
    return as_reference(new_integer(value) if signed else new_integer(u64(value)))


@entry(reference(int64, reference))
def dequeue_value(binding, default):
    """Take one unsigned 64-bit value; ``default`` when there is none.  Not for bindings whose patience ends."""
    return _dequeue_value(binding, default, False)


@entry(reference(int64, reference))
def dequeue_signed(binding, default):
    """:func:`dequeue_value`, when items are signed."""
    return _dequeue_value(binding, default, True)


@entry(int64(int64, reference))
def enqueue_object(binding, thing):
    """Put one object in, of which the ring then has a reference; 1, 0, or a code."""
    at = stack(8)
    store_u64(at, address_of(thing))
    count = _enqueue(binding, at, i64(1), True)
    if count == 1:
        add_reference(address_of(thing))
    return count


@entry(reference(int64, reference))
def dequeue_object(binding, default):
    """Take one object; ``default`` when there is none."""
    at = stack(8)
    if _dequeue(binding, at, i64(1), True) == 1:
        return as_reference(load_i64(at))  # the ring's reference is handed on
    add_reference(address_of(default))
    return as_reference(address_of(default))


@entry(int64(int64, reference, boolean))
def enqueue_objects(binding, things, exact):
    """Put the items of a list in; how many, or a code: NO_ARRAY for any other object."""
    listed = address_of(things)
    if type_of(listed) != Binding(binding).list_type:
        return i64(NO_ARRAY)
    items = list_items(listed)
    count = _enqueue(binding, items, list_length(listed), exact)
    for i in range(count):
        # The GIL is held: nobody can have taken one, and let go of it, before the ring has its reference.
        add_reference(load_i64(items + 8 * i))
    return count


@entry(reference(int64, int64, boolean))
def dequeue_objects(binding, n, exact):
    """A list of up to ``n`` objects, empty when there are none."""
    ring = Binding(binding).ring
    there = used(ring) if ring != 0 else i64(0)  # the GIL is held: nobody takes any of these before us
    n = min(n, there) if not exact else n if n <= there else i64(0)
    listed = new_list(n)
    if listed == 0:
        return as_reference(listed)  # no memory, which Python has noted
    count = max(_dequeue(binding, list_items(listed), n, exact), i64(0)) if n > 0 else i64(0)
    cut_list(listed, count, n)  # the places that stayed empty
    return as_reference(listed)


@entry(int64(int64, int64, int64, boolean))
def hold(binding, side, n, exact):
    """Start: reserve up to ``n`` slots (PROD), or look at up to ``n`` items (CONS), for this thread to finish.

    How many, or a code.  They begin at the ``tail`` of that end, which must be ``ST`` or ``HTS``.
    """
    b = Binding(binding)
    if b.ring == 0:
        return i64(GONE)
    r, at = Ring(b.ring), intent_of(b.member, side)
    if side == PROD and load_acquire(r, "closed") != 0:
        return i64(SHUT)
    if not begin(b.ring, at):
        return i64(UNABLE)
    if side == PROD:
        count, _, _, _ = enqueue_places(b.ring, n, i64(r.size), exact, r.prod_sync, at)
        first = load_relaxed(r.prod, "tail")
    else:
        count, _, _, _ = dequeue_places(b.ring, n, i64(r.size), exact, r.cons_sync, at)
        first = load_relaxed(r.cons, "tail")
    if count == 0:
        end(at)
        return i64(0)
    intent = Intent(at)
    intent.first, intent.count, intent.thread = first, count, sys_thread()
    store_release(intent, "state", HELD)
    return count


@entry(int64(int64, int64, int64))
def finish_hold(binding, side, k):
    """Finish: show, or take, the first ``k`` and give the rest back; how many, or GONE."""
    b = Binding(binding)
    if b.ring == 0:
        return i64(GONE)
    m, at = Member(b.member), intent_of(b.member, side)
    if load_acquire(Intent(at), "state") != HELD:  # a recovery gave it back
        return i64(UNABLE)
    if side == PROD:
        done = enqueue_commit(b.ring, k)
        m.enqueued += u64(done)
        m.enqueues += u64(1)
    else:
        done = dequeue_finish(b.ring, k)
        m.dequeued += u64(done)
        m.dequeues += u64(1)
    end(at)
    wake(b.ring, side)
    return done


@kernel(inline=True)
def _position(end, sync):
    """Up to where an end has claimed."""
    if sync == ST:
        return load_acquire(end, "tail")
    if sync == HTS:
        return load_acquire(end, "head")
    return load_acquire(end, "position")


@kernel
def available(ring, side):
    """Slots free for producers (PROD), or items there for consumers (CONS), that nobody has claimed."""
    r = Ring(ring)
    if side == PROD:
        there = r.capacity - u32(_position(r.prod, r.prod_sync) - load_acquire(r.cons, "tail"))
    else:
        there = load_acquire(r.prod, "tail") - _position(r.cons, r.cons_sync)
    # Claims made between the two loads can make it negative.
    return i64(u32(there)) if u32(there) <= r.capacity else i64(0)


@entry(int64(int64))
def count_used(ring):
    """How many items are in a ring."""
    return used(ring)


@entry(int64(int64, int64, int64, int64, int64), nogil=True)
def wait(binding, side, n, timeout_ns, spin_ns):
    """Wait until ``n`` slots (PROD) or items (CONS) are there: READY, TIME_OVER, SHUT, or GONE.

    Spins for ``spin_ns``, then sleeps until the other side's tail moves.  It may return before the time is over.
    """
    ring = Binding(binding).ring
    if ring == 0:
        return i64(GONE)
    r = Ring(ring)
    start = monotonic_ns()
    now, spins = start, 0
    while True:
        theirs = r.cons if side == PROD else r.prod
        seen = load_acquire(theirs, "tail")
        if available(ring, side) >= n:
            return i64(READY)
        if load_acquire(r, "closed") != 0:
            # Looked at again behind the mark, for what came in before it counts.
            return i64(READY) if available(ring, side) >= n else i64(SHUT)
        if now - start >= timeout_ns:
            return i64(TIME_OVER)
        if now - start < spin_ns:
            for _ in range(32):
                pause()
            spins += 1
            if spins % 8 == 0:
                sys_yield()
        else:
            if side == PROD:
                store_relaxed(r, "prod_asleep", 1)
            else:
                store_relaxed(r, "cons_asleep", 1)
            fence_full()  # N0, N1
            # The kernel compares the tail once more: if it moved since, there is no sleep.
            if load_relaxed(theirs, "tail") == seen:
                if futex_wait(address(theirs), seen, timeout_ns - (now - start)) == -4:  # EINTR: Python has a signal
                    return i64(TIME_OVER)
        now = monotonic_ns()


@entry(boolean(int64, int64, int64), nogil=True)
def finish_claim(binding, side, patience):
    """:func:`wirespeed.core.member.finish` of a binding's own claim at a side."""
    b = Binding(binding)
    return b.ring == 0 or finish(b.ring, intent_of(b.member, side), side, patience)


@entry(boolean(int64, int64, int64, int64))
def abandon_claim(binding, side, thread, gone):
    """:func:`wirespeed.core.member.abandon` of a binding's own claim at a side."""
    b = Binding(binding)
    if b.ring == 0:
        return True
    at = intent_of(b.member, side)
    count = u64(Intent(at).count)
    if not abandon(at, thread, gone):
        return False
    m = Member(b.member)  # what was counted has not happened
    if side == PROD:
        m.enqueued -= count
        m.enqueues -= u64(1)
    else:
        m.dequeued -= count
        m.dequeues -= u64(1)
    return True
