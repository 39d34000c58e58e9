"""Interfaces of a pcapng file: their link types, and what a tick of their time stamps is worth.

A resolution is a power of ten or of two, from 1 to 2^-127 seconds, each interface its own.  All become whole
nanoseconds, rounded down, exactly; what lies outside 64 bits of them wraps.
"""

import numpy as np

from wirespeed.jit.intrinsics import equal, load_u8, load_u32, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.capture.format import (
    END_OF_OPTIONS,
    INTERFACE,
    RESOLUTION,
    TIME_OFFSET,
    TRAILER,
    InterfaceBlock,
    OptionHeader,
    u16_at,
    u32_at,
    u64_at,
)
from wirespeed.net.capture.scan import (
    DIVIDE,
    INTERFACE_SIZE,
    INTERFACES,
    MULTIPLY,
    NEVER,
    OPTIONS,
    SHIFT,
    TOO_MANY_INTERFACES,
    Interface,
    complain,
    keep_note,
    spoil,
)

u32, i64, u64 = np.uint32, np.int64, np.uint64
BILLION = 1_000_000_000
NANO = 9  # the power of ten that makes a nanosecond
MICRO = 6  # of an interface that does not say
LINK, SNAPLEN, BEGIN = InterfaceBlock.offset("link"), InterfaceBlock.offset("snaplen"), InterfaceBlock.size
OPTION = OptionHeader.size


@kernel(inline=True)
def nanoseconds(interface, high, low):
    """The time of a packet by the two halves of its time stamp."""
    it = Interface(interface)
    ticks = u64(high) << u64(32) | u64(low)
    unit = it.unit
    if unit == MULTIPLY:
        return i64(ticks * it.factor) + it.offset
    if unit == DIVIDE:
        return i64(ticks // it.factor) + it.offset
    if unit == NEVER:
        return it.offset
    return i64(binary_nanoseconds(ticks, u64(it.shift))) + it.offset


@kernel
def binary_nanoseconds(ticks, shift):
    """``ticks`` of 2^-shift seconds, in nanoseconds."""
    seconds = u64(0)
    fraction = ticks
    if shift < 64:
        seconds = ticks >> shift
        fraction = ticks - (seconds << shift)
    # fraction * 10^9 >> shift without its overflow: both halves times 10^9 fit, and rounding down twice is exact.
    upper = (fraction >> u64(32)) * u64(BILLION)
    lower = (fraction & u64(0xFFFFFFFF)) * u64(BILLION)
    if shift < 32:
        rest = (upper << (u64(32) - shift)) + (lower >> shift)
    else:
        rest = upper + (lower >> u64(32))
        rest = rest >> (shift - u64(32)) if shift - u64(32) < 64 else u64(0)
    return seconds * u64(BILLION) + rest


@kernel
def set_resolution(interface, code):
    """Take up the value of an if_tsresol option."""
    it = Interface(interface)
    power = code & 127
    it.shift = u32(power)
    if code & 128:
        it.unit = u32(SHIFT)
        return
    it.unit = u32(MULTIPLY) if power <= NANO else u32(DIVIDE)
    steps = abs(NANO - power)
    if steps > 19:  # 10^20 ticks a nanosecond are more than there can be
        it.unit = u32(NEVER)
        return
    factor = u64(1)
    for _ in range(steps):
        factor *= u64(10)
    it.factor = factor


@kernel
def read_options(s, interface, at, size, block, count):
    """Take up an interface's resolution and offset from its options; a list that is too long for its block is a fault."""
    end = at + size
    while at + OPTION <= end:
        code, length = u16_at(at, s.swapped), i64(u16_at(at + 2, s.swapped))
        if code == END_OF_OPTIONS:
            return
        if at + OPTION + length > end:
            complain(s, OPTIONS, block, count, i64(code))
            return
        if code == RESOLUTION and length >= 1:
            set_resolution(interface, i64(load_u8(at + OPTION)))
        elif code == TIME_OFFSET and length >= 8:
            Interface(interface).offset = i64(u64_at(at + OPTION, s.swapped)) * BILLION
        at += OPTION + ((length + 3) & -4)


@kernel
def same_as_before(s, at, size):
    """The table's number of the interface in the same place of the section before, if its block is the same; or -1."""
    number = i64(load_u32(s.local + 4 * s.interfaces))
    if number < s.known:
        it = Interface(s.table + INTERFACE_SIZE * number)
        if it.note_size == size and i64(it.swapped) == i64(s.swapped) and equal(it.note, at, size):
            return number
    return i64(-1)


@kernel
def add_interface(s, at, size, count):
    """Take up an interface block of ``size`` bytes, behind ``count`` entries; False when there are too many."""
    if s.interfaces >= INTERFACES:
        spoil(s, TOO_MANY_INTERFACES, at, count, s.interfaces)
        return False
    # Files that were put together repeat their interfaces; what is the same keeps its number.
    number = same_as_before(s, at, size)
    if number < 0:
        number = s.known
        if number >= INTERFACES:
            spoil(s, TOO_MANY_INTERFACES, at, count, number)
            return False
        address = s.table + INTERFACE_SIZE * number
        it = Interface(address)
        it.link = u16_at(at + LINK, s.swapped)
        it.swapped = s.swapped
        it.snaplen = u32_at(at + SNAPLEN, s.swapped)
        it.offset = 0
        set_resolution(address, i64(MICRO))
        read_options(s, address, at + BEGIN, size - BEGIN - TRAILER, at, count)
        it.note = keep_note(s, i64(INTERFACE), number, at, size)
        it.note_size = size if it.note != 0 else i64(0)
        s.known = number + 1
    store_u32(s.local + 4 * s.interfaces, number)
    s.interfaces += 1
    return True
