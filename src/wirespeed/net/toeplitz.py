"""The Toeplitz hash by which network cards spread flows over queues.

Theory of operation
-------------------
The hash is the exclusive or of the 32 key bits from position i on, for each input bit i that is 1.  So each four bits
of input pick one of 16 values that depend on their place only: the table of a key has 16 entries for each half byte,
and the hash is two look-ups a byte.  The input is the addresses and, from the byte behind them on, the ports.

*Source:* Microsoft, "RSS hashing types" and "Verifying the RSS hash calculation" (driver documentation of NDIS).
"""

import numpy as np

from wirespeed.jit.intrinsics import item_u32, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net.parse import FIRST_FRAGMENT, IPV4, IPV6, LATER_FRAGMENT, SCTP, TCP, UDP, find

i64, u32 = np.int64, np.uint32

DEFAULT_KEY = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)  # the key that the specification's test values are made with
MAX_INPUT = 36  # bytes: two IPv6 addresses and two ports

_WANT = np.int64(IPV4 | IPV6 | TCP | UDP | SCTP | FIRST_FRAGMENT | LATER_FRAGMENT)


def table(key: bytes = DEFAULT_KEY) -> np.ndarray:
    """The look-up table of a key of at least 40 bytes, which the kernels take by its address (``.ctypes.data``)."""
    if len(key) < MAX_INPUT + 4:
        raise ValueError(f"a Toeplitz key has at least {MAX_INPUT + 4} bytes, got {len(key)}")
    bits = int.from_bytes(key[: MAX_INPUT + 4], "big")
    size = 8 * (MAX_INPUT + 4)
    windows = [bits >> size - 32 - i & 0xFFFFFFFF for i in range(8 * MAX_INPUT)]
    values = np.zeros((2 * MAX_INPUT, 16), np.uint32)
    for half, row in enumerate(values):
        for value in range(16):
            for bit in range(4):
                if value & 8 >> bit:
                    row[value] ^= windows[4 * half + bit]
    return values


@kernel(inline=True)
def toeplitz(keys, place, at, size):
    """The hash of ``size`` bytes at ``at`` that begin at byte ``place`` of the input; combine parts with ``^``."""
    value = u32(0)
    for i in range(size):
        byte = i64(load_u8(at + i))
        row = 32 * (place + i)
        value ^= item_u32(keys, row + (byte >> 4)) ^ item_u32(keys, row + 16 + (byte & 15))
    return u32(value)


@kernel
def rss(keys, frame, length, link):
    """The hash that a network card would give: over ports too, unless there are none or the frame is a fragment."""
    layers, _, _, _, l3, _, l4, _, _, _ = find(frame, length, link, _WANT)
    place, size = i64(12), i64(8)
    if layers & IPV6:
        place, size = i64(8), i64(32)
    elif not layers & IPV4:
        return u32(0)
    value = toeplitz(keys, i64(0), frame + l3 + place, size)
    if layers & (TCP | UDP | SCTP) and not layers & (FIRST_FRAGMENT | LATER_FRAGMENT):
        value = u32(value ^ toeplitz(keys, size, frame + l4, i64(4)))
    return value
