"""What a ring's items are: which types, and making arrays of them without changing a value."""

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wirespeed.errors import GraphError


def item_type(given: DTypeLike) -> np.dtype[Any]:
    """The type of a ring's items, which must have a size that is a multiple of 4 bytes."""
    try:
        dtype = np.dtype(given)
    except (TypeError, ValueError) as error:
        raise GraphError(f"dtype must be one of NumPy's, got {given!r}") from error
    if given is None:
        raise GraphError("dtype must be one of NumPy's, got None; leave it out for 64-bit integers")
    if dtype.hasobject and dtype != np.dtype(object):
        raise GraphError(f"items are numbers or Python objects, not both in one as {dtype}")
    if dtype.subdtype is not None:
        raise GraphError(f"an item is one value or one record, not an array as {dtype}; put it into a record's field")
    if dtype.itemsize == 0 or dtype.itemsize % 4:
        raise GraphError(f"the size of an item must be a multiple of 4 bytes, got {dtype.itemsize} of {dtype}; pad it")
    return dtype


def converted(items: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A contiguous array of a ring's dtype with the items' values.

    Items whose values would change by it are refused; only a Python float may lose digits where items are of fewer.
    """
    if isinstance(items, np.ma.MaskedArray):
        raise GraphError("a masked array has values that are not there; give its filled() or compressed() form")
    given = _of_array(np.asarray(items), dtype) if isinstance(items, np.ndarray) else _of_values(items, dtype)
    if given.ndim != 1:
        raise GraphError(f"items go in as an array of one dimension, got {shape_of(given)}; flatten it")
    fresh = np.empty(len(given), dtype)
    fresh[:] = given
    return fresh


def _of_array(items: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if items.dtype == dtype:
        return items
    integers = items.dtype.kind in "iub" and dtype.kind in "iu"
    if items.dtype.names != dtype.names or not (integers or np.can_cast(items.dtype, dtype, "safe")):
        raise GraphError(f"items are {dtype}, got an array of {items.dtype}; convert it first")
    given = items.astype(dtype)
    if items.dtype.kind in "iub" and not np.array_equal(given.astype(items.dtype), items):
        raise GraphError(f"the array of {items.dtype} has values that {dtype} does not hold")
    if integers and not np.array_equal(given, items):  # a sign was lost, which the way back finds again
        raise GraphError(f"the array of {items.dtype} has values that {dtype} does not hold")
    return given


def _of_values(items: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        listed = list(items)
        with np.errstate(over="ignore"):  # what becomes infinite is found below
            given = np.array(listed, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise GraphError(f"items are {dtype}, and these cannot be made such: {error}") from None
    if given.ndim != 1 or len(given) != len(listed):
        raise GraphError(f"items go in one after the other, got {shape_of(given)}; flatten them")
    if dtype.kind in "mM":
        changed = [item for item, made in zip(listed, given, strict=True) if not (made == item or item != item)]
    else:
        changed = [item for item, made in zip(listed, given.tolist(), strict=True) if not _same(item, made)]
    if changed:
        raise GraphError(f"items are {dtype}, which cannot hold {changed[0]!r}; convert it first")
    return given


def _same(item: Any, made: Any) -> bool:
    if isinstance(made, float) and isinstance(item, float):
        return math.isinf(made) == math.isinf(item)
    if isinstance(made, tuple) and isinstance(item, tuple | np.void):
        parts = item if isinstance(item, tuple) else item.tolist()
        return len(parts) == len(made) and all(map(_same, parts, made))
    if isinstance(made, list | bytes | tuple):  # a record's array, or bytes, that may be cut or padded
        return bool(made == (item.tolist() if isinstance(item, np.generic | np.ndarray) else item))
    return (
        (bool(made == item) and not isinstance(item, str)) or made is item or (isinstance(made, str) and made == item)
    )


def fitting(out: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same memory as the entries take it: no subclass, and with this very dtype, not one that equals it."""
    if isinstance(out, np.ndarray) and out.dtype == dtype:
        plain = np.asarray(out)
        if plain is not out or out.dtype is not dtype:
            return plain.view(dtype)
    raise GraphError(
        f"items are taken into a writable contiguous array of {dtype} of one dimension, got {shape_of(out)}"
    )


def shape_of(array: Any) -> str:
    """What there is to say of something that is not the array that was wanted."""
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    how = "" if array.flags.c_contiguous else ", not contiguous"
    how += "" if array.flags.writeable else ", not writable"
    return f"one of {array.dtype} with shape {array.shape}{how}"
