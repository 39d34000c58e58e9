"""Calls into the C library, from kernels (the ``sys_`` functions) and, for memory, from Python.

A ``sys_`` function returns what the call returned, or minus errno when it failed.  None of them raises, and none
holds the GIL.  Source: POSIX.1-2017 and the Linux manual pages of section 2.
"""

import ctypes
import errno
import mmap
import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from wirespeed.jit.intrinsics import stack, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.machine import ARCHITECTURE

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _call(name: str, arguments: str, doc: str) -> Any:
    """An intrinsic that calls ``name``; ``arguments`` has one letter each: p address, i int, l long."""
    kinds = {"p": I8.as_pointer(), "i": I32, "l": I64}
    typed = {"p": types.int64, "i": types.int32, "l": types.int64}

    def codegen(context, builder, signature, args):
        values = []
        for letter, value, given in zip(arguments, args, signature.args, strict=True):
            value = context.cast(builder, value, given, typed[letter])
            values.append(builder.inttoptr(value, kinds["p"]) if letter == "p" else value)
        fnty = ir.FunctionType(I64, [kinds[letter] for letter in arguments])
        module = builder.module
        fn = cgutils.get_or_insert_function(module, fnty, name)
        result = builder.call(fn, values)
        # errno lives behind a call in every libc of Linux (glibc and musl both export this name).
        location = cgutils.get_or_insert_function(module, ir.FunctionType(I32.as_pointer(), []), "__errno_location")
        failed = builder.icmp_signed("==", result, I64(-1))
        answer = cgutils.alloca_once_value(builder, result)
        with builder.if_then(failed, likely=False):
            code = builder.zext(builder.load(builder.call(location, [])), I64)
            builder.store(builder.sub(I64(0), code), answer)
        return builder.load(answer)

    if len(arguments) == 1:

        @intrinsic
        def call(typingctx, a):
            return types.int64(a), codegen

    elif len(arguments) == 3:

        @intrinsic
        def call(typingctx, a, b, c):
            return types.int64(a, b, c), codegen

    elif len(arguments) == 4:

        @intrinsic
        def call(typingctx, a, b, c, d):
            return types.int64(a, b, c, d), codegen

    else:

        @intrinsic
        def call(typingctx, a, b, c, d, e, f, g):
            return types.int64(a, b, c, d, e, f, g), codegen

    call.__doc__ = doc
    return call


sys_read = _call("read", "ipl", "read(fd, address, size): bytes read, 0 at the end, minus errno.")
sys_write = _call("write", "ipl", "write(fd, address, size): bytes written, minus errno.")
sys_pread = _call("pread", "ipll", "pread(fd, address, size, offset): bytes read, 0 at the end, minus errno.")
sys_pwrite = _call("pwrite", "ipll", "pwrite(fd, address, size, offset): bytes written, minus errno.")
_syscall = _call("syscall", "lllllll", "syscall(number, six arguments).")

# System call numbers: the kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_NUMBERS = {
    "x86_64": (271, 202, 24, 257, 3, 77, 186, 44, 45, 19, 20, 299, 307),
    "aarch64": (73, 98, 124, 56, 57, 46, 178, 206, 207, 65, 66, 243, 269),
}
(
    _PPOLL, _FUTEX, _SCHED_YIELD, _OPENAT, _CLOSE, _FTRUNCATE, _GETTID,
    _SENDTO, _RECVFROM, _READV, _WRITEV, _RECVMMSG, _SENDMMSG,
) = _NUMBERS.get(ARCHITECTURE, _NUMBERS["aarch64"])  # fmt: skip
_MSG_DONTWAIT = 0x40  # include/linux/socket.h
_PIDFD_OPEN, _IO_URING_ENTER = 434, 426  # the same on all machines
_AT_FDCWD = -100  # include/uapi/linux/fcntl.h
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # not the private ones: the word may lie in memory that processes share
_BILLION = 1_000_000_000


