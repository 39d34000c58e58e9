"""The bpf system call, as far as a port of AF_XDP needs it: a map of sockets, a program, a link that attaches it.

A *link* is a descriptor: the program stays attached for as long as somebody has it open, so it is gone with the process
however that ends.  All that is made here are descriptors, which the caller closes.

*Source:* bpf(2), include/uapi/linux/bpf.h.
"""

import ctypes
import errno
import os
import struct

from wirespeed.jit.machine import ARCHITECTURE

# arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h
SYSCALL = {"x86_64": 321}.get(ARCHITECTURE, 280)
# enum bpf_cmd
MAP_CREATE, MAP_UPDATE_ELEM, PROG_LOAD, LINK_CREATE, LINK_DETACH = 0, 2, 5, 28, 34
MAP_TYPE_XSKMAP = 17  # enum bpf_map_type
PROG_TYPE_XDP = 6  # enum bpf_prog_type
ATTACH_XDP = 37  # BPF_XDP of enum bpf_attach_type
F_XDP_HAS_FRAGS = 1 << 5  # prog_flags: the program can have frames in several buffers
LOG_ROOM = 1 << 16
# The members of union bpf_attr for each command.
MAP = struct.Struct("=IIIII")
ELEMENT = struct.Struct("=I4xQQQ")
PROGRAM = struct.Struct("=IIQQIIQII16sII")
LINK = struct.Struct("=IIII")
_libc = ctypes.CDLL(None, use_errno=True)


def _call(command: int, attributes: bytes) -> int:
    """The answer of the kernel; raises ``OSError``."""
    memory = ctypes.create_string_buffer(attributes, len(attributes))
    answer: int = _libc.syscall(SYSCALL, command, memory, len(attributes))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def make_socket_map(entries: int) -> int:
    """A descriptor of a map from queue numbers to AF_XDP sockets."""
    return _call(MAP_CREATE, MAP.pack(MAP_TYPE_XSKMAP, 4, 4, entries, 0))


def set_entry(map_fd: int, key: int, fd: int) -> None:
    """Have queue ``key`` go to a socket."""
    words = (ctypes.c_uint32 * 2)(key, fd)
    at = ctypes.addressof(words)
    _call(MAP_UPDATE_ELEM, ELEMENT.pack(map_fd, at, at + 4, 0))


def load_program(code: bytes, flags: int) -> int:
    """A descriptor of an XDP program; what the kernel's verifier says is in the error."""
    instructions = ctypes.create_string_buffer(code, len(code))
    text = ctypes.create_string_buffer(b"Apache-2.0")
    said = ctypes.create_string_buffer(LOG_ROOM)
    fixed = (PROG_TYPE_XDP, len(code) // 8, ctypes.addressof(instructions), ctypes.addressof(text))
    rest = (0, flags, b"wirespeed", 0, ATTACH_XDP)
    try:
        return _call(PROG_LOAD, PROGRAM.pack(*fixed, 0, 0, 0, *rest))
    except OSError as error:
        if error.errno == errno.EPERM:
            raise
    # Only once more, for the log: it takes time, and may need more room than there is.
    try:
        return _call(PROG_LOAD, PROGRAM.pack(*fixed, 1, LOG_ROOM, ctypes.addressof(said), *rest))
    except OSError as error:
        text_said = _last_line(said.value)
        raise OSError(error.errno, f"{error.strerror}; {text_said}" if text_said else error.strerror) from error


def _last_line(said: bytes) -> str:
    """The line of the verifier's log that tells what is wrong."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line and not line.startswith("processed")]
    return lines[-1] if lines else ""


def attach(program_fd: int, ifindex: int, flags: int) -> int:
    """A descriptor of the link that attaches a program to an interface of the caller's network namespace."""
    return _call(LINK_CREATE, LINK.pack(program_fd, ifindex, ATTACH_XDP, flags))


def detach(link_fd: int) -> None:
    """Take a link's program off its interface, whoever has the link open as well."""
    _call(LINK_DETACH, struct.pack("=I", link_fd))
