"""The loop that a worker runs: one kernel, from the start of a run to its end.

Theory of operation
-------------------
A round asks each source for a burst and hands it along the outputs numbered 0, each stage called by pointer, in place.
What stages put into their other outboxes is then taken, outbox by outbox in the order of the graph, and handed along
in the same way, so one round moves every packet to a sink.  What a sink refuses waits in its *pending* box and is
offered again; while something waits there, the sources of that group of nodes are not asked (back-pressure loses
nothing), nor are stages that hold packets.  These are else called with ``n = 0`` once a round; one that says that it is
full holds back the sources of its group in the same way.

Every 16th round is timed, so that cycles a packet are known at no cost.  An idle worker spins for a moment, then
sleeps on its file descriptors, but those of sources that are not due yet, until there is traffic, a source is due, or a
millisecond has passed; while a stage holds packets, for a tenth of that, on the stage's bell if it has one.

Thread rules: the record is written by its worker, except ``stop``, and read by anyone; counters are plain 64-bit
words.  The worker leaves when ``stop`` is set, or when all sources are done and nothing is on its way.
"""

import numpy as np

from wirespeed.core.free import free_bulk
from wirespeed.core.stage import FUNCTION_ERROR, OUTPUT_FULL, WAITS, WORKED, Head, Outbox, free_box
from wirespeed.jit.atomics import load_acquire, load_relaxed, store_relaxed, store_release
from wirespeed.jit.intrinsics import call_stage, copy, cycles, load_u64, move, pause, store_u64
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.layout import address, layout
from wirespeed.jit.libc import futex_wait, monotonic_ns, sys_poll, sys_sleep
from wirespeed.jit.types import int64

i16, i64, u64, u32 = np.int16, np.int64, np.uint64, np.uint32
SOURCE, STAGE, SINK = 0, 1, 2
BLOCKED, HELD_BACK = 1, 2  # why the sources of a group are not asked: a sink has packets pending, or a stage is full
SAMPLE = 16  # one round in so many is timed
SPIN_ROUNDS = 256  # idle rounds before the worker sleeps
SLEEP_NS = 1_000_000  # longest sleep, so that a signal that was missed costs a millisecond
LINGER_NS = 200_000_000  # how long a stopped worker waits for the next packet that is on its way to move,
MOST_LINGER_NS = 10 * LINGER_NS  # and for all of them

Node = layout(
    "Node",
    [
        # filled before the worker starts
        ("code", "i8"),
        ("state", "i8"),
        ("next", "i8"),  # number of the node behind output 0, or -1
        ("role", "u4"),
        ("group", "u4"),
        # written by the worker
        ("packets_in", "u8"),
        ("packets_out", "u8"),  # of a stage: output 0; of a source: all; of a sink: taken
        ("refused", "u8"),
        ("cycles", "u8"),  # in timed rounds
        ("timed", "u8"),  # packets in timed rounds
        (None, 8),
        ("pending", Outbox),  # of a sink: what it refused
        # filled before the worker starts
        ("fds", "i8"),  # address of its own in the worker's list, struct pollfd[n_fds]
        ("n_fds", "i8"),
    ],
    size=128,
)
NODE = Node.size

# One entry for each output that is not number 0, in the order in which they are emptied.
Edge = layout("Edge", [("box", "i8"), ("target", "i8"), ("packets", "u8"), (None, 8)])
EDGE = Edge.size
Word = layout("Word", [("value", "u4")])
# struct pollfd: poll(2), which passes over one whose number is negative.
PollFd = layout("PollFd", [("fd", "i4"), ("events", "i2"), ("revents", "i2")])
POLLFD = PollFd.size
assert POLLFD == 8

Worker = layout(
    "Worker",
    [
        # filled before the worker starts
        ("nodes", "i8"),
        ("n_nodes", "i8"),
        ("edges", "i8"),
        ("n_edges", "i8"),
        ("burst", "i8"),  # address of the burst that sources fill
        ("burst_size", "i8"),
        ("drops", "i8"),  # the drop outbox
        ("cache", "i8"),
        ("fds", "i8"),  # struct pollfd[n_fds]
        ("n_fds", "i8"),
        ("blocked", "i8"),  # u8[groups]: 0, or why the sources of the group are not asked
        ("groups", "i8"),
        ("busy", "i8"),  # never sleep
        ("n_sources", "i8"),  # the first nodes are the sources
        (None, 16),
        # written by the worker
        ("loops", "u8"),
        ("at", "i8"),  # number of the node it is in
        ("idle_cycles", "u8"),
        ("idle_since", "u8"),  # when the idle time that is now going on began, or 0
        ("begin", "u8"),  # in cycles
        ("end", "u8"),  # in cycles, or 0 while it runs
        ("pending", "i8"),  # whether a sink refused packets or a stage holds some, so that :func:`retry` is needed
        (None, 8),
        # written by others
        ("stop", "u4"),
        (None, 60),
    ],
)
assert Worker.offset("loops") % 64 == 0 and Worker.offset("stop") % 64 == 0


