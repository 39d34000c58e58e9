"""The types that signatures of entries are written with."""

from numba import types

from wirespeed.jit.python import reference

int64, uint64, boolean = types.int64, types.uint64, types.boolean

__all__ = ["boolean", "int64", "reference", "uint64"]
