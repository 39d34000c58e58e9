"""A capture as NumPy columns: when, how long, which layers, which flow.

::

    for columns in ws.read("in.pcap"):
        print(columns.length.sum(), (columns.dport == 53).sum())
    table = pandas.DataFrame.from_arrow(ws.read("in.pcap"))

Only headers are looked at.  Memory is bounded by the number of rows that are asked for at once.
"""

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from wirespeed.core.frame import Packet
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import store_be64, store_u8, store_u16, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net import flow
from wirespeed.net.capture.reader import CaptureReader
from wirespeed.net.capture.scan import ENTRY, Entry
from wirespeed.net.hashing import hash_words
from wirespeed.net.parse import EVERYTHING, find

i64, u64 = np.int64, np.uint64

# name -> (NumPy type, what it holds)
COLUMNS: dict[str, tuple[str, str]] = {
    "time": ("i8", "nanoseconds since 1970; 0 where the file gives no time"),
    "length": ("u4", "bytes on the wire"),
    "captured": ("u4", "bytes in the file"),
    "link": ("u2", "link type (LINKTYPE_*)"),
    "interface": ("u4", "number of the interface in the file"),
    "layers": ("u4", "bits of the outer headers that are whole, as in wirespeed.net.parse.BITS, and its flags"),
    "version": ("u1", "IP version; 0 where there is no IP"),
    "proto": ("u1", "IP protocol behind all extension headers"),
    "src": ("V16", "source address as 16 bytes; IPv4 is mapped as in RFC 4291, 2.5.5.2"),
    "dst": ("V16", "destination address, likewise"),
    "sport": ("u2", "source port; 0 where the frame has none"),
    "dport": ("u2", "destination port, likewise"),
    "hash": ("u4", "flow hash, another one for each direction; fragments of a datagram have one"),
}

Rows = layout("ColumnRows", [(name, "i8") for name in COLUMNS])


@kernel(inline=True)
def store_address(at, version, high, low):
    """Write an address as 16 bytes in network order."""
    store_be64(at, high)
    store_be64(at + 8, low | u64(0xFFFF00000000) if version == 4 else low)


@kernel
def fill(rows, first, entries, n):
    """Write the rows of ``n`` entries of a scan, from row ``first`` on."""
    r = Rows(rows)
    for i in range(n):
        e = Entry(entries + ENTRY * i)
        row = first + i
        frame, length, link = e.address, i64(e.captured), i64(e.link)
        layers = find(frame, length, link, EVERYTHING)[0]
        src_hi, src_lo, dst_hi, dst_lo, rest, flags = flow.five_tuple(frame, length, link)
        version = i64(rest >> u64(8) & u64(255))
        store_u64(r.time + 8 * row, u64(e.time))
        store_u32(r.length + 4 * row, e.wire)
        store_u32(r.captured + 4 * row, e.captured)
        store_u16(r.link + 2 * row, e.link)
        store_u32(r.interface + 4 * row, e.interface)
        store_u32(r.layers + 4 * row, layers)
        store_u8(r.version + row, version)
        store_u8(r.proto + row, rest & u64(255))
        store_address(r.src + 16 * row, version, src_hi, src_lo)
        store_address(r.dst + 16 * row, version, dst_hi, dst_lo)
        store_u16(r.sport + 2 * row, rest >> u64(48))
        store_u16(r.dport + 2 * row, rest >> u64(32) & u64(0xFFFF))
        store_u32(r.hash + 4 * row, hash_words(src_hi, src_lo, dst_hi, dst_lo, rest, flags, False))


class Columns:
    """Some packets of a capture, a NumPy array for each of :data:`COLUMNS`, as attributes and by name."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        self.arrays = arrays

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name.startswith("_") or name not in self.arrays:
            raise AttributeError(f"no column {name!r}; the columns are {', '.join(COLUMNS)}")
        return self.arrays[name]

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name]

    def keys(self) -> list[str]:
        """The names of the columns."""
        return list(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays["time"])

    def __repr__(self) -> str:
        return f"<Columns of {len(self)} packets: {', '.join(self.arrays)}>"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return _stream(iter([self]))


class Capture:
    """A capture to be read as columns; each iteration reads it from its beginning.

    ``rows`` packets are given at once.  It goes to pandas, polars, duckdb and pyarrow as it is, by the Arrow C stream
    interface.  A source that is not a file by name (a pipe, an open file) can be read once.
    """

    def __init__(self, source: str | os.PathLike[str] | int | BinaryIO, rows: int, strict: bool) -> None:
        self.source = source
        self.rows = rows
        self.strict = strict
        CaptureReader(source, strict=strict).close() if isinstance(source, str | os.PathLike) else None

    def __iter__(self) -> Iterator[Columns]:
        with CaptureReader(self.source, strict=self.strict) as reader:
            yield from _batches(reader, self.rows)

    def table(self) -> Columns:
        """All packets at once."""
        parts = list(self)
        return Columns({name: np.concatenate([p[name] for p in parts] or [_empty(name, 0)]) for name in COLUMNS})

    def packets(self) -> Iterator[Packet]:
        """Each packet with its bytes, as a value; ``to_scapy()`` makes a scapy packet of it."""
        with CaptureReader(self.source, strict=self.strict) as reader:
            yield from reader.packets()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return _stream(iter(self))


def read(source: str | os.PathLike[str] | int | BinaryIO, *, rows: int = 1 << 16, strict: bool = False) -> Capture:
    """A capture file, pipe or open file as columns, ``rows`` packets at a time.

    Formats and compression are told by content.  Damage ends the reading and is logged; with ``strict`` it is raised,
    after the good packets.  Raises :class:`PortError` at once when there is no such file.
    """
    if not 1 <= rows <= 1 << 26:
        raise GraphError(f"rows must be 1 to {1 << 26}, got {rows}; 65536 suits most uses")
    return Capture(source, rows, strict)


def _stream(batches: Iterator[Columns]) -> Any:
    from wirespeed.apps import arrow  # which compiles its callbacks when it is loaded

    kinds = {name: arrow.TIME if name == "time" else kind for name, (kind, _) in COLUMNS.items()}
    return arrow.stream((columns.arrays for columns in batches), kinds)


def _empty(name: str, rows: int) -> npt.NDArray[Any]:
    return np.empty(rows, COLUMNS[name][0])


def _batches(reader: CaptureReader, rows: int) -> Iterator[Columns]:
    """Columns of ``rows`` packets each, fewer in the last."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    at = 0
    record = np.zeros(Rows.size, np.uint8)
    while (burst := reader.read()) is not None:
        entries, done = burst.entries, 0
        while done < len(entries):
            if not arrays:
                arrays, at = {name: _empty(name, rows) for name in COLUMNS}, 0
                view = Rows(record)
                for name, array in arrays.items():
                    setattr(view, name, array.ctypes.data)
            # Bounds: the arrays hold ``rows`` rows, and ``n`` does not go beyond them.
            n = min(len(entries) - done, rows - at)
            fill(record.ctypes.data, at, entries.ctypes.data + ENTRY * done, n)
            at, done = at + n, done + n
            if at == rows:
                yield Columns(arrays)
                arrays = {}
    if arrays:
        yield Columns({name: array[:at] for name, array in arrays.items()})
