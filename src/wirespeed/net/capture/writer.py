"""Writing a capture from Python, packet by packet.

::

    with CaptureWriter("out.pcapng") as writer:
        writer.write(frame, time=1_700_000_000_123_456_789, comment="the first one")
"""

import errno
import os
import select
from dataclasses import dataclass
from typing import Any

from wirespeed.core.arena import Arena
from wirespeed.core.frame import Packet
from wirespeed.errors import GraphError, PortError
from wirespeed.jit.libc import copy_in
from wirespeed.net.capture import heading, options, rotation
from wirespeed.net.capture.format import COMMENT, LARGEST_FRAME, USUAL_SNAPLEN
from wirespeed.net.capture.heading import PATH_ROOM, Writer
from wirespeed.net.capture.outlet import BUSY, OPTIONS_ROOM
from wirespeed.net.capture.record import NO_LINK, NO_ROOM, finish, put_entry
from wirespeed.net.capture.rotation import NAME_DIGITS
from wirespeed.net.capture.scan import Entry
from wirespeed.net.capture.target import Target, open_sink, wait_for

PATIENCE_S = 10.0  # how long the end of a stream waits for a reader that takes nothing


@dataclass(frozen=True)
class Form:
    """How a capture is to be written.

    ``pcapng`` None goes by the name's suffix; ``nanoseconds`` is pcap's resolution (pcapng has nanoseconds anyway);
    ``rotate_size`` (bytes) and ``rotate_ns`` (by the packets' times) make several files, numbered before the suffix.
    """

    pcapng: bool | None = None
    nanoseconds: bool = True
    snaplen: int = USUAL_SNAPLEN
    rotate_size: int = 0
    rotate_ns: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.snaplen <= LARGEST_FRAME:
            raise GraphError(f"snaplen must be 1 to {LARGEST_FRAME}, got {self.snaplen}; {USUAL_SNAPLEN} is usual")


class WriterMemory:
    """A ``Writer`` record, its buffer, and the file that is open; made for one target, closed once."""

    def __init__(self, target: str, form: Form) -> None:
        pcapng = target.lower().endswith((".pcapng", ".ntar")) if form.pcapng is None else form.pcapng
        finish.compile("(int64,)")  # now, for at the end there may be no room on the disk for the kernel cache
        rotates = bool(form.rotate_size or form.rotate_ns)
        first, digits = numbered(target) if rotates else (target, 0)
        self.target: Target = open_sink(first)
        self._arena = Arena(heading.MEMORY + Writer.size + 4096, huge=False)
        self.address = self._arena.alloc(Writer.size)
        stream = not self.target.regular
        if rotates and stream:
            self.close()
            raise PortError(
                f"{target} is not a regular file, which rotation needs; leave out rotate_size and rotate_time"
            )
        memory = self._arena.alloc(heading.MEMORY)
        heading.init(self.address, memory, self.target.fd, stream=stream, pcapng=pcapng)
        self.record.micro, self.record.snaplen = not form.nanoseconds, form.snaplen
        if rotates:
            rotation.init(self.address, os.fsencode(first), digits, form.rotate_size, form.rotate_ns)

    @property
    def record(self) -> Any:
        """The ``Writer`` record."""
        return Writer.at(self.address)

    def finish(self) -> None:
        """Write what is left, waiting for a slow reader as long as it takes something now and then."""
        while finish(self.address) == BUSY:
            before = self.record.outlet.sent
            wait_for(self.target.fd, select.POLLOUT, PATIENCE_S)
            if finish(self.address) == BUSY and self.record.outlet.sent == before:
                self.abandon(errno.ETIMEDOUT)
                return

    def abandon(self, code: int) -> None:
        """Count what is in the buffer as lost."""
        outlet = self.record.outlet
        outlet.errors, outlet.errno = outlet.errors + 1, outlet.errno or code
        outlet.lost, outlet.waiting, outlet.broken = outlet.lost + outlet.waiting, 0, 1

    def trouble(self) -> str | None:
        """What went wrong, in words."""
        outlet = self.record.outlet
        if not outlet.errors:
            return None
        times = f" ({outlet.errors} times)" if outlet.errors > 1 else ""
        return f"{self.target.name} could not be written{times}: {os.strerror(outlet.errno)}"

    def close(self) -> None:
        """Close the file and give back the memory; what was not finished is gone.  Closing twice is harmless."""
        if self.address and self.record.outlet.fd:
            self.target.fd = self.record.outlet.fd  # rotation has put another one in its place
        self.target.close()
        self._arena.close()
        self.address = 0


