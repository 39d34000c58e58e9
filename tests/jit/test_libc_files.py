"""Opening, cutting and closing files from kernels."""

import errno
import os

import numpy as np

from wirespeed.jit.kernel import kernel
from wirespeed.jit.libc import sys_close, sys_open, sys_truncate

CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


@kernel
def open_file(path, flags, mode):
    return sys_open(path, flags, mode)


@kernel
def truncate(fd, size):
    return sys_truncate(fd, size)


@kernel
def close(fd):
    return sys_close(fd)


def opened(path: str, flags: int, mode: int = 0o666) -> int:
    name = np.frombuffer(os.fsencode(path) + b"\0", np.uint8)
    return int(open_file(name.ctypes.data, flags, mode))


def test_a_file_is_made_with_its_mode_and_closed(tmp_path):
    path = str(tmp_path / "größer")
    mask = os.umask(0o027)
    fd = opened(path, CREATE)
    os.umask(mask)
    assert fd > 2
    assert os.stat(path).st_mode & 0o777 == 0o640
    assert not os.get_inheritable(fd)
    os.write(fd, b"0123456789")
    assert truncate(fd, 4) == 0
    assert close(fd) == 0
    assert close(fd) == -errno.EBADF
    assert (tmp_path / "größer").read_bytes() == b"0123"


def test_errors_are_returned_as_minus_errno(tmp_path):
    assert opened("/no/such/file", os.O_RDONLY) == -errno.ENOENT
    assert opened(str(tmp_path), CREATE) == -errno.EISDIR
    assert truncate(-1, 0) == -errno.EBADF
    reader, writer = os.pipe()
    assert truncate(writer, 0) == -errno.EINVAL
    os.close(reader)
    os.close(writer)
