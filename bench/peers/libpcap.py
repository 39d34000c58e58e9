"""libpcap's filters in this process: its compiler, and its ``bpf_filter`` called from a loop in C over frames in memory."""

import ctypes
import ctypes.util
import hashlib
import os
import platform
import shutil
from pathlib import Path

from bench.harness import ToolFailed
from bench.peers.limited import run_whole
from bench.traffic import folder

SOURCE = Path(__file__).with_name("bpf_loop.c")
COMPILER = "gcc"
COMPILE_SECONDS = 60.0
ETHERNET, SNAPLEN = 1, 262144
ANY_NETMASK = 0xFFFFFFFF  # PCAP_NETMASK_UNKNOWN


class _Program(ctypes.Structure):
    """``struct bpf_program``."""

    _fields_ = (("length", ctypes.c_uint), ("steps", ctypes.c_void_p))


def missing() -> str | None:
    """Why it cannot be measured here, or None."""
    if platform.machine() != "x86_64":
        return "its loop counts cycles as x86 does"
    if shutil.which(COMPILER) is None:
        return f"not installed: {COMPILER}"
    return None if ctypes.util.find_library("pcap") else "not installed: libpcap"


class Libpcap:
    """The library with the loop around it; raises :class:`ToolFailed` where one of them does not load."""

    def __init__(self) -> None:
        try:
            self._pcap = ctypes.CDLL(ctypes.util.find_library("pcap"))
            loop = ctypes.CDLL(str(_compiled())).bpf_loop
        except OSError as error:
            raise ToolFailed(str(error)) from error
        self._filter = ctypes.cast(self._pcap.bpf_filter, ctypes.c_void_p)
        loop.restype = ctypes.c_int64
        loop.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)]
        self._loop = loop
        self._pcap.pcap_open_dead.restype = ctypes.c_void_p
        self._pcap.pcap_geterr.restype = ctypes.c_char_p
        self._pcap.pcap_geterr.argtypes = [ctypes.c_void_p]
        self._pcap.pcap_compile.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(_Program), ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32
        ]  # fmt: skip
        self._handle = self._pcap.pcap_open_dead(ETHERNET, SNAPLEN)
        version = self._pcap.pcap_lib_version
        version.restype = ctypes.c_char_p
        self.version = version().decode()

    def compile(self, expression: str) -> _Program:
        """Its program for Ethernet, optimised as tcpdump has it."""
        program = _Program()
        if self._pcap.pcap_compile(self._handle, ctypes.byref(program), expression.encode(), 1, ANY_NETMASK):
            raise ToolFailed(f"libpcap on {expression!r}: {self._pcap.pcap_geterr(self._handle).decode()}")
        return program

    def measure(self, program: _Program, places: int, n: int) -> tuple[int, int]:
        """Cycles for ``n`` frames, whose addresses and sizes stand at ``places``, and how many match."""
        matches = ctypes.c_int64()
        cycles = self._loop(self._filter, program.steps, places, n, ctypes.byref(matches))
        return int(cycles), matches.value


def _compiled() -> Path:
    """The loop as a library, compiled unless the very same was before."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    library = folder() / f"{SOURCE.stem}-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        part = library.with_name(library.name + ".part")
        command = [COMPILER, "-O3", "-march=native", "-shared", "-fPIC", str(SOURCE), "-o", str(part)]
        run_whole(command, os.sched_getaffinity(0), COMPILE_SECONDS)
        part.replace(library)
    return library
