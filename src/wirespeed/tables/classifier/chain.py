"""Chains of entries, highest priority first, of the same priority the newest first.

An entry has two links, and a chain uses one of them in all of its entries: so that chains can be built aside of entries
that readers are walking over by the other link.

Thread rules: one thread writes, any number walk.  Order pairs: a link is stored with release and loaded with acquire; so is
the first entry, wherever it is kept, by whoever keeps it.
"""

import numpy as np

from wirespeed.jit.atomics import load_relaxed, store_release
from wirespeed.jit.kernel import kernel
from wirespeed.tables.classifier.entry import FOREVER, Entry, Link, tail_of

i64 = np.int64


@kernel
def join(first, entry, link):
    """Link an entry into a chain; whether it is to be the first one now, as its caller has to publish."""
    e = Entry(entry)
    before, after = i64(0), first
    while after != 0 and Entry(after).priority > e.priority:
        before, after = after, Link(after + link).to
    tail_of(entry).previous = before
    if after != 0:
        tail_of(after).previous = entry
    Link(entry + link).to = after
    if before == 0:
        return True
    store_release(Link(before + link), "to", entry)
    return False


@kernel
def leave(entry, link):
    """Unlink an entry, which readers may still be in; whether it was the first one, and the one behind it or 0."""
    before, after = tail_of(entry).previous, Link(entry + link).to
    if after != 0:
        tail_of(after).previous = before
    if before == 0:
        return True, after
    store_release(Link(before + link), "to", after)
    return False, after


@kernel
def crowded(first, link, most):
    """Whether a chain has ``most`` entries without an end."""
    n = i64(0)
    while first != 0 and n < most:
        n += 1 if load_relaxed(Entry(first), "until") == FOREVER else 0
        first = Link(first + link).to
    return n >= most
