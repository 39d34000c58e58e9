"""The exact match cache of a worker: from a key, the live words of a flow, to its path.

Theory of operation
-------------------
A *bucket* is two entries side by side, of a power of two bytes each: one word of version and path, then the key.  A key
is only ever in its bucket, which is chosen by a seeded hash of the key, or by the flow hash that the port gave.  An
entry counts when its key is the same and its version is the switch's.  One that is a few versions old is compared with
what those versions changed (the log of :mod:`wirespeed.switch.memory`): when they do not concern its flow it is brought
up to date, else it is no use.  So a change of the rules is effective at once and costs only the flows that it is about.

``k`` is the number of words of a key; in specialised kernels a constant, so that loops over a key unroll.

Thread rules: a cache is for one worker.
"""

import numpy as np

from wirespeed.jit.atomics import fence_acquire, load_acquire, load_relaxed
from wirespeed.jit.intrinsics import fill, load_i64, load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.switch.fields import FLOW_SIZE
from wirespeed.switch.memory import (
    ALL_CHANGED,
    CHANGE,
    CHANGE_MASKS,
    CHANGE_VALUES,
    LOG,
    SOME_CHANGED,
    Change,
    LiveWord,
)

i64, u32, u64 = np.int64, np.uint32, np.uint64
WAYS = 2
MOST_BEHIND = 16  # versions that an entry may be behind and be brought up to date
_LOW = u64(0xFFFFFFFF)
_GOLDEN = u64(0x9E3779B97F4A7C15)

Cache = layout(
    "SwitchCache",
    [
        ("entries", "i8"),
        ("mask", "u8"),  # buckets less one
        ("seeds", "i8"),  # odd u8[WORDS]
        (None, 8),
        ("insert", "u8"),  # an insertion is done when a random number of 32 bits is below this
        ("random", "u8"),
        ("era", "i8"),  # version >> 31: another one, and what is kept means nothing
        (None, 8),
        # written by the worker
        ("hits", "u8"),
        ("misses", "u8"),
        ("refreshed", "u8"),  # hits of entries that were brought up to date
        ("inserted", "u8"),
        ("evicted", "u8"),
        ("skipped", "u8"),  # insertions that chance did not want
        (None, 16),
    ],
)


@kernel(inline=True)
def entry_size(k):
    """Bytes of an entry with a key of ``k`` words."""
    return i64(32) if k <= 3 else i64(64) if k <= 7 else i64(128) if k <= 15 else i64(256)


@kernel(inline=True)
def key_hash(seeds, key, k):
    """A hash of a key by random odd multipliers; its upper half is the better one."""
    total = u64(0)
    for j in range(k):
        word = load_u64(key + 8 * j)
        total += (word ^ word >> u64(32)) * load_u64(seeds + 8 * j)
    return total


@kernel(inline=True)
def flow_hash(value):
    """The same of a flow hash that the port gave."""
    return (u64(value) + u64(1)) * _GOLDEN


@kernel(inline=True)
def bucket_of(c, total, k):
    """The address of a bucket."""
    return c.entries + i64(total >> u64(32) & c.mask) * (WAYS * entry_size(k))


@kernel(inline=True)
def difference(entry, key, k):
    """0 when an entry has this key."""
    odd = u64(0)
    for j in range(k):
        odd |= load_u64(entry + 8 + 8 * j) ^ load_u64(key + 8 * j)
    return odd


@kernel(inline=True)
def look(bucket, key, version, k):
    """The number of the path of a key, or 0; ``version`` is the switch's, modulo 2^32."""
    head = load_u64(bucket)
    if difference(bucket, key, k) | ((head ^ version) & _LOW):
        bucket += entry_size(k)  # most are in the first one, where insertions go while there is room
        head = load_u64(bucket)
        if difference(bucket, key, k) | ((head ^ version) & _LOW):
            return i64(0)
    return i64(head >> u64(32))


@kernel
def concerns(log, words, key, k, since, version):
    """Whether a version behind ``since``, up to ``version``, changed what happens to a key."""
    for v in range(since + 1, version + 1):
        change = log + CHANGE * (v % LOG)
        c = Change(change)
        if load_acquire(c, "version") != v:  # V4
            return True
        kind, odd = c.kind, u64(0)
        for j in range(k):
            word = 8 * LiveWord(words + 16 * j).word
            odd |= (load_u64(key + 8 * j) ^ load_u64(change + CHANGE_VALUES + word)) & load_u64(
                change + CHANGE_MASKS + word
            )
        fence_acquire()  # another version may have been written over it meanwhile
        if load_relaxed(c, "version") != v:  # V4
            return True
        if kind == ALL_CHANGED or (kind == SOME_CHANGED and odd == u64(0)):
            return True
    return False


@kernel
def look_again(c, bucket, key, version, log, words, k):
    """The number of the path of a key whose entry is of an older version that still holds, or 0."""
    for way in range(WAYS):
        entry = bucket + way * entry_size(k)
        head = load_u64(entry)
        if head >> u64(32) != u64(0) and difference(entry, key, k) == u64(0):
            behind = (version - i64(head & _LOW)) & i64(0xFFFFFFFF)
            if behind > MOST_BEHIND or concerns(log, words, key, k, version - behind, version):
                return i64(0)
            store_u64(entry, head & ~_LOW | u64(version) & _LOW)
            c.refreshed += u64(1)
            return i64(head >> u64(32))
    return i64(0)


@kernel(inline=True)
def chance(c):
    """32 random bits; xorshift, which is good enough to choose by."""
    x = c.random
    x ^= x << u64(13)
    x ^= x >> u64(7)
    x ^= x << u64(17)
    c.random = x
    return x >> u64(32)


@kernel
def insert(c, bucket, key, path, version, k):
    """Put a key and its path into its bucket: in place of the same key, of nothing, of an older version, or of chance."""
    if chance(c) >= c.insert:
        c.skipped += u64(1)
        return
    chosen = i64(-1)
    for way in range(WAYS):
        entry = bucket + way * entry_size(k)
        if load_u64(entry) >> u64(32) != u64(0) and difference(entry, key, k) == u64(0):
            chosen = entry
    if chosen < 0:
        for way in range(WAYS):
            entry = bucket + way * entry_size(k)
            head = load_u64(entry)
            if chosen < 0 and (head >> u64(32) == u64(0) or (head ^ u64(version)) & _LOW != u64(0)):
                chosen = entry
        if chosen < 0:
            chosen = bucket + i64(chance(c) & u64(1)) * entry_size(k)
        if load_u64(chosen) >> u64(32) != u64(0):
            c.evicted += u64(1)
    store_u64(chosen, u64(path) << u64(32) | u64(version) & _LOW)
    for j in range(k):
        store_u64(chosen + 8 + 8 * j, load_u64(key + 8 * j))
    c.inserted += u64(1)


@kernel
def clear(c, k):
    """Forget everything; keys are of ``k`` words from now on."""
    fill(c.entries, 0, (i64(c.mask) + 1) * WAYS * entry_size(k))


@kernel
def gather(words, k, flow, key):
    """Make the key of a flow; ``words`` is the address of LiveWord[k]."""
    for j in range(k):
        w = LiveWord(words + 16 * j)
        store_u64(key + 8 * j, load_u64(flow + 8 * w.word) & w.mask)


@kernel
def scatter(words, k, key, flow):
    """Make a flow of a key, in which all that is not live is 0."""
    fill(flow, 0, FLOW_SIZE)
    for j in range(k):
        store_u64(flow + 8 * load_i64(words + 16 * j), load_u64(key + 8 * j))
