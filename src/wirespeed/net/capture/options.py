"""The options of pcapng blocks: comments and what else is said of a packet, an interface or a section.

Packets carry theirs along in their ``meta`` packet in machine order, so that whoever writes them need not know where
they came from; :func:`carry` copies them there.  Python reads and makes lists of ``(code, value)``.
"""

from typing import Literal

import numpy as np

from wirespeed.jit.intrinsics import (
    bswap32,
    bswap64,
    copy,
    load_u8,
    load_u32,
    load_u64,
    store_u16,
    store_u32,
    store_u64,
)
from wirespeed.jit.kernel import kernel
from wirespeed.net.capture.format import (
    COMMENT,
    CUSTOM,
    DROP_COUNT,
    END_OF_OPTIONS,
    PACKET_FLAGS,
    PACKET_ID,
    QUEUE,
    VERDICT,
    OptionHeader,
    padded,
    u16_at,
)

i64 = np.int64
HEADER = OptionHeader.size
VERDICT_KINDS = (1, 2)  # of epb_verdict: what eBPF returned, 64 bits behind the kind; kind 0 is opaque


@kernel
def turn_value(at, code, size):
    """Swap the integers in the value of a packet's option."""
    if (code == PACKET_FLAGS or code == QUEUE) and size == 4:
        store_u32(at, bswap32(load_u32(at)))
    elif (code == DROP_COUNT or code == PACKET_ID) and size == 8:
        store_u64(at, bswap64(load_u64(at)))
    elif code == VERDICT and size == 9 and load_u8(at) in VERDICT_KINDS:
        store_u64(at + 1, bswap64(load_u64(at + 1)))
    elif code in CUSTOM and size >= 4:
        store_u32(at, bswap32(load_u32(at)))


@kernel
def carry(to, room, at, size, swapped):
    """Copy the whole options at an address to ``to``, in machine order and without their end, as far as they fit.

    Return (bytes there, whether all of them were copied).
    """
    done, end = i64(0), at + size
    while at + HEADER <= end:
        code, length = u16_at(at, swapped), i64(u16_at(at + 2, swapped))
        if code == END_OF_OPTIONS:
            break
        step = HEADER + padded(length)
        if at + HEADER + length > end or done + step > room:
            return done, False
        store_u32(to + done + step - 4, 0)  # the padding, where there is one
        copy(to + done + HEADER, at + HEADER, length)
        if swapped:
            turn_value(to + done + HEADER, code, length)
        store_u16(to + done, code)
        store_u16(to + done + 2, length)
        done += step
        at += step
    return done, True


def parse(data: bytes, swapped: bool = False) -> list[tuple[int, bytes]]:
    """The options in ``data``, each as code and value; what is cut short at the end is left out."""
    order: Literal["big", "little"] = "big" if swapped else "little"
    found, at = [], 0
    while at + HEADER <= len(data):
        code, length = (int.from_bytes(data[at + i : at + i + 2], order) for i in (0, 2))
        if code == END_OF_OPTIONS or at + HEADER + length > len(data):
            break
        found.append((code, data[at + HEADER : at + HEADER + length]))
        at += HEADER + -(-length // 4) * 4
    return found


def build(pairs: list[tuple[int, bytes]]) -> bytes:
    """The options of ``pairs`` as they stand in a block, in machine order, without their end."""
    made = bytearray()
    for code, value in pairs:
        header = bytearray(HEADER)
        record = OptionHeader(header)
        record.code, record.size = code, len(value)
        made += header + value + bytes(-len(value) % 4)
    return bytes(made)


def comments(data: bytes, swapped: bool = False) -> tuple[str, ...]:
    """The comments among the options in ``data``; what is no UTF-8 in them is replaced."""
    return tuple(value.decode("utf-8", "replace") for code, value in parse(data, swapped) if code == COMMENT)
