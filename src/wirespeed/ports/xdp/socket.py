"""A socket of AF_XDP: its memory, its rings, and the queue of an interface that it is bound to.

The kernel pins the socket's memory for as long as the socket or a mapping of its rings lives, so :meth:`Socket.close` gives
up both.  Binding fails for a moment where a socket of the same queue was closed just before, for the kernel tidies up
behind it later; that is waited for.

*Source:* Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.
"""

import ctypes
import errno
import mmap
import os
import resource
import socket
import struct
import time
from typing import Any

from wirespeed.errors import PortError
from wirespeed.ports.link import forks
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.xdp import permission

AF_XDP, SOL_XDP = 44, 283  # include/linux/socket.h
# include/uapi/linux/if_xdp.h
XDP_COPY, XDP_ZEROCOPY, XDP_USE_NEED_WAKEUP, XDP_USE_SG = 1 << 1, 1 << 2, 1 << 3, 1 << 4
XDP_UMEM_UNALIGNED_CHUNK_FLAG = 1 << 0
(
    XDP_MMAP_OFFSETS, XDP_RX_RING, XDP_TX_RING, XDP_UMEM_REG, XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING,
    XDP_STATISTICS,
) = range(1, 8)  # fmt: skip
LEAST_CHUNK, MOST_CHUNK = 2048, 4096  # XDP_UMEM_MIN_CHUNK_SIZE and a page, net/xdp/xdp_umem.c
UMEM = struct.Struct("=QQIIII")  # struct xdp_umem_reg
ADDRESS = struct.Struct("=HHIII")  # struct sockaddr_xdp
OFFSETS = struct.Struct("=16Q")  # struct xdp_mmap_offsets: rx, tx, fill, completion; producer, consumer, desc, flags
STATISTICS = struct.Struct("=6Q")  # struct xdp_statistics
NAMES = (
    "rx_dropped", "rx_invalid_descs", "tx_invalid_descs", "rx_ring_full", "rx_fill_ring_empty_descs",
    "tx_ring_empty_descs",
)  # fmt: skip
# Where each ring is mapped from, how it is asked for, the bytes of an entry.
RINGS = {
    "rx": (0, XDP_RX_RING, 16),
    "tx": (0x80000000, XDP_TX_RING, 16),
    "fill": (0x100000000, XDP_UMEM_FILL_RING, 8),
    "completion": (0x180000000, XDP_UMEM_COMPLETION_RING, 8),
}
WAYS = {"copy": XDP_COPY, "zerocopy": XDP_ZEROCOPY}
_libc = ctypes.CDLL(None, use_errno=True)


class Socket:
    """A socket of AF_XDP, not bound yet.  ``rings`` maps each ring's name to its length."""

    def __init__(
        self, name: str, netns: str | None, memory: tuple[int, int], chunk: int, rings: dict[str, int]
    ) -> None:
        self.name = name
        self.zero_copy = self.several = False
        self.maps: dict[str, tuple[mmap.mmap, int, tuple[int, ...], int]] = {}
        with inside(netns):
            self._socket = _open(name)
        forks.register(self)
        try:
            self._register(memory, chunk)
            for ring, length in rings.items():
                self._socket.setsockopt(SOL_XDP, RINGS[ring][1], length)
            self._map(rings)
        except OSError as error:
            self.close()
            raise (
                error if isinstance(error, PortError) else PortError(error.errno, f"{name}: {error.strerror}")
            ) from error

    def _register(self, memory: tuple[int, int], chunk: int) -> None:
        """Give the kernel the memory that frames are in."""
        record = UMEM.pack(*memory, chunk, 0, XDP_UMEM_UNALIGNED_CHUNK_FLAG, 0)
        try:
            self._socket.setsockopt(SOL_XDP, XDP_UMEM_REG, record)
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.EPERM, errno.ENOMEM):
                limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
                have = "no limit" if limit == resource.RLIM_INFINITY else f"{limit >> 10} kB"
                raise PortError(
                    error.errno,
                    f"{self.name}: {memory[1] >> 10} kB of packets cannot be locked in memory ({error.strerror}; the limit is "
                    f"{have}); raise it with `ulimit -l`, give CAP_IPC_LOCK, or run with a smaller pool",
                ) from error
            raise

    def _map(self, rings: dict[str, int]) -> None:
        """Map the rings into this process."""
        told = OFFSETS.unpack(self._socket.getsockopt(SOL_XDP, XDP_MMAP_OFFSETS, OFFSETS.size))
        for ring, at in zip(("rx", "tx", "fill", "completion"), range(0, 16, 4), strict=True):
            if ring in rings:
                page, _, entry = RINGS[ring]
                offsets = told[at : at + 4]
                memory = mmap.mmap(
                    self._socket.fileno(),
                    offsets[2] + entry * rings[ring],
                    mmap.MAP_SHARED | mmap.MAP_POPULATE,
                    offset=page,
                )
                address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
                self.maps[ring] = (memory, address, offsets, rings[ring])

    def fileno(self) -> int:
        """Its descriptor."""
        return self._socket.fileno()

    def bind(self, index: int, queue: int, ways: tuple[str, ...], patience_s: float) -> None:
        """Bind it to a queue, in the first of the ways (zerocopy, copy) that works; raises ``OSError`` if none does.

        Packets of several frames are asked for first.  A queue that is taken is waited for.
        """
        deadline = time.monotonic() + patience_s
        for way in ways:
            for several in (XDP_USE_SG, 0):
                code = self._bind(index, queue, WAYS[way] | several | XDP_USE_NEED_WAKEUP, deadline)
                if code == 0:
                    self.several, self.zero_copy = several != 0, way == "zerocopy"
                    return
                if code not in (errno.EOPNOTSUPP, errno.EINVAL):
                    break
        raise OSError(code, os.strerror(code))

    def _bind(self, index: int, queue: int, flags: int, deadline: float) -> int:
        """0, or why it cannot be."""
        address = ADDRESS.pack(AF_XDP, flags, index, queue, 0)
        while _libc.bind(self.fileno(), address, len(address)):
            code = ctypes.get_errno()
            if code != errno.EBUSY or time.monotonic() > deadline:
                return code
            time.sleep(0.01)
        return 0

    def statistics(self) -> dict[str, int]:
        """What the kernel counted, by its own names."""
        try:
            told: Any = self._socket.getsockopt(SOL_XDP, XDP_STATISTICS, STATISTICS.size)
        except OSError:
            return {}
        return dict(zip(NAMES, STATISTICS.unpack(told), strict=True))

    def close(self) -> None:
        """Give the queue and the memory back.  Closing twice is harmless."""
        for memory, *_ in self.maps.values():
            memory.close()
        self.maps = {}
        self._socket.close()

    def let_go(self) -> None:
        """The same, of a child's copies."""
        self.close()


def _open(name: str) -> socket.socket:
    """A socket; says what is missing when there can be none."""
    try:
        return socket.socket(AF_XDP, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    except PermissionError as error:
        raise permission.refused(name, "open a socket of AF_XDP", False) from error
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            raise PortError(
                error.errno, f"{name}: this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use packet: instead"
            ) from error
        raise PortError(error.errno, f"{name}: {error.strerror}") from error
