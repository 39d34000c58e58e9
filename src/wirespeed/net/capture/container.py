"""Compressed captures: gzip, bzip2, xz and zstd, told by their first bytes, unpacked piece by piece.

Theory of operation
-------------------
An :class:`Unpacker` is given the compressed bytes as they come, in pieces of any size, and yields the bytes inside in
bounded pieces, so that a file of a few kilobytes which unpacks to terabytes costs time and no memory.  Files made of
several streams one behind the other (``cat a.gz b.gz``) are one file.  What was unpacked before damage is yielded
before :class:`Damaged` is raised, except for the last kilobyte's worth.

Source: RFC 1952 (gzip), the bzip2 and xz file formats, RFC 8878 (zstd).
"""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import Any

import zstandard

from wirespeed.errors import PortError
from wirespeed.jit.kernel import kernel

PLAIN, GZIP, BZIP2, XZ, ZSTD = range(5)
NAMES = {GZIP: "gzip", BZIP2: "bzip2", XZ: "xz", ZSTD: "zstd"}
MAGIC = {GZIP: b"\x1f\x8b", BZIP2: b"BZh", XZ: b"\xfd7zXZ\x00", ZSTD: b"\x28\xb5\x2f\xfd"}
# The first bytes as a machine integer, and how many bits of it count.
GZIP_FIRST, BZIP2_FIRST, XZ_FIRST, ZSTD_FIRST = 0x8B1F, 0x685A42, 0x587A37FD, 0xFD2FB528

# Compressed bytes given to a decompressor at a time: a kilobyte of zstd can unpack to 32 MB, and no more.
STEP = 1024
PIECE = 1 << 18  # bytes yielded at a time, about
# What a decompressor may take; the largest window of `xz -9` needs 65 MB, that of `zstd --ultra --long=27` 128 MB.
MEMORY = 160 << 20


@kernel(inline=True)
def tell(magic):
    """The container whose first four bytes are the 32-bit ``magic``, in machine order; PLAIN for none."""
    if magic & 0xFFFF == GZIP_FIRST:
        return GZIP
    if magic & 0xFFFFFF == BZIP2_FIRST:
        return BZIP2
    if magic == XZ_FIRST:
        return XZ
    if magic == ZSTD_FIRST:
        return ZSTD
    return PLAIN


def kind_of(first: bytes) -> int:
    """The container that begins with these four bytes; PLAIN for none."""
    return next((kind for kind, magic in MAGIC.items() if first.startswith(magic[:4])), PLAIN)


class Damaged(PortError):
    """A compressed stream is cut short or is not one; what came before was good."""


class Unpacker:
    """Unpacks one file of the container ``kind`` (GZIP, BZIP2, XZ or ZSTD)."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self._stream: Any = None  # the decompressor of the stream that is under way
        self._pending = b""  # what follows a stream and is not enough to tell what it is
        self._streams = 0
        self.taken = 0  # compressed bytes so far

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """The bytes inside ``data``, in pieces.  Raises :class:`Damaged` where it stops making sense."""
        pieces, size = [], 0
        try:
            for begin in range(0, len(data), STEP):
                for piece in filter(None, self._step(data[begin : begin + STEP])):
                    pieces.append(piece)
                    size += len(piece)
                    if size >= PIECE:
                        yield b"".join(pieces)
                        pieces, size = [], 0
                self.taken += len(data[begin : begin + STEP])
        except (zlib.error, OSError, lzma.LZMAError, zstandard.ZstdError, EOFError, ValueError) as error:
            if pieces:
                yield b"".join(pieces)
            if isinstance(error, Damaged):
                raise
            raise Damaged(f"the {NAMES[self.kind]} stream is damaged near its byte {self.taken}: {error}") from error
        if pieces:
            yield b"".join(pieces)

    def finish(self) -> None:
        """Say that there are no more compressed bytes.  Raises :class:`Damaged` when a stream is not whole."""
        if self._stream is not None or not self._streams:
            raise Damaged(f"the {NAMES[self.kind]} stream ends too early, at its byte {self.taken}")
        if self._pending:
            raise Damaged(self._rubbish())

    def _rubbish(self) -> str:
        return f"what follows the end of the {NAMES[self.kind]} stream, near byte {self.taken}, is not another one"

    def _step(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                data = self._begin(data)
                continue
            yield from self._run(data)
            if not self._stream.eof:
                return
            data = self._stream.unused_data
            self._stream = None
            self._streams += 1

    def _begin(self, data: bytes) -> bytes:
        """Begin the next stream; what is left of ``data`` for it."""
        data = self._pending + data
        self._pending = b""
        if self._streams:
            data = data.lstrip(b"\0")  # tapes and xz pad with zeros
        magic = MAGIC[self.kind]
        if not data.startswith(magic[: len(data)]) and not _skippable(self.kind, data):
            raise Damaged(self._rubbish())
        if len(data) < len(magic):
            self._pending = data
            return b""
        self._stream = _decompressor(self.kind)
        return data

    def _run(self, data: bytes) -> Iterator[bytes]:
        stream = self._stream
        if self.kind == ZSTD:  # it has no bound of its own, but STEP is one
            yield stream.decompress(data)
            return
        yield stream.decompress(data, PIECE)
        while not stream.eof and (rest := _waiting(stream)) is not None:
            yield stream.decompress(rest, PIECE)


def _waiting(stream: Any) -> bytes | None:
    """What to give a decompressor that has more to say; None when it has not."""
    if hasattr(stream, "unconsumed_tail"):
        return stream.unconsumed_tail or None
    return None if stream.needs_input else b""


def _skippable(kind: int, data: bytes) -> bool:
    """Whether a frame that zstd passes over (RFC 8878, section 3.1.2) begins here."""
    return kind == ZSTD and data[0] & 0xF0 == 0x50 and b"\x2a\x4d\x18".startswith(data[1:4])


def _decompressor(kind: int) -> Any:
    if kind == GZIP:
        return zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: with gzip's header and trailer
    if kind == BZIP2:
        return bz2.BZ2Decompressor()
    if kind == XZ:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY)
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
