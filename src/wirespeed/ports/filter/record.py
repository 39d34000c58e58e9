"""A filter as kernels see it: which machine code a packet's link type has, and what it says of the packet.

Theory of operation
-------------------
A table, shared by the workers of a run, has an entry for each link type.  One that is still empty is asked for when the
first packet of its kind is met: the kernel calls back into Python, which compiles the program and fills the entry, so
that no packet is judged by another link type's program and none waits for one that never comes.  Each worker has a record
of its own, which remembers the entry that it used last.

A packet in several segments is shown to the program in one piece: as many bytes from its front as the program can look
at are copied to the record's scratch, unless the first segment has them all.

Thread rules: a record is its worker's.  Entries are written by whichever thread holds the GIL, once.
Order pairs: E0, the release store of an entry's ``code``, its last field; E1, the acquire load of it, before ``reach``.
"""

import numpy as np

from wirespeed.core.packet import Packet, copy_out, data
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.bpf import call_filter
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.python import call_address

i64 = np.int64
LINKS = 512  # link types that a table has entries for; the highest that is assigned is below 300
REFUSED = 1  # code of a link type that the filter cannot be applied to; no address of a function

Entry = layout("FilterEntry", [("code", "i8"), ("reach", "i8")])
ENTRY = Entry.size

Record = layout(
    "FilterRecord",
    [
        # filled when it is placed
        ("inner", "i8"),  # address of the code of the port's own stage
        ("table", "i8"),  # address of Entry[LINKS]
        ("ask", "i8"),  # address of a C function that fills the entry of the link type that it is called with
        ("scratch", "i8"),  # address of reach.MOST bytes
        ("reason", "i8"),  # number of the drop reason ``filtered``; the next is ``filter_link``
        # written by the worker
        ("link", "i8"),  # the link type met last,
        ("code", "i8"),  # its code,
        ("reach", "i8"),  # and how many bytes that looks at
        ("due_ns", "i8"),  # what the port's own stage had in its head
        (None, 56),
    ],
)
assert Record.size == 128

DROPS = {
    "filtered": "The filter does not match it",
    "filter_link": "The filter cannot be applied to its link type",
}


@kernel
def publish(entry, code, reach):
    """Fill an entry."""
    e = Entry(entry)
    e.reach = reach
    store_release(e, "code", code)  # E0


@kernel
def turn_to(record, link):
    """Take the code of another link type; have it made when nobody met that before."""
    r = Record(record)
    r.link = link
    r.code = REFUSED
    if link < LINKS:
        e = Entry(r.table + ENTRY * link)
        if load_acquire(e, "code") == 0:  # E1 pairs with E0
            call_address(r.ask, link)
        code = load_acquire(e, "code")  # E1
        if code != 0:
            r.code = code
            r.reach = e.reach


@kernel
def gather(record, handle):
    """Copy the front of a packet in several segments to the scratch; how many bytes that are."""
    r = Record(record)
    return copy_out(handle, i64(0), r.reach, r.scratch)


@kernel(inline=True)
def judge(record, handle):
    """Whether a packet is not to pass: 0 when the filter matches it, 1 when it does not, 2 when it cannot be applied."""
    r = Record(record)
    p = Packet(handle)
    link = i64(p.link)
    if link != r.link:
        turn_to(record, link)
    code = r.code
    if code == REFUSED:
        return i64(2)
    frame, captured, total = data(p), i64(p.length), i64(p.total)
    if captured < total and captured < r.reach:
        captured = gather(record, handle)
        frame = r.scratch
    return i64(0) if call_filter(code, frame, captured, max(i64(p.wire), total)) != 0 else i64(1)
