"""Beginning the next file of a capture when this one is large, or long in time as its packets tell it.

The next file begins before the packet that does not belong into this one.  A file that cannot be opened is no reason to
lose packets: they go on into the one that is open.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_u8, store_u8
from wirespeed.jit.kernel import kernel
from wirespeed.jit.libc import copy_in, sys_close, sys_open
from wirespeed.net.capture.heading import Writer
from wirespeed.net.capture.outlet import flush

i64 = np.int64
NAME_DIGITS = 5
ZERO, NINE = ord("0"), ord("9")
CREATE = 0o1 | 0o100 | 0o1000 | 0o2000000  # O_WRONLY, O_CREAT, O_TRUNC, O_CLOEXEC: asm-generic/fcntl.h
EMFILE = 24  # include/uapi/asm-generic/errno-base.h; there are no more names


@kernel
def next_name(w):
    """Count up the number in the file's name; False, and nothing changed, when there is none left."""
    at = w.digits + NAME_DIGITS - 1
    while load_u8(at) == NINE:
        at -= 1
        if at < w.digits:
            return False
    store_u8(at, load_u8(at) + 1)
    for after in range(at + 1, w.digits + NAME_DIGITS):
        store_u8(after, ZERO)
    return True


@kernel
def rotate(w):
    """End this file and begin the next."""
    o = w.outlet
    flush(o)
    fd = sys_open(w.path, i64(CREATE), i64(0o666)) if next_name(w) else i64(-EMFILE)
    if fd < 0:
        o.errors += 1
        if o.errno == 0:
            o.errno = -fd
        w.limit += w.rotate_size
        w.file_packets = 0  # so that a file that is too long in time is not tried again with every packet
        return
    sys_close(o.fd)
    o.fd = fd
    o.base = 0
    o.straddle = 0
    o.begin = 0
    o.fresh = 1
    w.files += 1
    w.limit = w.rotate_size
    w.file_packets = 0


@kernel
def watch_size(w, time, size):
    """Rotate when a record of ``size`` bytes does not belong into this file any more."""
    if w.file_packets > 0:
        large = w.rotate_size > 0 and w.outlet.base + w.outlet.used + size > w.limit
        if large or (w.rotate_ns > 0 and time - w.file_time >= w.rotate_ns):
            rotate(w)
    if w.file_packets == 0:
        w.file_time = time
    w.file_packets += 1


def init(writer: int, path: bytes, digits: int, size: int, time_ns: int) -> None:
    """Have the files be named ``path``, in which a number of NAME_DIGITS digits stands at ``digits``."""
    w = Writer.at(writer)
    w.digits = w.path + digits
    copy_in(w.path, path + b"\0")
    w.rotate_size = w.limit = size
    w.rotate_ns = time_ns
