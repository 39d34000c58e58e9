"""The kernel that sets one header field of a generator's packets: counted through a range, or drawn from it.

Theory of operation
-------------------
What a field is in packet number k is a function of k alone, so workers that each make every other packet make the same
packets as one, and a run can be repeated.  A count is ``first + step * (k mod n)``; a draw takes the k-th number of the
SplitMix64 sequence of the seed, which is a hash of k and so can be had in any order.

Checksums follow by difference (RFC 1624): to the sum that stands under one, the words of the new value are added and
those of the old one taken away, at the place that they have in a 16-bit word.  Sums are signed and carry a multiple of
2^16 - 1, which is zero to a ones' complement sum, so that they never become negative.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (SplitMix64).
"""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.jit.intrinsics import (
    load_be16,
    load_be32,
    load_be64,
    load_handle,
    load_i64,
    load_u8,
    store_be16,
    store_be32,
    store_be64,
    store_i64,
    store_u8,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u64 = np.int64, np.uint64
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd
BIAS = 0xFFFF << 40  # zero to the checksum, and more than all fields of a frame can take away
IN_IP, IN_TRANSPORT = 1, 2

VariedField = layout(
    "VariedField",
    [
        ("offset", "i8"),  # from the frame's begin to the container
        ("size", "i8"),  # of the container: 1, 2, 4 or 8 bytes
        ("shift", "u8"),  # of the field in it, from the lowest bit
        ("mask", "u8"),  # of the field in it
        ("first", "u8"),
        ("step", "u8"),
        ("count", "u8"),  # how many values there are; 0: 2^64
        ("bias", "u8"),  # is added to the index,
        ("turn", "u8"),  # and the sum taken modulo a power of two, of which this is one less
        ("random", "u8"),
        ("seed", "u8"),
        ("sums", "u8"),  # IN_IP, IN_TRANSPORT: the checksums under which it lies
        ("high", "u8"),  # by how many bits its words are shifted in them, 0 or 8
        ("stride", "u8"),  # packets from one of this worker to its next
        # moving
        ("serial", "u8"),  # number of the next packet
        ("index", "u8"),  # of a count
    ],
    size=128,
)


@kernel(inline=True)
def mix(value):
    """SplitMix64's hash of a 64-bit integer."""
    value = u64(value)
    value = (value ^ (value >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> u64(27))) * u64(0x94D049BB133111EB)
    return value ^ (value >> u64(31))


@kernel(inline=True)
def draw(seed, serial, count):
    """The number of packet ``serial`` below ``count``, or any of 64 bits where that is 0."""
    value = mix(seed + serial * u64(GOLDEN))
    if count == u64(0):
        return value
    if count <= u64(0xFFFFFFFF):
        return (value >> u64(32)) * count >> u64(32)
    return value % count


@kernel(inline=True)
def words(value, high):
    """The sum of the 16-bit words of a container's value, where it begins at an even or (``high`` 8) odd place."""
    return i64(((value >> u64(32)) + (value & u64(0xFFFFFFFF))) << high)


@kernel(inline=True)
def load(at, size):
    """The value of a container; ``size`` is a constant."""
    if size == 1:
        return u64(load_u8(at))
    if size == 2:
        return u64(load_be16(at))
    return u64(load_be32(at)) if size == 4 else load_be64(at)


@kernel(inline=True)
def store(at, value, size):
    """Write the value of a container; ``size`` is a constant."""
    if size == 1:
        store_u8(at, value)
    elif size == 2:
        store_be16(at, value)
    elif size == 4:
        store_be32(at, value)
    else:
        store_be64(at, value)


@kernel(inline=True)
def vary_sized(f, burst, n, sums, size):
    """Set a field whose container has ``size`` bytes in ``n`` packets; ``sums`` is i8[2 n], 0 when none are kept."""
    offset, shift, mask, first, step = f.offset, f.shift, f.mask, f.first, f.step
    count, bias, turn, stride, high = f.count, f.bias, f.turn, f.stride, f.high
    random, seed, under = f.random, f.seed, f.sums
    serial, index = f.serial, f.index
    skip = stride % count if count != u64(0) else stride
    for i in range(n):
        at = data(Packet(load_handle(burst + 8 * i))) + offset
        k = draw(seed, serial, count) if random else index
        value = first + step * ((k + bias) & turn)
        old = load(at, size)
        new = (old & ~mask) | (value << shift & mask)
        store(at, new, size)
        if under:
            change = words(new, high) - words(old, high)
            if under & u64(IN_IP):
                store_i64(sums + 16 * i, load_i64(sums + 16 * i) + change)
            if under & u64(IN_TRANSPORT):
                store_i64(sums + 16 * i + 8, load_i64(sums + 16 * i + 8) + change)
        serial += stride
        index += skip
        if count != u64(0) and index >= count:
            index -= count
    f.serial = serial
    f.index = index


@kernel
def vary(field, burst, n, sums):
    """Set a field in the ``n`` packets of a burst."""
    f = VariedField(field)
    if f.size == 1:
        vary_sized(f, burst, n, sums, 1)
    elif f.size == 2:
        vary_sized(f, burst, n, sums, 2)
    elif f.size == 4:
        vary_sized(f, burst, n, sums, 4)
    else:
        vary_sized(f, burst, n, sums, 8)
