"""Flow hashes: one that tells the directions of a flow apart, and one that is the same for both.

All fragments of a datagram hash alike, the first one, which has ports, included: they hash by their addresses only.
(That part of the protocol which differs between IPv6 fragments is left out too.)  The hash is made of CRC-32C steps
over whole words.  A frame without IP has the hash 0.  Not meant to withstand somebody who looks for collisions.
"""

import numpy as np

from wirespeed.jit.intrinsics import crc32c
from wirespeed.jit.kernel import kernel
from wirespeed.net.flow import FRAGMENT, five_tuple

i64, u32, u64 = np.int64, np.uint32, np.uint64
_SEED = np.uint32(0xFFFFFFFF)
_VERSION = np.uint64(0xFF00)


@kernel(inline=True)
def hash_words(source_hi, source_lo, destination_hi, destination_lo, rest, flags, symmetric):
    """The hash of a five-tuple as :func:`five_tuple` returns it; ``symmetric`` is a constant."""
    version = (rest & _VERSION) >> u64(8)
    if flags & FRAGMENT:
        rest = rest & _VERSION
    # Each end is its address and port in one or three words; IPv4's fits into one.
    source_port, destination_port = rest >> u64(48), rest >> u64(32) & u64(0xFFFF)
    kind = rest & u64(0xFFFF)
    if version == 4:
        a, b = source_lo << u64(16) | source_port, destination_lo << u64(16) | destination_port
        if symmetric and a > b:
            a, b = b, a
        return crc32c(crc32c(_SEED, a), b | kind << u64(48))
    if version == 0:
        return u32(0)
    if symmetric:
        same = source_hi == destination_hi and source_lo == destination_lo
        later = source_hi > destination_hi or (source_hi == destination_hi and source_lo > destination_lo)
        if later or (same and source_port > destination_port):
            source_hi, destination_hi = destination_hi, source_hi
            source_lo, destination_lo = destination_lo, source_lo
            source_port, destination_port = destination_port, source_port
    value = crc32c(crc32c(_SEED, source_hi), source_lo)
    value = crc32c(crc32c(value, destination_hi), destination_lo)
    return crc32c(value, source_port << u64(48) | destination_port << u64(32) | kind)


@kernel(inline=True)
def flow_hash(frame, length, link):
    """The hash of a frame's flow, another one for each direction."""
    a, b, c, d, rest, flags = five_tuple(frame, length, link)
    return hash_words(a, b, c, d, rest, flags, False)


@kernel(inline=True)
def symmetric_hash(frame, length, link):
    """The hash of a frame's flow, the same for both directions."""
    a, b, c, d, rest, flags = five_tuple(frame, length, link)
    return hash_words(a, b, c, d, rest, flags, True)
