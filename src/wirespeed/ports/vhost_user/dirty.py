"""The log of the pages of a guest that were written to, by which it is moved to another machine while it runs.

Theory of operation
-------------------
A bit for each page of 4 kB of the guest's addresses, in memory of the other side's, which reads and clears it at any
time.  A bit is set *after* its page was written, so who clears it sees what was written, or finds it set again.  Pages
come in runs, and a lock on a line that others use is expensive: marks are collected, a word of the log each, and are
written at the end of a call, behind all that they are for.  Where there are more words than marks the oldest way is
taken: each bit at once.

What lies beyond the log's end is not logged.

*Source:* the vhost-user protocol, "Migration"; virtio does not know of it.
"""

import numpy as np

from wirespeed.jit.atomics import fetch_or
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.ports.virtio.queue import MARK, MARKS, Mark, Virtqueue

i64, u64, u8 = np.int64, np.uint64, np.uint8
PAGE_BITS = 12
Word = layout("DirtyWord", [("bits", "u8")])
Byte = layout("DirtyByte", [("bits", "u1")])


@kernel
def mark(queue, guest, size):
    """Note that ``size`` bytes from an address of the guest's were written."""
    if size <= 0:
        return
    q = Virtqueue(queue)
    page = i64(u64(guest) >> u64(PAGE_BITS))
    last = i64((u64(guest) + u64(size - 1)) >> u64(PAGE_BITS))
    while page <= last:
        word = page >> 6
        if 8 * (word + 1) <= q.log_size:
            _mark_word(queue, word, u64(1) << u64(page & 63))
        elif page >> 3 < q.log_size:
            # Bounds: a byte of the last word, of which the log has not all.
            fetch_or(Byte(q.log_base + (page >> 3)), "bits", u8(u64(1) << u64(page & 7)))
        page += 1


@kernel(inline=True)
def _mark_word(queue, word, bits):
    q = Virtqueue(queue)
    n = q.marked
    for i in range(n):
        m = Mark(q.dirty + MARK * i)
        if m.word == word:
            m.bits |= bits
            return
    if n < MARKS:
        m = Mark(q.dirty + MARK * n)
        m.word = word
        m.bits = bits
        q.marked = n + 1
    else:
        fetch_or(Word(q.log_base + 8 * word), "bits", bits)


@kernel
def write_marks(queue):
    """Write what was noted into the log."""
    q = Virtqueue(queue)
    for i in range(q.marked):
        m = Mark(q.dirty + MARK * i)
        # Bounds: mark() saw that the log has the word.
        fetch_or(Word(q.log_base + 8 * m.word), "bits", m.bits)
    q.marked = 0
