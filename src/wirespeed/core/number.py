"""Numbers as callers give them: whole ones, and how long to wait."""

import numbers
import operator
import time
from typing import Any

import numpy as np

from wirespeed.errors import GraphError


def whole(value: Any, what: str, least: int | None = None) -> int:
    """``value`` as an ``int``, Python's or NumPy's, but no truth value and nothing to be rounded; at least ``least``."""
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
            if least is None or number >= least:
                return number
        except TypeError:
            pass
    wanted = "" if least is None else f" of at least {least}"
    raise GraphError(f"{what} must be a whole number{wanted}, got {value!r:.60}")


def flag(value: Any, what: str) -> bool:
    """``value`` as a ``bool``, Python's or NumPy's, and nothing that is only taken for one."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise GraphError(f"{what} must be True or False, got {value!r:.60}")


class Deadline:
    """When a wait of ``timeout_s`` is over: 0 is now, None never."""

    def __init__(self, timeout_s: Any) -> None:
        number = type(timeout_s) in (int, float) or (
            isinstance(timeout_s, numbers.Real) and not isinstance(timeout_s, bool)  # takes its time
        )
        if timeout_s is not None and not (number and timeout_s >= 0):  # a NaN is not
            raise GraphError(f"timeout_s must be a number of seconds, at least 0, got {timeout_s!r}; None is for ever")
        self.end_ns = None if timeout_s is None else time.monotonic_ns() + int(min(timeout_s, 1e9) * 1e9)
        self.now = timeout_s == 0
        self.tries = 0

    def over(self) -> bool:
        """Whether it has come."""
        return self.now or (self.end_ns is not None and time.monotonic_ns() >= self.end_ns)

    def spent(self, tries: int, grace_ns: int) -> bool:
        """Whether it is over by so much, and this was asked more than so often."""
        self.tries += 1
        return self.tries > tries and self.end_ns is not None and time.monotonic_ns() >= self.end_ns + grace_ns

    def left_ns(self, most: int) -> int:
        """Nanoseconds until then, at most so many."""
        return most if self.end_ns is None else max(0, min(most, self.end_ns - time.monotonic_ns()))
