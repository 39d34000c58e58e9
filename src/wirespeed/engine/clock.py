"""The cycle counter in seconds, and what it counts."""

import time

from wirespeed.jit.intrinsics import cycles
from wirespeed.jit.kernel import kernel


@kernel
def read_cycles():
    """The cycle counter now."""
    return cycles()


class CycleClock:
    """Measures the counter's rate over its own life: the longer it lives, the more exact."""

    SHORTEST = 0.02  # seconds over which a rate is good to about one part in ten thousand

    def __init__(self) -> None:
        self._cycles, self._seconds = int(read_cycles()), time.perf_counter()

    def hz(self) -> float:
        """Cycles a second; waits a moment when the clock is new."""
        rest = self.SHORTEST - (time.perf_counter() - self._seconds)
        if rest > 0:
            time.sleep(rest)
        return (int(read_cycles()) - self._cycles) / (time.perf_counter() - self._seconds)
