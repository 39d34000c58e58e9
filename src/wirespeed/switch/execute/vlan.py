"""VLANs as ports have them: whether a packet may come in or go out by a port, and with which tags.

Theory of operation
-------------------
A packet that comes in by a port belongs to a VLAN: that of an access port or of a native one where it has none itself,
else that of its tag.  ``vlan`` is the VLAN and its priority, as a tag has them; 0 is no tag.  When it leaves, its tags
become what the port wants; a second tag goes where the first one's VLAN is the port's only one, as in Open vSwitch.

Source: ovs-vswitchd.conf.db(5), "VLAN Configuration"; tested against Open vSwitch.
"""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.jit.intrinsics import load_be16, load_u64, store_be16
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.switch.execute.tags import pop_tag, push_tag
from wirespeed.switch.extract import TAG, is_tag
from wirespeed.switch.fields import TCI_PRESENT
from wirespeed.switch.memory import ACCESS, NATIVE_UNTAGGED, TRUNK

i64, u64 = np.int64, np.uint64
VID = 0xFFF
TCI = 0xEFFF  # a tag's VLAN and priority

Vlan = layout(
    "SwitchVlan",
    [
        ("tags", "i8"),  # how many the packet has, at most two
        ("tci", "i8"),  # what the first one says
        ("tpid", "i8"),  # and its type; for a packet without, that which it would get
        ("vlan", "i8"),  # the VLAN that it belongs to, and its priority
        ("inner", "i8"),  # the VLAN of its second tag, plus one, when that goes with it; else 0
        (None, 24),
    ],
)
VLAN = Vlan.size


@kernel(inline=True)
def has_vlan(bits, vid):
    """Whether a VLAN is among those of u64[64], at an address; 0 is all."""
    # Bounds: a VLAN has 12 bits, six of which choose one of 64 words.
    return bits == 0 or load_u64(bits + 8 * (vid >> 6)) >> u64(vid & 63) & u64(1) != u64(0)


@kernel
def look_at_tags(handle, v):
    """Fill in a packet's tags; False when it has no whole Ethernet header."""
    p = Packet(handle)
    frame, length = data(p), i64(p.length)
    v.tags, v.tci, v.tpid, v.vlan, v.inner = i64(0), i64(0), i64(TAG), i64(0), i64(0)
    if length < 14:
        return False
    tpid = load_be16(frame + 12)
    if is_tag(tpid):
        if length < 18:
            return False
        v.tags, v.tci, v.tpid = i64(1), i64(load_be16(frame + 14)), i64(tpid)
        if is_tag(load_be16(frame + 16)) and length >= 22:
            inner = i64(load_be16(frame + 18))
            v.tags, v.inner = i64(2), 1 + (inner & VID) if inner & TCI != 0 else i64(0)  # one that says nothing goes
    return True


@kernel
def come_in(port, v):
    """Say which VLAN a packet belongs to that comes in by a port; False when the port does not carry it."""
    vid, mode = v.tci & VID, port.vlan_mode
    if mode == ACCESS:
        if vid != 0:
            return False
        v.vlan = i64(port.tag) | v.tci & TCI
        v.inner = i64(0)
        return True
    v.vlan = v.tci & TCI
    if mode != TRUNK and vid == 0:
        v.vlan |= i64(port.tag)
        return True
    return has_vlan(port.trunks, vid)


@kernel(inline=True)
def carries(port, v):
    """Whether a packet may go out by a port, flooded."""
    vid = v.vlan & VID
    if port.vlan_mode == ACCESS:
        return vid == i64(port.tag) and v.inner <= 1
    if vid == 0 and port.vlan_mode != TRUNK and port.tag != 0:
        return False  # what has no VLAN is in the native one there
    return has_vlan(port.trunks, vid)


@kernel(inline=True)
def _wanted(port, v):
    """(how many tags are taken off, what the new one says or 0) for a packet to leave by a port."""
    kept = v.tags - min(v.inner, i64(1))  # tags that are not the second one
    if port.vlan_mode == NATIVE_UNTAGGED and v.vlan & VID == i64(port.tag):
        return kept, i64(0)
    if port.vlan_mode == ACCESS or v.vlan == 0:
        return v.tags, i64(0)
    if v.tags > 0 and v.tci & TCI == v.vlan and kept == 1:
        return i64(0), i64(0)
    return kept, v.vlan


@kernel
def dress(cache, handle, port, v):
    """Give a packet the tags with which it leaves by a port; it, or a copy in its place, or 0 when there was none."""
    off, tci = _wanted(port, v)
    if off == 1 and tci != 0:
        if i64(Packet(handle).length) >= 18:  # a copy may have fewer bytes in its first segment
            store_be16(data(Packet(handle)) + 14, tci & ~TCI_PRESENT)
        return handle
    for _ in range(off):
        pop_tag(handle)
    if tci != 0:
        return push_tag(cache, handle, v.tpid, tci)
    return handle


@kernel(inline=True)
def fits(port, v):
    """Whether a packet leaves by a port with the tags that it has."""
    off, tci = _wanted(port, v)
    return off == 0 and tci == 0
