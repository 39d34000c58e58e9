"""Memory that processes share: who made it, what is in it, and whether it is what the one who attaches takes it for.

Theory of operation
-------------------
A segment is a memfd, passed on by its descriptor, or a file of the shared memory file system, found by name.  It
begins with a header that says what lies in it: a magic number, a version, the kind (a ring, a pool) and a hash of the
layouts, so that two releases that differ in any offset never work on the same memory.  A named segment gets its name
when it is complete, so nobody finds half of one.

Whoever may map a segment may also spoil it: the file belongs to its user, mode 0600, and all who share it are trusted
with it.  What is checked is that they mean the same thing.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
import weakref
from collections.abc import Sequence
from typing import Any

from wirespeed.core.arena import SHARED_BASE
from wirespeed.core.mapping import Mapping
from wirespeed.errors import GraphError, PeerError, PortError
from wirespeed.jit import libc
from wirespeed.jit.layout import Layout, layout

FOLDER = "/dev/shm"  # where Linux has its shared memory file system
MAGIC = 0x44454550_53455249  # "IRESPEED" in a dump
VERSION = 1
HEADER_SIZE = 128
F_ADD_SEALS, SEALS = 1033, 0x7  # include/uapi/linux/fcntl.h: F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Header = layout(
    "Segment",
    [
        ("magic", "u8"),
        ("version", "u4"),
        ("kind", "u4"),
        ("layouts", "u8"),  # hash of the layouts in it
        ("size", "i8"),
        ("base", "i8"),  # where it must be mapped, or 0 when that does not matter
        ("member_count", "u4"),
        ("recoverer", "u4"),  # number of the member that is at mending it, or 0
        ("members", "i8"),  # offset of the members' records
    ],
    size=HEADER_SIZE,
)


def digest(layouts: Sequence[Layout]) -> int:
    """A number that two processes have in common only when they mean the same layouts."""
    text = repr([(one.name, one.hash) for one in (Header, *layouts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def check_name(name: Any) -> str:
    """The path of the segment ``name``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GraphError(f"the name of shared memory must be 1 to 64 letters, digits, _ . or -, got {name!r}")
    return f"{FOLDER}/wirespeed-{name}"


class Segment:
    """A mapped segment; made by :func:`create` or :func:`attach`.

    ``address`` is where it is mapped, ``fd`` its descriptor, for passing on.  Closing takes its name away, if it is ours,
    and closes the descriptor; those that are attached go on with the memory.  Unless it must lie at a place (``at``), it
    stays mapped until nothing refers to ``mapping`` any more.
    """

    def __init__(self, fd: int, size: int, at: int) -> None:
        self.fd, self.size = fd, size
        self.mapping = None if at else Mapping(size, fd)
        self.address = self.mapping.address if self.mapping else libc.map_memory(size, fd, at)
        self._names: list[str] = []
        self._forget = weakref.finalize(self, _forget, fd, self._names, os.getpid())

    @property
    def header(self) -> Any:
        """The header's record."""
        return Header.at(self.address)

    def named(self, path: str) -> None:
        """Note that the segment has a name, which goes when it is closed."""
        self._names.append(path)

    def close(self) -> None:
        """Let go of it.  Closing twice is harmless."""
        if not self.address:
            return
        self._forget()  # first: nobody finds what is on its way out
        if self.mapping is None:
            libc.unmap_memory(self.address, self.size)
        self.mapping, self.address, self.fd = None, 0, -1


def _forget(fd: int, names: list[str], owner: int) -> None:
    """Take a segment's name away, if this process gave it, and close its descriptor."""
    if os.getpid() == owner:
        for path in names:
            try:
                if os.path.samestat(os.stat(path), os.fstat(fd)):  # else somebody has removed it, and another made anew
                    os.unlink(path)
            except FileNotFoundError:
                pass
    os.close(fd)


