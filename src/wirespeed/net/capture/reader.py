"""Reading a capture from Python: bursts of packets as NumPy columns over memory, or packets one by one.

::

    with CaptureReader("in.pcap") as reader:
        for burst in reader:
            print(burst.time, burst.captured)    # columns, good until the next burst
        print(reader.interfaces, reader.damage)
"""

import logging
import os
import select
from collections.abc import Iterator
from typing import Any, BinaryIO

from wirespeed.core.arena import Arena
from wirespeed.core.frame import Packet
from wirespeed.errors import PortError
from wirespeed.net.capture import damage, description, scan, window
from wirespeed.net.capture.burst import Burst
from wirespeed.net.capture.container import Damaged, Unpacker
from wirespeed.net.capture.damage import Damage
from wirespeed.net.capture.description import InterfaceDescription, Section
from wirespeed.net.capture.scan import CONTAINER, PCAP, Entry, Scan
from wirespeed.net.capture.scanner import find, init
from wirespeed.net.capture.target import Target, open_source, wait_for

log = logging.getLogger("wirespeed")
READ = 1 << 18
WINDOW = Scan.offset("window")


class CaptureReader:
    """Reads a path, ``-``, a descriptor's number or an open binary file; iterating gives bursts.

    ``damage`` is what the capture ended with if it was damaged, and None before that; ``fault`` the first of
    ``faults`` things that were passed over.  Damage is logged, or raised after the good packets with ``strict``.
    Memory is bounded whatever the size of the file.  Ctrl-C works while it waits.
    """

    def __init__(self, source: str | os.PathLike[str] | int | BinaryIO, *, strict: bool = False) -> None:
        self.strict = strict
        self.damage: Damage | None = None
        self._over = False
        self._target: Target | None = None
        self._pushed: Iterator[bytes] | None = None
        self._waiting = memoryview(b"")
        self._notes, self._sections, self._interfaces = 0, list[Section](), list[InterfaceDescription]()
        self._arena = Arena(scan.MEMORY + Scan.size + 4096)
        memory = self._arena.alloc(scan.MEMORY, 4096)
        self.address = self._arena.alloc(Scan.size)
        try:
            self._open(source, memory)
        except BaseException:
            self.close()
            raise

    def _open(self, source: Any, memory: int) -> None:
        if hasattr(source, "read"):
            self.name = str(getattr(source, "name", "a file object"))
            self._pushed = iter(lambda: source.read(READ), b"")
            init(self.address, memory, -1, window.PUSHED)
            return
        self._target = open_source(f"fd={source}" if isinstance(source, int) else os.fspath(source))
        self.name = self._target.name
        source = window.FILE if self._target.regular else window.STREAM
        init(self.address, memory, self._target.fd, source, begin=self._target.begin)

    @property
    def _record(self) -> Any:
        return Scan.at(self.address)

    def __iter__(self) -> Iterator[Burst]:
        while (burst := self.read()) is not None:
            yield burst

    def packets(self) -> Iterator[Packet]:
        """Every packet as a value that stays good."""
        for burst in self:
            for i in range(len(burst)):
                yield burst.packet(i)

    def read(self) -> Burst | None:
        """The next burst, waiting for it where the bytes come from a stream; None at the end."""
        while self.address and not self._over:
            n = int(find(self.address))
            if n:
                return Burst(Entry.array_at(self._record.entries, n))
            self.go_on()
        return None

    def go_on(self) -> bool:
        """After a scan that found nothing: wait for bytes, unpack them, or conclude; whether there can be more.

        For who scans with a kernel of his own, over the ``Scan`` at ``address``.
        """
        if not self.address or self._over:
            return False
        if self._record.container:
            self._unpack()
        elif self.damage or not self._more():
            self._over = True
            self._conclude()
        return not self._over

    def _more(self) -> bool:
        """Bring more bytes into reach of the scan; False when it is over."""
        record = self._record
        if record.damage.what or record.window.ended:
            return False
        if record.window.source == window.PUSHED:
            self._push()
        elif record.window.source == window.STREAM:
            wait_for(record.window.fd, select.POLLIN)
        return True

    def _push(self) -> None:
        if not self._waiting and self._pushed is not None:
            try:
                self._waiting = memoryview(next(self._pushed, b""))
            except Damaged as error:
                self.damage = Damage(int(CONTAINER), 0, 0, 0, str(error))
        if not self._waiting:
            self._record.window.ended = 1
        self._waiting = self._waiting[window.push(self.address + WINDOW, self._waiting) :]

    def _unpack(self) -> None:
        """Put a decompressor between the bytes and the scan."""
        record = self._record
        rest = self._pushed if self._pushed is not None else self._raw(record.window.offset)
        first = window.hand_over(self.address + WINDOW) + bytes(self._waiting)
        unpacker = Unpacker(record.container)
        record.container = 0
        self._waiting = memoryview(b"")

        def unpacked() -> Iterator[bytes]:
            yield from unpacker.unpack(first)
            for chunk in rest:
                yield from unpacker.unpack(chunk)
            unpacker.finish()

        self._pushed = unpacked()

    def _raw(self, at: int) -> Iterator[bytes]:
        """The bytes of the target from an offset on."""
        assert self._target is not None
        while True:
            if self._target.regular:
                chunk = os.pread(self._target.fd, READ, at)
            else:
                wait_for(self._target.fd, select.POLLIN)
                chunk = os.read(self._target.fd, READ)
            if not chunk:
                return
            at += len(chunk)
            yield chunk

    def _conclude(self) -> None:
        found, _ = damage.of_scan(self._record)
        self.damage = self.damage or found
        if self.damage:
            text = f"{self.name}: {self.damage}; the {self._record.packets} packets before are good"
            if self.strict:
                raise PortError(text)
            log.warning("%s", text)

    def _describe(self) -> None:
        for following, found in description.notes(self._record, self._notes):
            self._notes = following
            if isinstance(found, Section):
                self._sections.append(found)
            else:
                self._interfaces.append(found)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections of a pcapng file, as far as it was read; one that repeats the one before is not told again."""
        self._describe()
        return tuple(self._sections)

    @property
    def interfaces(self) -> tuple[InterfaceDescription, ...]:
        """The interfaces, as far as the file was read: ``interfaces[n]`` is that of packets whose ``interface`` is n."""
        if self._record.format == PCAP:
            return (description.of_pcap(self._record),)
        self._describe()
        return tuple(self._interfaces)

    @property
    def faults(self) -> int:
        """How many things were passed over that should not be in a capture."""
        return int(self._record.faults)

    @property
    def fault(self) -> Damage | None:
        """The first of the ``faults``."""
        return damage.read_mark(self._record.fault)

    def close(self) -> None:
        """Give back memory and descriptor; bursts are gone with it.  Closing twice is harmless."""
        if self._target:
            self._target.close()
        self._arena.close()
        self.address = 0

    def __enter__(self) -> "CaptureReader":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