@kernel(inline=True)
def sys_open(path, flags, mode):
    """Open the file whose path, a C string, is at an address; its descriptor, or minus errno."""
    return _syscall(_OPENAT, _AT_FDCWD, path, flags, mode, 0, 0)


@kernel(inline=True)
def sys_close(fd):
    """Close a descriptor; 0 or minus errno."""
    return _syscall(_CLOSE, np.int64(fd), 0, 0, 0, 0, 0)


@kernel(inline=True)
def sys_truncate(fd, size):
    """Have an open file end at ``size`` bytes; 0 or minus errno."""
    return _syscall(_FTRUNCATE, np.int64(fd), size, 0, 0, 0, 0)


@kernel(inline=True)
def sys_poll(fds, n, timeout_ns):
    """Wait until one of the ``n`` ``struct pollfd`` at ``fds`` is ready or the time is over; how many are ready."""
    timeout = stack(16)
    store_i64(timeout, timeout_ns // _BILLION)
    store_i64(timeout + 8, timeout_ns % _BILLION)
    return _syscall(_PPOLL, fds, n, timeout, 0, 0, 0)


@kernel(inline=True)
def sys_sleep(timeout_ns):
    """Sleep for about ``timeout_ns`` nanoseconds; less when a signal arrives."""
    return sys_poll(np.int64(0), np.int64(0), timeout_ns)


@kernel(inline=True)
def sys_yield():
    """Let another thread of this core run."""
    return _syscall(_SCHED_YIELD, 0, 0, 0, 0, 0, 0)


@kernel(inline=True)
def sys_thread():
    """The number by which Linux knows the calling thread."""
    return _syscall(_GETTID, 0, 0, 0, 0, 0, 0)


@kernel(inline=True)
def sys_pidfd_open(pid):
    """A descriptor that is readable once a process has ended, or minus errno."""
    return _syscall(_PIDFD_OPEN, np.int64(pid), 0, 0, 0, 0, 0)


@kernel(inline=True)
def sys_send(fd, address, size):
    """Send ``size`` bytes on a socket without waiting; with 0 bytes at 0, have a ring of frames transmitted."""
    return _syscall(_SENDTO, np.int64(fd), address, size, _MSG_DONTWAIT, 0, 0)


@kernel(inline=True)
def sys_receive(fd, address, size):
    """Receive up to ``size`` bytes from a socket without waiting; with 0 bytes at 0, have a ring of frames served."""
    return _syscall(_RECVFROM, np.int64(fd), address, size, _MSG_DONTWAIT, 0, 0)


@kernel(inline=True)
def sys_readv(fd, pieces, n):
    """Read into the ``n`` ``struct iovec`` at an address; bytes read, or minus errno."""
    return _syscall(_READV, np.int64(fd), pieces, n, 0, 0, 0)


@kernel(inline=True)
def sys_writev(fd, pieces, n):
    """Write the ``n`` ``struct iovec`` at an address; bytes written, or minus errno."""
    return _syscall(_WRITEV, np.int64(fd), pieces, n, 0, 0, 0)


@kernel(inline=True)
def sys_recvmmsg(fd, messages, n):
    """Receive into up to ``n`` ``struct mmsghdr`` without waiting; how many were filled, or minus errno."""
    return _syscall(_RECVMMSG, np.int64(fd), messages, n, _MSG_DONTWAIT, 0, 0)


@kernel(inline=True)
def sys_sendmmsg(fd, messages, n):
    """Send up to ``n`` ``struct mmsghdr`` without waiting; how many were sent, or minus errno."""
    return _syscall(_SENDMMSG, np.int64(fd), messages, n, _MSG_DONTWAIT, 0, 0)


@kernel(inline=True)
def sys_ring_enter(fd, submit, complete, flags):
    """Have the kernel take ``submit`` entries of an io_uring and wait for ``complete`` answers; how many it took."""
    return _syscall(_IO_URING_ENTER, np.int64(fd), submit, complete, flags, 0, 0)


@kernel(inline=True)
def futex_wait(word, value, timeout_ns):
    """Sleep while the 32-bit word at an address is ``value``, until woken or the time is over; 0 or minus errno."""
    timeout = stack(16)
    store_i64(timeout, timeout_ns // _BILLION)
    store_i64(timeout + 8, timeout_ns % _BILLION)
    return _syscall(_FUTEX, word, _FUTEX_WAIT, np.int64(value), timeout, 0, 0)


@kernel(inline=True)
def futex_wake(word, n):
    """Wake up to ``n`` sleepers on the 32-bit word at an address; how many were woken."""
    return _syscall(_FUTEX, word, _FUTEX_WAKE, np.int64(n), 0, 0, 0)


def _clock(number: int, doc: str) -> Any:
    @intrinsic
    def clock(typingctx):
        def codegen(context, builder, signature, args):
            first = builder.bitcast(cgutils.alloca_once(builder, ir.ArrayType(I64, 2)), I64.as_pointer())
            fnty = ir.FunctionType(I32, [I32, I64.as_pointer()])
            builder.call(cgutils.get_or_insert_function(builder.module, fnty, "clock_gettime"), [I32(number), first])
            rest = builder.load(builder.gep(first, [I32(1)]))
            return builder.add(builder.mul(builder.load(first), I64(_BILLION)), rest)

        return types.int64(), codegen

    clock.__doc__ = doc
    return clock


realtime_ns = _clock(0, "Nanoseconds since 1970 (CLOCK_REALTIME).")
monotonic_ns = _clock(1, "Nanoseconds on a clock that never goes back (CLOCK_MONOTONIC).")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
MAP_FIXED_NOREPLACE = 0x100000  # include/uapi/asm-generic/mman-common.h
MADV_HUGEPAGE = 14  # include/uapi/asm-generic/mman-common.h
MADV_WIPEONFORK = 18  # the same
PR_SET_TIMERSLACK = 29  # include/uapi/linux/prctl.h
MAP_FAILED = ctypes.c_void_p(-1).value


def map_memory(size: int, fd: int = -1, at: int = 0, flags: int = 0) -> int:
    """Map ``size`` bytes, of the file ``fd`` or of nothing; return the address.  Raises ``OSError``."""
    how = flags | (mmap.MAP_SHARED if fd >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    how |= MAP_FIXED_NOREPLACE if at else 0
    got = _libc.mmap(at or None, size, mmap.PROT_READ | mmap.PROT_WRITE, how, fd, 0)
    if got == MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mapping {size} bytes: {os.strerror(code)}")
    if at and got != at:  # kernels before 4.17 take the address as a hint
        _libc.munmap(got, size)
        raise OSError(errno.EEXIST, f"mapping {size} bytes at {at:#x}: that place is taken")
    return int(got)


def unmap_memory(address: int, size: int) -> None:
    """Give back what :func:`map_memory` mapped; nobody may touch it afterwards."""
    if _libc.munmap(address, size):
        code = ctypes.get_errno()
        raise OSError(code, f"unmapping {size} bytes at {address:#x}: {os.strerror(code)}")


def advise_huge(address: int, size: int) -> bool:
    """Ask for transparent huge pages; whether the kernel knows the request."""
    return _libc.madvise(address, size, MADV_HUGEPAGE) == 0


def thread_id() -> int:
    """The number by which Linux knows the calling thread."""
    return int(_libc.gettid())


def wake_promptly() -> None:
    """Have the calling thread's sleeps end when they should, not up to 50 microseconds later, as is usual."""
    _libc.prctl(PR_SET_TIMERSLACK, 1)


def wipe_on_fork(address: int, size: int) -> bool:
    """Have a forked child find zeros in private memory; whether the kernel knows the request (4.14 does)."""
    return _libc.madvise(address, size, MADV_WIPEONFORK) == 0


def copy_in(address: int, data: bytes | bytearray | memoryview) -> None:
    """Copy ``data`` to an address; the caller has made sure that it fits there."""
    ctypes.memmove(address, bytes(data), len(data))


def copy_out(address: int, size: int) -> bytes:
    """The ``size`` bytes at an address."""
    return ctypes.string_at(address, size)
