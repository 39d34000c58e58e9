"""When a stage that holds packets is to let go of some, because the pool has too few left for others.

Theory of operation
-------------------
Packets that are held are missing in the pool, and a pool may be smaller than what a stage may hold.  Once it is empty no
source can give anything, so nothing comes that would have the stage let go of what it holds.  Therefore it looks at each
tick, when nothing is on its way between stages: it keeps less than what would leave the pool with fewer packets than a
*reserve*; and where allocations failed while nothing came, it lets go of something, however much is left, for a source
may want many packets at once.

Thread rules: it belongs to its stage.  What other workers have in their caches does not count as left.
"""

import numpy as np

from wirespeed.core.pool import RING, Cache, ring_length
from wirespeed.core.stage import MAX_BURST
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64 = np.int64

Shortage = layout(
    "Shortage",
    [
        ("reserve", "i8"),  # packets that are left to others
        ("failures", "u8"),  # allocations that had failed when it looked last
        ("came", "i8"),  # 1: packets came since then
    ],
)


@kernel
def lacking(s, cache):
    """How many packets the stage is to let go of at this tick; not above 0 when there are enough for others."""
    c = Cache(cache)
    starved = c.failures != s.failures and s.came == 0
    s.failures = c.failures
    s.came = 0
    short = s.reserve - c.length - i64(ring_length(c.pool + RING))
    return max(short, i64(1)) if starved else short


def reserve(pool: int) -> int:
    """What is left to others of a pool of so many packets; little, for interfaces may have most of it for good."""
    return max(1, min(pool // 8, MAX_BURST))
