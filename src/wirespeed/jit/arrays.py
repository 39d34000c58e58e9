"""A NumPy array's memory, for a kernel that was handed the array itself as a ``reference``.

Why not numba's own arrays: those are of one item type and one number of dimensions, and a kernel is compiled anew for
each; asking NumPy for the address takes a microsecond in Python.  The head of an array object has had the same fields
since NumPy 1.7, for compiled extensions read them: data, number of dimensions, lengths, strides, base, type, flags.
That this holds for the NumPy at hand is checked once (:func:`check`), before any kernel relies on it.
Source: NumPy's C API, "Python Types and C-Structures".
"""

from typing import Any

import numpy as np

from wirespeed.jit.intrinsics import load_i64, load_u32
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.python import address_of, reference
from wirespeed.jit.types import int64

ArrayObject = layout(
    "ArrayObject",
    [
        ("refcnt", "i8"),
        ("type", "i8"),
        ("data", "i8"),
        ("dimensions", "i8"),  # an int and four bytes of padding
        ("lengths", "i8"),
        ("strides", "i8"),
        ("base", "i8"),
        ("descr", "i8"),
        ("flags", "u4"),
    ],
)
C_CONTIGUOUS, WRITEABLE = 0x1, 0x400  # NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE in ndarraytypes.h


@kernel(inline=True)
def length_of(array, array_type, descr):
    """How many items a one-dimensional contiguous array has; -1 when the object is no such array of that type."""
    a = ArrayObject(array)
    # Bounds: any object begins with its count and its type; what follows is read only of an array.
    if a.type != array_type:
        return np.int64(-1)
    if np.int64(load_u32(array + 24)) != 1 or a.descr != descr or a.flags & C_CONTIGUOUS == 0:
        return np.int64(-1)
    return load_i64(a.lengths)


@kernel(inline=True)
def writeable(array):
    """Whether an array may be written."""
    return ArrayObject(array).flags & WRITEABLE != 0


@kernel(inline=True)
def data_of(array):
    """The address of an array's first item."""
    return ArrayObject(array).data


@entry(int64(reference, int64, int64))
def _length(array, array_type, descr):
    return length_of(address_of(array), array_type, descr)


@entry(int64(reference))
def _data(array):
    return data_of(address_of(array)) if writeable(address_of(array)) else np.int64(0)


def check() -> None:
    """Raise RuntimeError when this NumPy's arrays look otherwise than kernels take them to."""
    for dtype in (np.dtype("u8"), np.dtype("u4")):
        for array, expected in (
            (np.arange(5).astype(dtype), 5),
            (np.zeros(0, dtype), 0),
            (np.zeros((5, 5), dtype), -1),
            (np.zeros(10, dtype)[::2], -1),
            (np.zeros(5, "f2"), -1),
            ([1], -1),
        ):
            found = _length.function(array, id(np.ndarray), id(dtype))
            if found != expected:
                raise RuntimeError(_WORDS.format(f"length {found} where {expected} was expected"))
            if found > 0 and _data.function(array) != _address(array):
                raise RuntimeError(_WORDS.format("the data is elsewhere"))


def _address(array: Any) -> int:
    return int(array.ctypes.data)


_WORDS = (
    f"NumPy {np.__version__} keeps its arrays otherwise than wirespeed knows ({{}}); install the version it asks for"
)
