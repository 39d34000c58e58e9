"""Destinations that bridges keep to themselves: no packet for them is forwarded by NORMAL or mirrored into a VLAN.

Source: IEEE 802.1D-2004, table 7-10; and those of Extreme's and Cisco's protocols, as Open vSwitch has them.
"""

import numpy as np

from wirespeed.jit.kernel import kernel

u64 = np.uint64
_IEEE = 0x0180C2000000 >> 4
_EXTREME, _CISCO = 0x00E02B, 0x01000C


@kernel
def _is_of_a_vendor(dst):
    rest = dst & u64(0xFFFFFF)
    if dst >> u64(24) == u64(_EXTREME):
        return rest == u64(0) or rest == u64(4) or rest == u64(6)
    known = rest == u64(0) or rest == u64(0xCCCCCC) or rest == u64(0xCCCCCD) or rest == u64(0xCDCDCD)
    return known or rest >> u64(3) == u64(0xCCCCC0 >> 3)


@kernel(inline=True)
def is_reserved(dst):
    """Whether an address, as a number, is one of them."""
    if dst >> u64(4) == u64(_IEEE):
        return True
    high = dst >> u64(24)
    return (high == u64(_CISCO) or high == u64(_EXTREME)) and _is_of_a_vendor(dst)