@kernel(inline=True)
def invoke(w, number, node, burst, n, timed):
    """Call one node, timed or not; return how many packets it left in the burst."""
    store_relaxed(w, "at", number)
    if timed:
        start = cycles()
        left = call_stage(node.code, node.state, burst, n)
        passed = left if node.role == SOURCE else n
        if passed > 0:  # what a source costs while it has nothing is no packet's cost
            node.cycles += u64(cycles() - start)
            node.timed += u64(passed)
    else:
        left = call_stage(node.code, node.state, burst, n)
    if left < 0:
        lost = i64(0) if node.role == SOURCE else n
        at = Head(node.state).reasons + 8 * FUNCTION_ERROR
        store_u64(at, load_u64(at) + u64(lost))
        left = i64(0)
    if Outbox(w.drops).length > 0:
        free_box(w.cache, w.drops)
    return left


@kernel
def postpone(w, node, burst, n):
    """Put what a sink does not take now into its pending box; what finds no room there is dropped and counted."""
    box = node.pending
    w.pending = 1
    room = min(n, box.capacity - box.length)
    copy(box.address + 8 * box.length, burst, 8 * room)
    box.length += room
    if room < n:
        at = Head(node.state).reasons + 8 * OUTPUT_FULL
        store_u64(at, load_u64(at) + u64(n - room))
        free_bulk(w.cache, burst + 8 * room, n - room)


@kernel(inline=True)
def hand_along(w, number, burst, n, timed):
    """Hand a burst from node to node along the outputs 0, until a sink has it or nothing is left."""
    nodes = w.nodes
    while n > 0 and number >= 0:
        node = Node(nodes + NODE * number)
        node.packets_in += u64(n)
        if node.role == SINK:
            if node.pending.length > 0:  # what waits there came first
                postpone(w, node, burst, n)
                return
            left = invoke(w, number, node, burst, n, timed)
            node.packets_out += u64(n - left)
            if Head(node.state).held > 0:
                w.pending = 1
            if left > 0:
                node.refused += u64(left)
                postpone(w, node, burst, left)
            return
        n = invoke(w, number, node, burst, n, timed)
        node.packets_out += u64(n)
        if Head(node.state).held > 0:
            w.pending = 1
        number = node.next


@kernel
def take_edges(w, timed):
    """Empty every outbox behind the outputs that are not number 0; return how many packets were taken."""
    taken = i64(0)
    for e in range(w.n_edges):
        edge = Edge(w.edges + EDGE * e)
        box = Outbox(edge.box)
        done = i64(0)
        # A stage behind this outbox cannot append to it: arrows lead forward only.
        while done < box.length:
            n = min(box.length - done, w.burst_size)
            hand_along(w, edge.target, box.address + 8 * done, n, timed)
            done += n
        box.length = 0
        edge.packets += u64(done)
        taken += done
    return taken


@kernel
def offer_pending(w):
    """Offer pending packets to their sinks again; note which groups are blocked.  Returns how many packets moved."""
    moved = i64(0)
    for number in range(w.n_nodes):
        node = Node(w.nodes + NODE * number)
        box = node.pending
        if box.length == 0:
            continue
        n = min(box.length, w.burst_size)
        left = invoke(w, number, node, box.address, n, False)
        node.packets_out += u64(n - left)
        node.refused += u64(left)
        move(box.address + 8 * left, box.address + 8 * n, 8 * (box.length - n))
        box.length -= n - left
        moved += n - left
        if box.length > 0:
            w.pending = 1
            store_u64(w.blocked + 8 * i64(node.group), u64(BLOCKED))
    return moved


@kernel
def tick(w):
    """Call all that hold packets, unless a sink of their group would not take them; return how many packets moved."""
    moved = i64(0)
    for number in range(w.n_sources, w.n_nodes):
        node = Node(w.nodes + NODE * number)
        if Head(node.state).held == 0:
            continue
        w.pending = 1
        if load_u64(w.blocked + 8 * i64(node.group)) == BLOCKED:
            continue
        # The burst of the sources is free here: nothing is under way between two rounds.
        left = invoke(w, number, node, w.burst, i64(0), False)
        if node.role == STAGE and left > 0:
            node.packets_out += u64(left)
            hand_along(w, node.next, w.burst, left, False)
            moved += left
        if Head(node.state).full > 0:
            store_u64(w.blocked + 8 * i64(node.group), u64(HELD_BACK))
    return moved


@kernel
def retry(w):
    """Bring on what was left behind by the rounds before; return how many packets moved."""
    w.pending = 0
    for g in range(w.groups):
        store_u64(w.blocked + 8 * g, u64(0))
    return offer_pending(w) + tick(w)


