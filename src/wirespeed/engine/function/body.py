"""The kernels that the compiled code of a user's function calls, each under the name that translated code has for it."""

import numpy as np

from wirespeed.core import packet
from wirespeed.core.packet import Packet
from wirespeed.engine.function import edit, sums
from wirespeed.engine.function.runtime import RANDOM, locate_headers
from wirespeed.jit.header import get_slot, read_address, write_address
from wirespeed.jit.intrinsics import load_u8, store_u8
from wirespeed.jit.kernel import kernel
from wirespeed.jit.region import array_at, length_of
from wirespeed.net import hashing

i64 = np.int64


@kernel(inline=True)
def pick(values, index):
    """An element of a constant array; 0 outside."""
    return values[index] if 0 <= index < len(values) else i64(0)


@kernel(inline=True)
def among(number, values):
    """Whether a number is in a constant array."""
    found = False
    for i in range(len(values)):
        found |= values[i] == number
    return found


@kernel(inline=True)
def among_few(number, values):
    """Whether a number is in a tuple."""
    found = False
    for value in values:
        found |= value == number
    return found


@kernel(inline=True)
def frame(pkt):
    """All bytes of the first segment."""
    return array_at(get_slot(pkt, "frame"), get_slot(pkt, "length"), "u1")


@kernel(inline=True)
def payload(pkt):
    """The bytes behind the headers.  The bounds are the parser's, and made sure of here."""
    length = get_slot(pkt, "length")
    start = min(max(get_slot(pkt, "payload"), i64(0)), length)
    end = min(max(get_slot(pkt, "end"), start), length)
    return array_at(get_slot(pkt, "frame") + start, end - start, "u1")


@kernel
def _flow_hash(frame, length, link):
    return i64(hashing.flow_hash(frame, length, link))


@kernel
def _symmetric_hash(frame, length, link):
    return i64(hashing.symmetric_hash(frame, length, link))


@kernel(inline=True)
def mark(pkt):
    """``pkt.mark``."""
    return i64(packet.mark(Packet(get_slot(pkt, "record"))))


@kernel(inline=True)
def set_mark(pkt, value):
    """``pkt.mark = value``."""
    packet.set_mark(Packet(get_slot(pkt, "record")), value)


@kernel(inline=True)
def hash(pkt):
    """The flow hash of the packet as it is now."""
    return _flow_hash(get_slot(pkt, "frame"), get_slot(pkt, "length"), pkt.link)


# ---------------------------------------------------------------------------------------------------------------------
# Methods and actions


@kernel(inline=True)
def prepend(pkt, size):
    """``pkt.prepend``."""
    done = edit.prepend(get_slot(pkt, "record"), size)
    locate_headers(pkt)
    return done


@kernel(inline=True)
def append(pkt, size):
    """``pkt.append``."""
    done = edit.append(get_slot(pkt, "record"), size)
    locate_headers(pkt)
    return done


@kernel(inline=True)
def adjust(pkt, size):
    """``pkt.adjust``."""
    done = edit.adjust(get_slot(pkt, "record"), size)
    locate_headers(pkt)
    return done


@kernel(inline=True)
def trim(pkt, size):
    """``pkt.trim``."""
    done = edit.trim(get_slot(pkt, "record"), size)
    locate_headers(pkt)
    return done


@kernel(inline=True)
def push_vlan(pkt, vlan, prio, type):
    """``ws.push_vlan``."""
    done = edit.push_vlan(get_slot(pkt, "record"), vlan, prio, type)
    locate_headers(pkt)
    return done


@kernel(inline=True)
def pop_vlan(pkt):
    """``ws.pop_vlan``."""
    done = edit.pop_vlan(get_slot(pkt, "record"))
    locate_headers(pkt)
    return done


@kernel(inline=True)
def decrement_ttl_ipv4(pkt, ip):
    """``ws.decrement_ttl`` of an IPv4 header."""
    return edit.decrement_ttl(read_address(ip), write_address(ip))


@kernel(inline=True)
def decrement_ttl_ipv6(pkt, ip):
    """``ws.decrement_ttl`` of an IPv6 header."""
    left = max(i64(load_u8(read_address(ip) + 7)) - 1, i64(0))
    store_u8(write_address(ip) + 7, left)
    return left


@kernel(inline=True)
def checksum_ipv4(pkt, ip):
    """``ws.checksum_ipv4``."""
    at = read_address(ip)
    if at != write_address(ip):
        return False
    return sums.checksum_ipv4(at, get_slot(pkt, "frame") + get_slot(pkt, "length"))


@kernel(inline=True)
def checksum_l4(pkt):
    """``ws.checksum_l4``."""
    layers, l3, l4 = get_slot(pkt, "layers"), get_slot(pkt, "l3"), get_slot(pkt, "l4")
    return sums.checksum_l4(get_slot(pkt, "frame"), get_slot(pkt, "length"), pkt.link, layers, l3, l4)


@kernel(inline=True)
def rewrite(pkt, which, src, dst, sport, dport):
    """``ws.rewrite``."""
    layers, l3, l4 = get_slot(pkt, "layers"), get_slot(pkt, "l3"), get_slot(pkt, "l4")
    return sums.rewrite(get_slot(pkt, "frame"), layers, l3, l4, which, src, dst, sport, dport)


@kernel(inline=True)
def random(pkt, below):
    """``ws.random``."""
    return edit.draw(get_slot(pkt, "state") + RANDOM, below)


@kernel(inline=True)
def symmetric_hash(pkt):
    """``ws.symmetric_hash``."""
    return _symmetric_hash(get_slot(pkt, "frame"), get_slot(pkt, "length"), pkt.link)


@kernel(inline=True)
def length(array):
    """``len`` of an array."""
    return length_of(array)