def create(kind: int, size: int, layouts: Sequence[Layout], *, name: str = "", fixed: bool = False) -> Segment:
    """A new segment of at least ``size`` bytes behind its header; ``publish`` it when it is filled.

    ``fixed``: what is in it has addresses, so all map it where it is mapped here.
    """
    size = -(-(HEADER_SIZE + size) // 4096) * 4096
    if size > (room := _available()):  # the kernel would end some process for it instead of saying no
        raise PortError(errno.ENOMEM, f"no shared memory of {size} bytes: the machine has {room} left; make it smaller")
    if name:
        check_name(name)
        fd = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    else:
        fd = os.memfd_create("wirespeed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)  # so that a full file system is an error now, not a signal later
        if not name:
            fcntl.fcntl(fd, F_ADD_SEALS, SEALS)  # a shorter file would be a signal to all who read it
        segment = _mapped(fd, size, SHARED_BASE if fixed else 0)
    except OSError as error:
        os.close(fd)
        raise PortError(error.errno, f"no shared memory of {size} bytes: {os.strerror(error.errno or 0)}") from error
    header = segment.header
    header.version, header.kind, header.layouts, header.size = VERSION, kind, digest(layouts), size
    header.base = segment.address if fixed else 0
    return segment


def _available() -> int:
    """Bytes of memory that can be had without harm."""
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:"))
    except OSError as error:
        raise PortError(error.errno, f"how much memory there is cannot be told: {error.strerror}") from error


def publish(segment: Segment, name: str = "") -> None:
    """Let others attach to a segment that is filled."""
    segment.header.magic = MAGIC
    if not name:
        return
    path = check_name(name)
    try:
        # Only with a descriptor of a directory, which is not looked at, does Python follow the link to the file.
        os.link(f"/proc/self/fd/{segment.fd}", path, src_dir_fd=segment.fd, follow_symlinks=True)
    except FileExistsError:
        raise GraphError(
            f"shared memory named {name!r} exists already; attach to it, choose another name, or, if whoever made it is "
            f"gone, remove {path}"
        ) from None
    segment.named(path)


def attach(kind: int, what: str, layouts: Sequence[Layout], *, name: str = "", fd: int = -1) -> Segment:
    """Map a segment that another process made.  Raises :class:`PortError` and :class:`PeerError`."""
    where = f"named {name!r}" if name else f"at descriptor {fd}"
    try:
        mine = os.open(check_name(name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW) if name else os.dup(fd)
    except (OSError, OverflowError) as error:
        code, why = (error.errno, error.strerror) if isinstance(error, OSError) else (errno.EBADF, str(error))
        raise PortError(code, f"no {what} {where}: {why}; has its maker started, and does it still run?") from error
    try:
        segment = _checked(mine, kind, what, where, layouts)
    except BaseException:
        os.close(mine)
        raise
    return segment


def _checked(fd: int, kind: int, what: str, where: str, layouts: Sequence[Layout]) -> Segment:
    status = os.fstat(fd)
    raw = os.pread(fd, HEADER_SIZE, 0) if stat.S_ISREG(status.st_mode) else b""
    if len(raw) < HEADER_SIZE:
        raise PeerError(f"what is {where} is no {what}: {len(raw)} bytes of a header of {HEADER_SIZE}")
    header = Header(raw)
    if header.magic != MAGIC:
        raise PeerError(f"what is {where} is no {what}: its first word is {header.magic:#x}, not {MAGIC:#x}")
    if (header.version, header.layouts) != (VERSION, digest(layouts)):
        raise PeerError(
            f"the {what} {where} was made by another release of wirespeed (version {header.version}, layouts "
            f"{header.layouts:#x}; here {VERSION}, {digest(layouts):#x}); have both processes use the same"
        )
    if header.kind != kind:
        raise PeerError(f"what is {where} is no {what} but shared memory of kind {header.kind}, not {kind}")
    if header.size != status.st_size:
        raise PeerError(f"the {what} {where} says that it has {header.size} bytes, the file has {status.st_size}")
    try:
        return Segment(fd, header.size, header.base)
    except FileExistsError as error:
        raise PortError(
            error.errno,
            f"the {what} {where} must be mapped at {header.base:#x}, where this process has something already",
        ) from error
    except OSError as error:
        raise PortError(error.errno, f"the {what} {where} cannot be mapped: {error.strerror}") from error


def _mapped(fd: int, size: int, at: int) -> Segment:
    """Map it at ``at``, or at the next place above where there is room."""
    limit = at + (1 << 44)
    while True:
        try:
            return Segment(fd, size, at)
        except FileExistsError:
            at += 1 << 32
            if at >= limit:
                raise
