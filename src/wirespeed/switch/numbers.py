"""Places among a fixed number of them, given out from the lowest and taken back."""

from heapq import heappop, heappush


class Numbers:
    """Whole numbers from 0 to below ``most``, each given to one holder at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._next = 0
        self._freed: list[int] = []

    def take(self) -> int | None:
        """The lowest number that nobody has, or None."""
        if self._freed:
            return heappop(self._freed)
        if self._next == self.most:
            return None
        self._next += 1
        return self._next - 1

    def give(self, number: int) -> None:
        """Take a number back."""
        heappush(self._freed, number)
