"""The memory of a guest: its regions, and where an address of the guest's lies in this process.

Theory of operation
-------------------
A guest names its memory by addresses of its own, and all it says may be hostile.  :func:`to_host` is the only way from
such an address to one that is read or written: it says how many bytes from there lie in *one* region, and nobody goes
beyond them.  What crosses from a region into the next one is two pieces, for regions that are neighbours to the guest
need not be neighbours here.

Addresses of the guest are unsigned and may be any 64 bits, so no sum of two of them is ever formed: the difference to a
region's beginning, modulo 2^64, is compared with its size, which is right for any.  A region itself was checked when it
was added: ``size`` bytes from ``host`` on are mapped, and it is shorter than 2^63.

Thread rules: written by the control thread alone, while no worker is in a queue of the device.

*Source:* the vhost-user protocol, "Memory region description"; CVE-2018-1059.
"""

import numpy as np

from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u64 = np.int64, np.uint64
MOST_REGIONS = 64

Region = layout(
    "Region",
    [
        ("guest", "u8"),  # its first byte's address in the guest,
        ("size", "u8"),
        ("user", "u8"),  # in the process that told us of it,
        ("host", "i8"),  # and here
    ],
)
REGION = Region.size

Regions = layout("Regions", [("n", "i8"), (None, 56), ("records", "u8", MOST_REGIONS * REGION // 8)])
RECORDS = Regions.offset("records")


@kernel(inline=True)
def to_host(regions, guest, size):
    """Where a guest's address lies here, and how many of the ``size`` bytes from there are in that region; 0, 0 if none.

    ``regions`` is the address of :data:`Regions`, ``guest`` a u64, ``size`` an i64 that is not negative.
    """
    n = Regions(regions).n
    for i in range(n):
        r = Region(regions + RECORDS + REGION * i)
        offset = u64(guest) - r.guest
        if offset < r.size:
            return r.host + i64(offset), min(size, i64(r.size - offset))
    return i64(0), i64(0)


@kernel
def user_to_host(regions, user, size):
    """:func:`to_host` for an address in the process that the regions came from."""
    n = Regions(regions).n
    for i in range(n):
        r = Region(regions + RECORDS + REGION * i)
        offset = u64(user) - r.user
        if offset < r.size:
            return r.host + i64(offset), min(size, i64(r.size - offset))
    return i64(0), i64(0)
