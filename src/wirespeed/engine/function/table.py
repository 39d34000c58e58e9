"""Tables: NumPy arrays that a user's function reads and writes, bound by the names of its parameters."""

from typing import Any

import numpy as np

from wirespeed.engine.function.kinds import Kind, array
from wirespeed.errors import FunctionError


def kind_of(function: str, name: str, value: Any) -> Kind:
    """What an array is to a function; one that it cannot be is a FunctionError."""
    if not isinstance(value, np.ndarray):
        made = "np.array(..., np.int64)" if isinstance(value, list | tuple | range) else "a NumPy array of integers"
        raise FunctionError(f"{function}: the table {name} is a {type(value).__name__}; give {made}")
    if value.dtype.kind not in "iu":
        raise FunctionError(f"{function}: the table {name} has the dtype {value.dtype}; give one of whole numbers")
    if value.ndim != 1:
        raise FunctionError(f"{function}: the table {name} has {value.ndim} dimensions; give one with one")
    if not value.flags.c_contiguous:
        raise FunctionError(f"{function}: the elements of the table {name} do not lie side by side; give a copy of it")
    big = value.dtype.newbyteorder("S").byteorder == "<" and value.dtype.itemsize > 1
    return array(f"{'>' if big else ''}{value.dtype.kind}{value.dtype.itemsize}", bool(value.flags.writeable))