def numbered(target: str) -> tuple[str, int]:
    """The name of the first of several files, and where in its bytes the number stands: ``out-00001.pcap``."""
    stem, suffix = os.path.splitext(target)
    name = f"{stem}-{1:0{NAME_DIGITS}}{suffix}"
    if len(os.fsencode(name)) >= PATH_ROOM:
        raise PortError(f"the path {target[:60]}... is longer than {PATH_ROOM - NAME_DIGITS - 2} bytes; shorten it")
    return name, len(os.fsencode(stem)) + 1


class CaptureWriter:
    """Writes a path, ``-``, ``fd=N``, a FIFO or a socket; pcapng where the name ends so, else pcap of nanoseconds.

    :meth:`close` writes what is left, and raises :class:`PortError` for packets that could not be written.
    """

    def __init__(self, target: str | os.PathLike[str], form: Form | None = None) -> None:
        put_entry.compile("(int64, int64)")
        self._memory = WriterMemory(os.fspath(target), form or Form())
        self._room = Arena(LARGEST_FRAME + OPTIONS_ROOM + Entry.size + 4096, huge=False)
        self._entry = self._room.alloc(Entry.size)
        self._data, self._options = self._room.alloc(LARGEST_FRAME), self._room.alloc(OPTIONS_ROOM)

    def write(
        self, data: Any, *, time: int = 0, wire: int | None = None, link: int = 1, interface: int = 0, comment: str = ""
    ) -> None:
        """Write one packet: bytes, or anything with ``__bytes__``; ``time`` is in nanoseconds since 1970.

        ``comment`` and ``interface`` are kept in pcapng only.  Raises :class:`PortError` when it cannot be written, or
        has another link type than those before in a pcap file.
        """
        frame = bytes(data)
        if len(frame) > LARGEST_FRAME:
            raise PortError(f"got a frame of {len(frame)} bytes, wanted at most {LARGEST_FRAME}; cut it")
        if isinstance(data, Packet):
            time, wire, link = time or data.time, data.wire if wire is None else wire, data.link
        said = options.build([(COMMENT, comment.encode())]) if comment else b""
        entry = Entry.at(self._entry)
        entry.address, entry.time, entry.captured, entry.link = self._data, time, len(frame), link
        entry.wire, entry.interface = len(frame) if wire is None else wire, interface
        entry.options, entry.options_size = self._options, len(said)
        copy_in(self._data, frame)
        copy_in(self._options, said)
        self._put()

    def _put(self) -> None:
        while (result := put_entry(self._memory.address, self._entry)) == NO_ROOM:
            wait_for(self._memory.target.fd, select.POLLOUT)
        if result == NO_LINK:
            have = self._memory.record.link
            raise PortError(f"{self._memory.target.name} holds packets of link type {have} only; write a .pcapng file")
        trouble = self._memory.trouble()
        if trouble:
            raise PortError(trouble)

    def flush(self) -> None:
        """Write all that waits in the buffer."""
        self._memory.finish()

    def close(self) -> None:
        """Finish the file.  Closing twice is harmless."""
        if not self._memory.address:
            return
        self._memory.finish()
        trouble = self._memory.trouble()
        self._memory.close()
        self._room.close()
        if trouble:
            raise PortError(trouble)

    def __enter__(self) -> "CaptureWriter":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
