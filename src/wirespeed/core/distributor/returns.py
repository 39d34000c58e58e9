"""Items that came back, on their way from the distributor's returns to whoever takes them.

Theory of operation
-------------------
A signal's handler may raise behind any call, and what the call has taken out would be in a local name only.  So where
it goes, and where the returns began, is noted before; what was taken is found by how far they have come since.  Both
stand under one name, which changes at once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.core.distributor import calls
from wirespeed.core.distributor.memory import DistributorMemory


class Returns:
    """What was taken out of a distributor's returns, and not handed out."""

    def __init__(self, memory: DistributorMemory, dtype: np.dtype[Any]) -> None:
        self._memory, self._dtype = memory, dtype
        self._back: tuple[list[NDArray[Any]], tuple[NDArray[Any], int] | None] = ([], None)

    def __len__(self) -> int:
        self._settle()
        return sum(map(len, self._back[0]))

    @property
    def there(self) -> int:
        """How many items came back that were not taken out."""
        record = self._memory.record
        return int(record.returns_tail - record.returns_head)

    def take(self, n: int) -> int:
        """Take up to ``n`` items out, to hand them out later; how many."""
        before = len(self)
        out = np.empty(min(n, self.there), self._dtype)
        self._back = (self._back[0], (out, int(self._memory.record.returns_head)))
        calls.returned_into.function(self._memory.binding, out)
        return len(self) - before

    def _settle(self) -> None:
        """Have what the last call took out be here, whether or not it came to its end."""
        kept, taking = self._back
        if taking:
            out, head = taking
            count = int(self._memory.record.returns_head) - head
            self._back = ([*kept, out[:count]] if count else kept, None)

    def hand_out(self, most: int = -1) -> NDArray[Any]:
        """Up to ``most`` items (all), the first that were taken out first."""
        self._settle()
        kept = self._back[0] or [np.empty(0, self._dtype)]
        out = kept[0] if len(kept) == 1 else np.concatenate(kept, dtype=self._dtype)
        some = out if most < 0 else out[:most]
        self._back = ([out[len(some) :]] if len(some) < len(out) else [], None)
        return some
