"""DEC_TTL: one less to live, and IPv4's checksum with it."""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.jit.intrinsics import load_be16, load_u8, stack, store_be16, store_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import update16
from wirespeed.switch.execute.headers import HEADERS, Headers, find_headers
from wirespeed.switch.fields import IP

i64 = np.int64


@kernel
def _decrement_odd(handle):
    """Any packet: IPv4 behind tags or with options, IPv6, or neither."""
    headers = stack(HEADERS)
    if not find_headers(handle, headers):
        return
    h = Headers(headers)
    if h.version == 0 or h.proto == 0:
        return
    at = h.frame + h.net + (8 if h.version == 4 else 7)
    ttl = load_u8(at)
    if ttl == 0:
        return
    if h.version == 6:
        store_u8(at, ttl - 1)
    else:
        _decrement_ipv4(at)


@kernel(inline=True)
def _decrement_ipv4(at):
    """``at``: where the time to live is, two bytes before the checksum."""
    old = i64(load_be16(at))
    store_be16(at, old - 0x100)
    store_be16(at + 2, update16(load_be16(at + 2), old, old - 0x100))


@kernel(inline=True)
def decrement_ttl(handle):
    """Take one from the time to live of an IP packet that has any."""
    p = Packet(handle)
    frame, room = data(p), i64(p.length) - 14
    # Bounds: 34 bytes for the header without tags and options, which is nearly all of them.
    if (
        room >= 20
        and load_be16(frame + 12) == IP
        and load_u8(frame + 14) == 0x45
        and i64(load_be16(frame + 16)) <= room
        and i64(load_be16(frame + 16)) >= 20
        and load_u8(frame + 22) != 0
        and load_u8(frame + 23) != 0
    ):
        _decrement_ipv4(frame + 22)
    else:
        _decrement_odd(handle)
