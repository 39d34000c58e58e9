"""Changes to a packet that take more than a field: sizes, tags, hops; and random numbers.

Both forms of a user's function call these kernels.  They take addresses and offsets that the parser has found, so a
header that is said to be there is whole; all other bounds are argued here.

*Source:* IEEE 802.1Q (tags), RFC 1624 (checksums by difference).
"""

import numpy as np

from wirespeed.core import packet
from wirespeed.core.packet import Packet, data, last
from wirespeed.jit.intrinsics import (
    fill,
    load_be16,
    load_u8,
    load_u64,
    move,
    store_be16,
    store_u64,
)
from wirespeed.jit.kernel import kernel
from wirespeed.net.protocol import (
    ETHERTYPE_QINQ,
    ETHERTYPE_QINQ_OLD,
    ETHERTYPE_VLAN,
)

i64, u32, u64 = np.int64, np.uint32, np.uint64


@kernel(inline=True)
def _resized(handle, size):
    """Let the length on the wire follow a change of the packet's length; it never becomes less than that."""
    p = Packet(handle)
    p.wire = u32(max(i64(p.wire) + size, i64(p.total)))


@kernel
def prepend(handle, size):
    """Grow a packet at its front by ``size`` bytes of zeros; whether there was room."""
    if not packet.prepend(handle, size):
        return False
    fill(data(Packet(handle)), 0, size)
    _resized(handle, size)
    return True


@kernel
def append(handle, size):
    """Grow a packet at its end by ``size`` bytes of zeros; whether there was room."""
    if not packet.append(handle, size):
        return False
    end = Packet(last(handle))
    fill(data(end) + i64(end.length) - size, 0, size)
    _resized(handle, size)
    return True


@kernel
def adjust(handle, size):
    """Cut ``size`` bytes off a packet's front; whether it had as many."""
    if not packet.adjust(handle, size):
        return False
    _resized(handle, -size)
    return True


@kernel
def trim(handle, size):
    """Cut ``size`` bytes off a packet's end; whether it had as many."""
    if not packet.trim(handle, size):
        return False
    _resized(handle, -size)
    return True


@kernel
def push_vlan(handle, vlan, prio, type):
    """Put a tag behind the addresses of an Ethernet frame; whether it is one and there was room."""
    p = Packet(handle)
    if p.link != 1 or i64(p.length) < 14 or not packet.prepend(handle, i64(4)):
        return False
    frame = data(p)
    move(frame, frame + 4, 12)
    store_be16(frame + 12, type & 0xFFFF)
    store_be16(frame + 14, (prio & 7) << 13 | (vlan & 0xFFF))
    _resized(handle, i64(4))
    return True


@kernel
def pop_vlan(handle):
    """Take the first tag out of an Ethernet frame; whether it had one."""
    p = Packet(handle)
    if p.link != 1 or i64(p.length) < 18:
        return False
    frame = data(p)
    type = load_be16(frame + 12)
    if type != ETHERTYPE_VLAN and type != ETHERTYPE_QINQ and type != ETHERTYPE_QINQ_OLD:
        return False
    move(frame + 4, frame, 12)
    packet.adjust(handle, i64(4))
    _resized(handle, i64(-4))
    return True


@kernel(inline=True)
def decrement_ttl(read, write):
    """Take one hop off an IPv4 header; what is left, 0 where nothing was.  Its checksum follows.

    Equation 3 of RFC 1624 for a word that gets smaller by 0x100, as Linux's ``ip_decrease_ttl`` writes it.
    """
    ttl = i64(load_u8(read + 8))
    if ttl == 0:
        return i64(0)
    store_be16(write + 8, (ttl - 1) << 8 | i64(load_u8(read + 9)))
    total = i64(load_be16(read + 10)) + 0x100
    store_be16(write + 10, total + i64(total >= 0xFFFF))
    return ttl - 1


@kernel(inline=True)
def draw(at, below):
    """A random number from 0 to ``below`` - 1 (at most 2^32 of them), from the generator whose word is at an address.

    Source: xorshift64*, Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled" (2016).
    """
    x = load_u64(at)
    x ^= x >> u64(12)
    x ^= x << u64(25)
    x ^= x >> u64(27)
    store_u64(at, x)
    high = x * u64(0x2545F4914F6CDD1D) >> u64(32)
    return i64(high * u64(min(max(below, i64(0)), i64(1 << 32))) >> u64(32))


def seed(number: int, worker: int) -> int:
    """The first word of a worker's generator.  Source: SplitMix64's output function (Steele, Lea, Flood 2014)."""
    mask = (1 << 64) - 1
    z = (number + (worker + 1) * 0x9E3779B97F4A7C15) & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31 or 1  # the generator would stay at 0
