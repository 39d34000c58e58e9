"""Columns as an Arrow C stream, with nothing copied and no Arrow library needed.

Theory of operation
-------------------
Whoever takes the stream (pandas, polars, duckdb, pyarrow) reads our NumPy arrays in place.  Each structure holds one
reference, to a Python list of all that it needs, which is let go of by the structure's ``release``.  A consumer calls
that from any thread, and while an exception of its own is on its way, so it is compiled and runs no Python code.

Source: the Arrow specification, "The Arrow C data interface" and "The Arrow C stream interface"; the capsule's name is
that of "The Arrow PyCapsule Interface".
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wirespeed.jit.intrinsics import load_i64
from wirespeed.jit.kernel import callback, kernel
from wirespeed.jit.layout import Layout, layout
from wirespeed.jit.python import call_address, hold, let_go

ArrowSchema = layout(
    "ArrowSchema",
    [
        ("format", "i8"), ("name", "i8"), ("metadata", "i8"), ("flags", "i8"), ("n_children", "i8"),
        ("children", "i8"), ("dictionary", "i8"), ("release", "i8"), ("private_data", "i8"),
    ],
)  # fmt: skip
assert ArrowSchema.size == 72
ArrowArray = layout(
    "ArrowArray",
    [
        ("length", "i8"), ("null_count", "i8"), ("offset", "i8"), ("n_buffers", "i8"), ("n_children", "i8"),
        ("buffers", "i8"), ("children", "i8"), ("dictionary", "i8"), ("release", "i8"), ("private_data", "i8"),
    ],
)  # fmt: skip
assert ArrowArray.size == 80
ArrowArrayStream = layout(
    "ArrowArrayStream",
    [("get_schema", "i8"), ("get_next", "i8"), ("get_last_error", "i8"), ("release", "i8"), ("private_data", "i8")],
)
assert ArrowArrayStream.size == 40

# Format strings of the specification, by NumPy type and, for times in nanoseconds, by this module's own word.
TIME = "time"
_FORMATS = {TIME: b"tsn:UTC", "i8": b"l", "u1": b"C", "u2": b"S", "u4": b"I", "V16": b"w:16"}
_EINVAL = 22

Batch = Mapping[str, Any]  # a NumPy array for each column
Kinds = Mapping[str, str]  # a NumPy type, or TIME, for each column


@kernel(inline=True)
def release_itself(pointer):
    """Mark a structure as released, which the specification does by a ``release`` of 0, and let go of what it held."""
    held = pointer.private_data
    pointer.release = 0
    let_go(held)


@callback("void(int64)")
def release_schema(address):
    """Release a schema and those of its children that were not moved elsewhere."""
    s = ArrowSchema(address)
    for i in range(s.n_children):
        child = load_i64(s.children + 8 * i)
        if ArrowSchema(child).release != 0:
            call_address(ArrowSchema(child).release, child)
    release_itself(s)


@callback("void(int64)")
def release_array(address):
    """Release an array and those of its children that were not moved elsewhere."""
    a = ArrowArray(address)
    for i in range(a.n_children):
        child = load_i64(a.children + 8 * i)
        if ArrowArray(child).release != 0:
            call_address(ArrowArray(child).release, child)
    release_itself(a)


@callback("void(int64)")
def release_stream(address):
    """Release a stream."""
    release_itself(ArrowArrayStream(address))


def _memory(declared: Layout) -> tuple[Any, int, Any]:
    """Zeroed memory for a structure, its address, and a record over it."""
    memory = np.zeros(declared.size, np.uint8)
    return memory, memory.ctypes.data, declared(memory)


def _addresses(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


def _text(value: bytes) -> Any:
    return np.frombuffer(value + b"\0", np.uint8)


def _write_schema(address: int, kinds: Kinds) -> None:
    keep: list[Any] = []
    children = []
    for name, kind in kinds.items():
        memory, child, record = _memory(ArrowSchema)
        texts = [_text(_FORMATS[kind]), _text(name.encode())]
        record.format, record.name = (t.ctypes.data for t in texts)
        record.release, record.private_data = release_schema.address, hold(texts)
        keep.append(memory)
        children.append(child)
    table, texts = _addresses(children), [_text(b"+s"), _text(b"")]
    keep += [table, *texts]
    schema = ArrowSchema.at(address)
    schema.format, schema.name = (t.ctypes.data for t in texts)
    schema.metadata = schema.flags = schema.dictionary = 0
    schema.n_children, schema.children = len(children), table.ctypes.data
    schema.release, schema.private_data = release_schema.address, hold(keep)


def _write_array(address: int, batch: Batch, kinds: Kinds) -> None:
    keep: list[Any] = []
    children = []
    values = np.empty(0)
    for name in kinds:
        memory, child, record = _memory(ArrowArray)
        values = np.ascontiguousarray(batch[name])
        buffers = _addresses([0, values.ctypes.data])  # no null anywhere, so no bit map of them
        record.length, record.n_buffers, record.buffers = len(values), 2, buffers.ctypes.data
        record.release, record.private_data = release_array.address, hold([values, buffers])
        keep.append(memory)
        children.append(child)
    table, buffers = _addresses(children), _addresses([0])
    keep += [table, buffers]
    array = ArrowArray.at(address)
    array.length, array.null_count, array.offset = len(values), 0, 0
    array.n_buffers, array.buffers = 1, buffers.ctypes.data
    array.n_children, array.children = len(children), table.ctypes.data
    array.dictionary = 0
    array.release, array.private_data = release_array.address, hold(keep)


_Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GetError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Stream:
    """The callbacks of one stream, and the text of its last error."""

    def __init__(self, batches: Iterator[Batch], kinds: Kinds) -> None:
        self.batches = batches
        self.kinds = kinds
        self.error = _text(b"")
        self.memory, self.address, record = _memory(ArrowArrayStream)
        self.callbacks = _Get(self.get_schema), _Get(self.get_next), _GetError(self.get_last_error)
        record.get_schema, record.get_next, record.get_last_error = (
            ctypes.cast(c, ctypes.c_void_p).value for c in self.callbacks
        )
        record.release, record.private_data = release_stream.address, hold(self)

    def get_schema(self, stream: int, schema: int) -> int:
        _write_schema(schema, self.kinds)
        return 0

    def get_next(self, stream: int, array: int) -> int:
        try:
            batch = next(self.batches, None)
        except Exception as error:  # whatever it is, the consumer gets it as its own error
            self.error = _text(str(error).encode())
            return _EINVAL
        if batch is None:
            ArrowArray.at(array).release = 0  # which is how a stream ends
        else:
            _write_array(array, batch, self.kinds)
        return 0

    def get_last_error(self, stream: int) -> int:
        return int(self.error.ctypes.data)


_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAME = b"arrow_array_stream"


@callback("void(int64)")
def destroy_capsule(capsule):
    """Release a stream that nobody took; one that was taken has a ``release`` of 0."""
    # Layout of a capsule: a PyObject's two words, then the pointer (CPython's Objects/capsule.c).
    address = load_i64(capsule + 16)
    if ArrowArrayStream(address).release != 0:
        call_address(ArrowArrayStream(address).release, address)


def stream(batches: Iterator[Batch], kinds: Kinds) -> Any:
    """A capsule with an Arrow C stream over ``batches``, as ``__arrow_c_stream__`` returns it."""
    return _capsule_new(_Stream(batches, kinds).address, _NAME, destroy_capsule.address)
