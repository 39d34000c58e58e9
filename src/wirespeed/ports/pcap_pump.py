"""What unpacks a compressed capture beside the workers: from a file or a stream, through a pipe, to the scan.

Theory of operation
-------------------
The control thread calls :meth:`Pump.work` again and again.  It unpacks a piece, puts it into the pipe, and comes back
later when the pipe is full; so memory is bounded, and a worker that reads slowly slows the unpacking.  For another pass
over a file, the scan is told where this one ends (``boundary`` of its window), and the next one is put into the pipe
once the scan has got there.
"""

import fcntl
import os
import select
from collections.abc import Iterator

from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.kernel import kernel
from wirespeed.net.capture.container import PLAIN, Damaged, Unpacker
from wirespeed.net.capture.target import wait_for
from wirespeed.net.capture.window import Window

READ = 1 << 16
PIPE = 1 << 20  # bytes that wait at most; what an unprivileged process may ask for
SLICES = 16  # pieces in one call, so that the control thread is never away for long
SOON_S, LATER_S = 0.0005, 0.002


@kernel
def set_boundary(window, offset):
    """Say at which offset a pass ends (W1, as the window's docstring has it)."""
    store_release(Window(window), "boundary", offset)


@kernel
def boundary_of(window):
    """The offset at which a pass ends, or -1 once the scan has got there (pairs with W2)."""
    return load_acquire(Window(window), "boundary")


class Pump:
    """A pipe, and what unpacks ``fd`` into it ``passes`` times more often than once (-1: without end)."""

    def __init__(self, fd: int, passes: int, window: int) -> None:
        self.fd, self.passes, self.window = fd, passes, window
        self.damage: str | None = None
        self.started = False
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE)
        except OSError:
            pass  # the user's pipes take too much already; the usual size serves as well
        self._kind, self._first, self._begin = PLAIN, b"", -1
        self._waiting = memoryview(b"")
        self._pass: Iterator[bytes] = iter(())
        self._at = self._given = 0

    def start(self, kind: int, first: bytes = b"", begin: int = -1) -> None:
        """Begin: ``first`` was read already, the rest comes from the offset ``begin``, or of a stream (-1) in order."""
        self.started = True
        self._kind, self._first, self._begin = kind, first, begin
        self._start_pass()

    def _start_pass(self) -> None:
        self._at, self._given = self._begin, 0
        self._pass = self._pieces(Unpacker(self._kind))

    def _pieces(self, unpacker: Unpacker) -> Iterator[bytes]:
        """The unpacked bytes of one pass; an empty piece where a stream has nothing at the moment."""
        yield from unpacker.unpack(self._first)
        while (chunk := self._read()) is not None:
            if chunk:
                yield from unpacker.unpack(chunk)
            else:
                yield b""
        unpacker.finish()

    def _read(self) -> bytes | None:
        """Compressed bytes: none at the moment when empty, none any more when None."""
        if self._begin >= 0:
            chunk = os.pread(self.fd, READ, self._at)
        elif wait_for(self.fd, select.POLLIN, 0):
            chunk = os.read(self.fd, READ)
        else:
            return b""
        self._at += len(chunk)
        return chunk or None

    def work(self) -> float | None:
        """Do a little; seconds until more can be done, None when all is done."""
        if self.writer < 0:
            return None
        for _ in range(SLICES):
            wait = self._step()
            if wait != 0.0:
                return wait
        return 0.0

    def _step(self) -> float | None:
        if self._waiting:
            return self._write()
        try:
            piece = next(self._pass, None)
        except (Damaged, OSError) as error:
            self.damage = str(error)
            self._end()
            return None
        if piece is None:
            return self._end_pass()
        self._waiting = memoryview(piece)
        return 0.0 if piece else LATER_S

    def _write(self) -> float | None:
        try:
            size = os.write(self.writer, self._waiting)
        except BlockingIOError:
            return SOON_S
        except BrokenPipeError:
            self._end()
            return None
        self._waiting = self._waiting[size:]
        self._given += size
        return 0.0

    def _end_pass(self) -> float | None:
        if self.passes == 0:
            self._end()
            return None
        if self._given >= 0:
            set_boundary(self.window, self._given)
            self._given = -1
        if boundary_of(self.window) >= 0:
            return LATER_S
        self.passes -= self.passes > 0
        self._start_pass()
        return 0.0

    def _end(self) -> None:
        os.close(self.writer)
        self.writer = -1

    def close(self) -> None:
        """Close the pipe.  Closing twice is harmless."""
        if self.writer >= 0:
            self._end()
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1