@kernel(inline=True)
def ask_sources(w, timed):
    """Ask each source that is neither done nor blocked for a burst; return (whether any worked, sources not done)."""
    got, alive = i64(0), i64(0)
    several = w.n_edges > 0 and w.n_sources > 1
    for number in range(w.n_sources):
        node = Node(w.nodes + NODE * number)
        if Head(node.state).done != 0:
            continue
        alive += 1
        if load_u64(w.blocked + 8 * i64(node.group)) == 0:
            n = invoke(w, number, node, w.burst, w.burst_size, timed)
            node.packets_out += u64(n)
            got += n
            if n == 0 and Head(node.state).due_ns == WORKED:
                got += 1  # a round that only counted is not an idle one
            hand_along(w, node.next, w.burst, n, timed)
            if n > 0 and several:  # so that many sources together do not fill an outbox
                take_edges(w, timed)
    return got, alive


@kernel
def waiting(w):
    """How many packets are on their way in pending boxes, outboxes and stages."""
    n = i64(0)
    for e in range(w.n_edges):
        n += Outbox(Edge(w.edges + EDGE * e).box).length
    for number in range(w.n_nodes):
        node = Node(w.nodes + NODE * number)
        n += node.pending.length
        if Head(node.state).full != WAITS:  # for what waits for more to come, no more comes
            n += Head(node.state).held
    return n


@kernel
def doze(h, timeout):
    """Sleep until a stage's bell says that packets are back; one who was about to ring it when we looked may not do so."""
    rung = load_relaxed(Word(h.bell), "value")
    store_relaxed(Word(h.asleep), "value", 1)
    futex_wait(h.bell, i64(rung), timeout)
    store_relaxed(Word(h.asleep), "value", 0)


@kernel
def turn_over(w, now):
    """Have the descriptors of sources that are not due yet passed over by a poll, or looked at again by the next call."""
    for number in range(w.n_sources):
        node = Node(w.nodes + NODE * number)
        if Head(node.state).due_ns > now or Head(node.state).done != 0:
            for i in range(node.n_fds):
                entry = PollFd(node.fds + POLLFD * i)
                entry.fd = ~entry.fd
                entry.revents = i16(0)


@kernel
def sleep(w):
    """Sleep until traffic, until a source is due, or for a millisecond; less while a stage holds packets."""
    timeout, bell = i64(SLEEP_NS), i64(0)
    now = monotonic_ns()
    blocked = False
    for number in range(w.n_nodes):
        node = Node(w.nodes + NODE * number)
        h = Head(node.state)
        if h.due_ns != 0 and h.done == 0:
            timeout = min(timeout, h.due_ns - now)
        if node.role == STAGE and h.held > 0:
            timeout = min(timeout, i64(SLEEP_NS // 10))
            if h.bell != 0:
                bell = node.state
        if load_u64(w.blocked + 8 * i64(node.group)) == BLOCKED:
            blocked = True
    if timeout <= 0:
        return
    # What a sink does not take, or a source may not give yet, is readable all the time and would end the sleep at once.
    if blocked:
        sys_sleep(min(timeout, i64(SLEEP_NS // 10)))
    elif bell != 0:
        doze(Head(bell), timeout)
    else:
        turn_over(w, now)
        sys_poll(w.fds, w.n_fds, timeout)
        turn_over(w, now)


@kernel
def finish(w):
    """After the last round: move what is on its way, for a while, then free what no sink took and count it."""
    begin = monotonic_ns()
    now, moved = begin, begin
    while waiting(w) > 0 and now - moved < LINGER_NS and now - begin < MOST_LINGER_NS:
        now = monotonic_ns()
        if retry(w) + take_edges(w, False) > 0:
            moved = now
        else:
            sys_sleep(i64(SLEEP_NS // 10))
    for number in range(w.n_nodes):
        node = Node(w.nodes + NODE * number)
        box = node.pending
        if box.length > 0:
            at = Head(node.state).reasons + 8 * OUTPUT_FULL
            store_u64(at, load_u64(at) + u64(box.length))
            free_box(w.cache, address(box))


@entry(int64(int64), nogil=True)
def work(worker):
    """Run a worker until it is told to stop, or nothing more can come; return how many rounds it made."""
    w = Worker(worker)
    w.begin = u64(cycles())
    idle, rounds = i64(0), i64(0)
    seen_idle = u64(0)  # when the last idle round was over
    any_edge = w.n_edges > 0
    while load_acquire(w, "stop") == 0:
        rounds += 1
        store_relaxed(w, "loops", rounds)
        timed = rounds % SAMPLE == 0
        moved = i64(0)
        if w.pending != 0:
            moved += retry(w)
        got, alive = ask_sources(w, timed)
        moved += got
        if any_edge:
            moved += take_edges(w, timed)
        if moved > 0:
            if idle > 0:
                w.idle_cycles += seen_idle - w.idle_since
                w.idle_since = u64(0)
                idle = i64(0)
            continue
        if alive == 0 and waiting(w) == 0:
            break
        if idle == 0:
            w.idle_since = u64(cycles())
        idle += 1
        if idle < SPIN_ROUNDS or w.busy != 0:
            pause()
        else:
            sleep(w)
        seen_idle = u64(cycles())
    finish(w)
    if w.idle_since != 0:
        w.idle_cycles += u64(cycles()) - w.idle_since
        w.idle_since = u64(0)
    store_release(w, "end", u64(cycles()))
    return rounds
