"""What a capture is read from or written to: a path, ``-``, ``fd=N``, a FIFO or a Unix socket, as open descriptors.

Descriptors that were given (standard input, ``fd=N``) are duplicated, so closing ours leaves theirs alone.
"""

import errno
import fcntl
import os
import re
import select
import socket
import stat
from dataclasses import dataclass

from wirespeed.errors import PortError

_NUMBERED = re.compile(r"(?:fd=|/dev/fd/|/proc/self/fd/)(\d{1,9})")
_STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


@dataclass
class Target:
    """An open descriptor; ``regular`` says that it is a file with positions, which can be read again."""

    fd: int
    name: str
    regular: bool
    begin: int = 0  # where reading begins
    _flags: int = -1  # the descriptor's status flags before we changed them

    def unblock(self) -> None:
        """Have writes return instead of waiting; :meth:`close` puts back what was."""
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        if not flags & os.O_NONBLOCK:
            self._flags = flags
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_NONBLOCK)

    def close(self) -> None:
        """Close it.  Closing twice is harmless."""
        if self.fd >= 0:
            if self._flags >= 0:
                fcntl.fcntl(self.fd, fcntl.F_SETFL, self._flags)
            os.close(self.fd)
            self.fd = -1


def wait_for(fd: int, events: int, timeout_s: float | None = None) -> bool:
    """Wait until a descriptor has one of ``select.POLL...``, its end or an error; whether it came within the time."""
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


def number_of(target: str, standard: int) -> int | None:
    """The descriptor that a target names by its number, ``-`` being ``standard``; None for a path."""
    if target == "-":
        return standard
    found = _NUMBERED.fullmatch(target)
    return int(found[1]) if found else _STANDARD.get(target)


def open_source(target: str) -> Target:
    """Open a target for reading.  Raises :class:`PortError`."""
    number = number_of(target, 0)
    fd = _duplicate(target, number) if number is not None else _open_path(target)
    made = Target(fd, "standard input" if number == 0 else target, False)
    try:
        mode = os.fstat(fd).st_mode
        if os.isatty(fd):
            raise PortError(f"{made.name} is a terminal, wanted a capture; redirect or pipe one into it")
        if stat.S_ISDIR(mode):
            raise PortError(f"{target} is a directory, wanted a capture file; name a file in it")
        made.regular = stat.S_ISREG(mode) or stat.S_ISBLK(mode)
        if made.regular and number is not None:
            made.begin = os.lseek(fd, 0, os.SEEK_CUR)
        os.read(fd, 0)  # says so when it is open for writing only
    except OSError as error:
        made.close()
        raise _refused(target, error, "read") from error
    return made


def open_sink(target: str) -> Target:
    """Open a target for writing, a regular file anew.  Raises :class:`PortError`."""
    number = number_of(target, 1)
    fd = _reopen(target, number) if number is not None else _create_path(target)
    made = Target(fd, "standard output" if number == 1 else target, False)
    try:
        mode = os.fstat(fd).st_mode
        if os.isatty(fd):
            raise PortError(f"{made.name} is a terminal; redirect it to a file or pipe it into a program")
        # What is behind a descriptor that was given is written in order, so that its own position moves with it.
        made.regular = stat.S_ISREG(mode) and number is None
        os.write(fd, b"")
        if not made.regular:
            made.unblock()
    except OSError as error:
        made.close()
        raise _refused(target, error, "write") from error
    return made


def _refused(target: str, error: OSError, what: str) -> PortError:
    if isinstance(error, PortError):
        return error
    hint = {
        errno.ENOENT: "; check the path", errno.EACCES: "; check its permissions", errno.EPERM: "; check its permissions",
        errno.EBADF: f"; give a descriptor that is open for {what.rstrip('e')}ing",
        errno.ECONNREFUSED: "; nobody listens on that socket",
    }.get(error.errno or 0, "")  # fmt: skip
    refusal = PortError(f"cannot {what} {target}: {error.strerror or error}{hint}")
    refusal.errno = error.errno
    return refusal


def _duplicate(target: str, number: int) -> int:
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as error:
        raise _refused(target, error, "read") from error


def _reopen(target: str, number: int) -> int:
    """A descriptor for the pipe behind ``number`` with flags of its own, where there can be one; else a duplicate."""
    try:
        for_reading = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if stat.S_ISFIFO(os.fstat(number).st_mode) and not for_reading:
            return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        pass  # closed, or no /proc: what follows says which
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as error:
        raise _refused(target, error, "write") from error


def _open_path(target: str) -> int:
    """Open a path for reading; a FIFO without waiting for its writer, a socket by connecting to it."""
    try:
        if stat.S_ISSOCK(os.stat(target).st_mode):
            return _connect(target)
        fd = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(target, error, "read") from error
    _lock(fd, fcntl.LOCK_SH)
    return fd


def _create_path(target: str) -> int:
    try:
        mode = os.stat(target).st_mode
    except OSError:
        mode = stat.S_IFREG
    try:
        if stat.S_ISSOCK(mode):
            return _connect(target)
        if stat.S_ISFIFO(mode):  # waits for the reader, as every program that writes to a FIFO does
            return os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _refused(target, error, "write") from error
    if not _lock(fd, fcntl.LOCK_EX):
        os.close(fd)
        raise PortError(f"{target} is being read or written, by this run or another one; give another name")
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, 0)
    return fd


def _lock(fd: int, how: int) -> bool:
    """Lock an open file against those who would write over it; False when somebody else has.

    The lock goes with the descriptor.  Files that cannot be locked are not.
    """
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _connect(path: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as made:
        made.connect(path)
        return made.detach()
