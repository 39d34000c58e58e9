"""Mutated inputs by the batch: frames or whole capture files, each made out of one of a corpus by chance.

Everything about an input follows from the seed and its number, so that one which ended the process can be made again.
The kernels that make inputs and those that take them never call each other: a batch in memory is between them.
"""

import numpy as np

from tests.fuzz.inputs import CAPACITY, INPUT, Input
from wirespeed.jit.intrinsics import (
    bswap16,
    bswap32,
    copy,
    load_i64,
    load_u8,
    load_u64,
    move,
    stack,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u16, u32, u64 = np.int64, np.uint16, np.uint32, np.uint64

Corpus = layout(
    "FuzzCorpus",
    [
        ("inputs", "i8"),  # address of Input[count]
        ("count", "i8"),
        ("words", "i8"),  # address of i8[word_count]: values that lengths, types and numbers are set to
        ("word_count", "i8"),
        ("links", "i8"),  # address of i8[link_count]
        ("link_count", "i8"),
        ("unit", "i8"),  # bytes that fields are aligned to: 1 in frames, 4 in files
    ],
)
GOLDEN, FIRST_MIX, SECOND_MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64


@kernel(inline=True)
def draw(random, n):
    """A number below ``n``; ``random`` is the address of the generator's state."""
    state = u64(load_u64(random) + u64(GOLDEN))
    store_u64(random, state)
    state = (state ^ (state >> u64(30))) * u64(FIRST_MIX)
    state = (state ^ (state >> u64(27))) * u64(SECOND_MIX)
    return i64((state ^ (state >> u64(31))) >> u64(16)) % max(n, i64(1))


@kernel(inline=True)
def place(c, random, size):
    """An offset into an input; half of the time one near the beginning, where the headers are."""
    reach = min(size, i64(64)) if draw(random, 2) == 0 else size
    return draw(random, reach) // c.unit * c.unit


@kernel(inline=True)
def word(c, random):
    """One of the values that matter."""
    return load_i64(c.words + 8 * draw(random, c.word_count))


@kernel
def set_field(c, at, left, random):
    """Set a field of 1, 2 or 4 bytes to a value that matters or near what it was, in either byte order."""
    value = word(c, random)
    kind = draw(random, 4)
    if kind == 0 or left < 2:
        store_u8(at, value & 255)
    elif kind == 1 or left < 4:
        store_u16(at, u16(value) if draw(random, 2) else bswap16(u16(value)))
    elif kind == 2:
        store_u32(at, u32(value) if draw(random, 2) else bswap32(u32(value)))
    else:
        where = at + draw(random, 4)
        store_u8(where, u32(i64(load_u8(where)) + draw(random, 9) - 4) & 255)


@kernel
def put_piece(c, data, size, random):
    """Put a piece of some input of the corpus into this one; return the new size."""
    other = Input(c.inputs + INPUT * draw(random, c.count))
    source = draw(random, i64(other.size)) // c.unit * c.unit
    run = min(1 + draw(random, 96), i64(other.size) - source, CAPACITY - size)
    at = place(c, random, size)
    if run <= 0:
        return size
    move(data + at + run, data + at, size - at)
    copy(data + at, other.bytes + source, run)
    return size + run


@kernel
def take_piece(c, data, size, random):
    """Take a piece out; return the new size."""
    at = place(c, random, size)
    run = min((1 + draw(random, 48)) * c.unit, size - at)
    move(data + at, data + at + run, size - at - run)
    return size - run


@kernel
def splice(c, data, size, random):
    """Go on with the end of another input; return the new size."""
    other = Input(c.inputs + INPUT * draw(random, c.count))
    source = draw(random, i64(other.size)) // c.unit * c.unit
    at = place(c, random, size)
    run = min(i64(other.size) - source, CAPACITY - at)
    copy(data + at, other.bytes + source, run)
    return at + run


@kernel
def mutate(c, data, size, random):
    """One change; return the new size."""
    what = draw(random, 16)
    if what == 0:
        return draw(random, size)  # cut short
    if what == 1:
        return put_piece(c, data, size, random)
    if what == 2:
        return take_piece(c, data, size, random)
    if what == 3:
        return splice(c, data, size, random)
    if what < 6:
        at = data + draw(random, size)
        store_u8(at, i64(load_u8(at)) ^ (1 << draw(random, 8)))
    else:
        at = place(c, random, size)
        set_field(c, data + at, size - at, random)
    return size


@kernel
def make(corpus, batch, n, seed, first):
    """Make the ``n`` inputs from number ``first`` on, in the ``Input`` array at ``batch``."""
    c = Corpus(corpus)
    random = stack(8)
    for i in range(n):
        store_u64(random, u64(seed) * u64(FIRST_MIX) + u64(first + i) * u64(SECOND_MIX))
        base = Input(c.inputs + INPUT * draw(random, c.count))
        to = Input(batch + INPUT * i)
        size = i64(base.size)
        copy(to.bytes, base.bytes, size)
        to.link = base.link if draw(random, 4) else load_i64(c.links + 8 * draw(random, c.link_count))
        for _ in range(draw(random, 6)):
            if size > 0:
                size = mutate(c, to.bytes, size, random)
        to.size = size
        to.number = first + i


class Maker:
    """Makes inputs out of a corpus of (link type, bytes)."""

    def __init__(self, corpus: list[tuple[int, bytes]], words: list[int], links: list[int], unit: int) -> None:
        self._inputs = np.zeros(len(corpus), Input.dtype)
        for row, (link, data) in zip(self._inputs, corpus):
            row["size"], row["link"] = len(data[:CAPACITY]), link
            row["bytes"][: len(data[:CAPACITY])] = np.frombuffer(data[:CAPACITY], np.uint8)
        self._words, self._links = np.array(words, np.int64), np.array(links, np.int64)
        self._record = np.zeros(1, Corpus.dtype)
        self._record[0] = (
            self._inputs.ctypes.data, len(corpus), self._words.ctypes.data, len(words), self._links.ctypes.data,
            len(links), unit,
        )  # fmt: skip

    def fill(self, batch: np.ndarray, seed: int, first: int, n: int) -> None:
        """Make ``n`` inputs in an array of :data:`Input`."""
        make(self._record.ctypes.data, batch.ctypes.data, n, seed, first)

    def one(self, seed: int, number: int) -> tuple[int, bytes]:
        """One input again: its link type and bytes."""
        batch = np.zeros(1, Input.dtype)
        self.fill(batch, seed, number, 1)
        return int(batch[0]["link"]), batch[0]["bytes"][: batch[0]["size"]].tobytes()
