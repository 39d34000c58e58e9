"""The stage that makes packets of a capture.

Theory of operation
-------------------
All workers share one feed (:mod:`wirespeed.ports.pcap_feed`).  A worker takes a burst from it under the feed's lock and
copies the bytes into packets of its own cache, once.

A frame larger than a buffer becomes a chain.  One that needs more than half of the pool is dropped, for it might never
find as many buffers free.
"""

import numpy as np

from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.free import free_segments
from wirespeed.core.lock import lock, unlock
from wirespeed.core.packet import HEADROOM, INTERFACE, META, Packet, data, reset
from wirespeed.core.pool import Pool, alloc, put_bulk
from wirespeed.core.stage import FIRST_REASON, Head, count_drops
from wirespeed.jit.intrinsics import load_handle, load_i64, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.net.capture.options import carry
from wirespeed.net.capture.scan import ENTRY, Entry
from wirespeed.net.capture.window import SLACK
from wirespeed.ports.grab import grab
from wirespeed.ports.pcap_copy import WHOLE, copy_blocks
from wirespeed.ports.pcap_feed import AT_ONCE, Feed, more, must_wait, note, pass_on, rests, start_clock

u16, i64, u64 = np.uint16, np.int64, np.uint64
DROPS = {"too_long": "The frame needs more than half of the pool's packets"}
TOO_LONG = FIRST_REASON
assert SLACK >= WHOLE - 1

State = layout("CaptureSource", [("head", Head), ("feed", "i8"), ("shared", "i8"), (None, 48)])


@kernel(inline=True)
def describe(p, e):
    """Write what is known of a packet beside its bytes."""
    p.wire = e.wire
    p.time = e.time
    p.link = e.link
    if e.interface != 0:
        p.interface = e.interface
        p.flags = INTERFACE


@kernel
def attach_options(f, cache, handle, e):
    """Give a packet its options along; False when there is no packet to carry them."""
    meta = alloc(cache)
    if meta == 0:
        return False
    m, p = Packet(meta), Packet(handle)
    reset(m, 0)
    size, whole = carry(data(m), i64(m.capacity) - HEADROOM, e.options, i64(e.options_size), e.swapped != 0)
    if not whole:
        f.options_cut += 1
    m.length = size
    m.total = size
    if size == 0:
        free_segments(cache, meta)
        return True
    p.meta = meta
    p.flags = u16(p.flags | META)
    return True


@kernel
def make_long(f, cache, e):
    """A packet of any length, with its options; 0 when the pool has not enough left at the moment."""
    captured = i64(e.captured)
    handle = alloc_length(cache, captured)
    if handle == 0:
        return handle
    describe(Packet(handle), e)
    copy_in(handle, i64(0), captured, e.address)
    if e.options_size != 0 and not attach_options(f, cache, handle, e):
        free_segments(cache, handle)
        return i64(0)
    return handle


@kernel(inline=True)
def can_hold(cache, captured):
    """Whether a frame of so many bytes can be a packet: with half of the pool, all free."""
    pool = Pool(load_i64(cache))
    return captured <= pool.room - HEADROOM + (pool.size // 2 - 1) * pool.room


@kernel
def give_back(cache, handles, n):
    """Give packets back that were not needed; apart, so that this is compiled once."""
    put_bulk(cache, handles, n)


@kernel
def exchange(f, cache, burst, done, n, e):
    """Put a packet of any length in the place of the free one at ``done`` of a burst.

    Return how many packets the burst holds then: ``n``, fewer when the spare ones were all that the pool had, or
    ``done`` when those were not enough.
    """
    give_back(cache, burst + 8 * done, i64(1))
    handle = make_long(f, cache, e)
    if handle == 0:
        give_back(cache, burst + 8 * (done + 1), n - done - 1)
        n = done + 1
        handle = make_long(f, cache, e)
    store_i64(burst + 8 * done, handle)
    return n if handle != 0 else done


@kernel(inline=True)
def fill(f, state, burst, n):
    """Make packets of the next entries in the ``n`` free ones that ``burst`` holds; return how many.

    Those that are not needed go back to the pool.
    """
    head, scan = Head(state), f.scan
    cache = head.cache
    room = Pool(load_i64(cache)).room - HEADROOM
    first, count = scan.first, scan.count
    entry = scan.entries + ENTRY * first
    paced = f.pace != AT_ONCE
    now = start_clock(f) if paced else i64(0)
    done, total = i64(0), i64(0)
    while done < n and first < count:
        e = Entry(entry)
        captured = i64(e.captured)
        if paced and must_wait(f, state, e, now):
            break
        if captured <= room and e.options_size == 0:
            p = Packet(load_handle(burst + 8 * done))
            reset(p, captured)
            describe(p, e)
            # Bounds: there are as many bytes more behind the window's; the room behind the headroom begins a whole
            # number of blocks behind its record, whose stride is whole blocks too, and none of them is another's.
            copy_blocks(p.buffer + HEADROOM, e.address, captured)
            done += 1
            total += captured
        elif not can_hold(cache, captured):
            count_drops(state, TOO_LONG, 1)
        else:
            n = exchange(f, cache, burst, done, n, e)
            if n == done:
                break
            done += 1
            total += captured
        if paced:
            pass_on(f, e)
        entry += ENTRY
        first += 1
    scan.first = first
    head.bytes += u64(total)
    if paced:
        note(f, now, done, total)
    if done < n:
        give_back(cache, burst + 8 * done, n - done)
    return done


@kernel(inline=True)
def take(f, feed, state, burst, n):
    """Fill a burst from the feed."""
    scan = f.scan
    if f.resume != 0 and f.ended == 0 and rests(f, state):
        return i64(0)
    left = scan.count - scan.first
    if left == 0 and f.ended == 0:
        left = more(f, feed)
    if f.left >= 0:
        n = min(n, f.left)
        if f.left == 0:
            f.ended = 1
    n = min(n, left)
    if n == 0:
        if f.ended != 0:
            Head(state).done = 1
        return n
    n = grab(Head(state).cache, burst, n)
    n = fill(f, state, burst, n)
    if f.left >= 0:
        f.left -= n
    return n


@stage
def receive(state, burst, n):
    """Give the next packets of the capture, as many as are due."""
    s = State(state)
    s.head.due_ns = 0
    f = Feed(s.feed)
    if s.shared != 0:
        lock(f)
    n = take(f, s.feed, state, burst, n)
    if s.shared != 0:
        unlock(f)
    return n
