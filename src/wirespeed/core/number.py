"""Whole numbers as callers give them: Python's and NumPy's, but no truth values, and nothing that must be rounded."""

import operator
from typing import Any

from wirespeed.errors import GraphError


def whole(value: Any, what: str) -> int:
    """``value`` as an ``int``; ``what`` says what it is for."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise GraphError(f"got {value!r:.60} for {what}, wanted a whole number; round it first")
