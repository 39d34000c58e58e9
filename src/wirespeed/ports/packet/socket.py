"""Packet sockets with a ring: opened, told what they are to do, tied to an interface, and closed again.

A socket is opened without a protocol, so that nothing comes before it is set up and bound.  It needs CAP_NET_RAW; with
CAP_NET_ADMIN its buffers may be larger than the system's limit.

*Source:* packet(7), socket(7); Linux, include/uapi/linux/if_packet.h.
"""

import contextlib
import ctypes
import os
import platform
import socket
import struct
from typing import Self

from wirespeed.errors import PortError
from wirespeed.jit.libc import map_memory, unmap_memory
from wirespeed.ports.link import rights
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.packet.slots import VERSION, Geometry

SOL_PACKET = 263
ADD_MEMBERSHIP, RX_RING, STATISTICS, COPY_THRESH, PACKET_VERSION = 1, 5, 6, 7, 10
TX_RING, VNET_HDR, TIMESTAMP, FANOUT, QDISC_BYPASS, IGNORE_OUTGOING = 13, 15, 17, 18, 20, 23
MR_PROMISC, MR_ALLMULTI = 1, 2  # struct packet_mreq
MEMBERSHIP = struct.Struct("=iHH8x")
SOCKADDR = struct.Struct("=H2siHBB8x")  # struct sockaddr_ll
COUNTS = struct.Struct("=II")  # struct tpacket_stats
SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_SNDBUFFORCE, SO_RCVBUFFORCE = 26, 27, 32, 33  # include/uapi/asm-generic/socket.h
RAW_HARDWARE = 1 << 6  # SOF_TIMESTAMPING_RAW_HARDWARE, include/uapi/linux/net_tstamp.h
REFUSE_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0)  # struct sock_filter: return 0
ETH_P_ALL = 3
# membarrier(2), for which there is no function in libc.  As a side effect it waits for a grace period of RCU, which what
# receives packets is a reader of (net/core/dev.c); on a single processor there is nothing to wait for.
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}.get(platform.machine())
MEMBARRIER_GLOBAL = 1 << 0  # include/uapi/linux/membarrier.h
_libc = ctypes.CDLL(None, use_errno=True)


class PacketSocket:
    """A packet socket that is not bound yet; ``ring`` is the address of its ring once it has one, else 0."""

    def __init__(self, name: str, netns: str | None) -> None:
        self.name = name
        self.ring = 0
        self._mapped = 0
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with inside(netns):
            try:
                self._socket = socket.socket(socket.AF_PACKET, kind, 0)
            except PermissionError as error:
                raise rights.refused(name, "open a packet socket", "CAP_NET_RAW") from error
            except OSError as error:
                raise PortError(error.errno, f"{name}: this kernel has no packet sockets: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def fd(self) -> int:
        """Its descriptor."""
        return self._socket.fileno()

    def set(self, option: int, value: int | bytes, what: str) -> None:
        """Set one of the options of packet sockets; ``what`` says for what, should it be refused."""
        try:
            self._socket.setsockopt(SOL_PACKET, option, value)
        except OSError as error:
            raise PortError(error.errno, f"{self.name}: {what}: {error.strerror}") from error

    def offers(self, option: int) -> bool:
        """Switch an option on that older kernels lack; whether it is there."""
        try:
            self._socket.setsockopt(SOL_PACKET, option, 1)
        except OSError:
            return False
        return True

    def map_ring(self, option: int, geometry: Geometry) -> None:
        """Give it a ring, RX_RING or TX_RING, and map it."""
        self.set(PACKET_VERSION, VERSION, "slots of version 2")
        what = f"a ring of {geometry.slots} slots of {geometry.size} bytes; give fewer with slots="
        self.set(option, geometry.request(), what)
        try:
            self.ring = map_memory(geometry.memory, self.fd)
        except OSError as error:
            raise PortError(error.errno, f"{self.name}: mapping {what}: {os.strerror(error.errno or 0)}") from error
        self._mapped = geometry.memory

    def bind(self, index: int, protocol: int = 0) -> None:
        """Tie it to an interface; with a protocol it begins to receive."""
        address = SOCKADDR.pack(socket.AF_PACKET, protocol.to_bytes(2, "big"), index, 0, 0, 0)
        if _libc.bind(self.fd, address, len(address)):
            code = ctypes.get_errno()
            raise PortError(code, f"{self.name}: binding to interface {index}: {os.strerror(code)}")

    def join(self, index: int, kind: int) -> None:
        """Have the interface take frames that are not for it, MR_PROMISC or MR_ALLMULTI, while the socket is open."""
        self.set(ADD_MEMBERSHIP, MEMBERSHIP.pack(index, kind, 0), "receiving frames for other addresses")

    def fan_out(self, word: int) -> int:
        """Join a group that shares an interface's packets out; return the word by which others join the same."""
        self.set(FANOUT, word, "sharing packets out to several workers (fanout)")
        return self._socket.getsockopt(SOL_PACKET, FANOUT)

    def enlarge(self, size: int, sending: bool = False) -> int:
        """Ask for a buffer of ``size`` bytes, for what goes past the ring; return how large it is now."""
        option, forced = (socket.SO_SNDBUF, SO_SNDBUFFORCE) if sending else (socket.SO_RCVBUF, SO_RCVBUFFORCE)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, forced, size)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, option, size)
        return self._socket.getsockopt(socket.SOL_SOCKET, option)

    def be_deaf(self) -> None:
        """Have a filter that lets nothing through."""
        step = ctypes.create_string_buffer(REFUSE_ALL)
        program = struct.pack("HP", 1, ctypes.addressof(step))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)

    def hear_all(self) -> None:
        """Have no filter."""
        with contextlib.suppress(FileNotFoundError):  # what is said of a socket that has none
            self._socket.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)

    def counts(self) -> tuple[int, int]:
        """Packets and drops since the last time they were asked for; the kernel starts again from 0 each time."""
        seen, drops = COUNTS.unpack(self._socket.getsockopt(SOL_PACKET, STATISTICS, COUNTS.size))
        return seen, drops

    def clear_error(self) -> int:
        """The error that is pending, such as ENETDOWN; while one is, whoever polls the socket is woken at once."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def become(self, other: "PacketSocket") -> tuple[int, int]:
        """Put another socket into this one's place, under its descriptor's number, and close what was there.

        What is returned is this one's ring, address and bytes, which stays mapped until the caller unmaps it.
        """
        old = self.ring, self._mapped
        os.dup2(other.fd, self.fd, inheritable=False)
        self.ring, self._mapped = other.ring, other._mapped
        other.ring, other._mapped = 0, 0
        other.close()
        return old

    def close(self) -> None:
        """Unmap the ring and close the socket; closing twice is harmless."""
        if self.ring:
            unmap_memory(self.ring, self._mapped)
            self.ring = 0
        self._socket.close()


def settle() -> None:
    """Wait until the kernel is done with the packets that it was working on, on any processor."""
    if _MEMBARRIER:
        _libc.syscall(_MEMBARRIER, MEMBARRIER_GLOBAL, 0)


def hardware_stamps(packet_socket: PacketSocket) -> None:
    """Ask for the stamps of the interface's own clock where packets have them; others keep the kernel's."""
    packet_socket.set(TIMESTAMP, RAW_HARDWARE, "hardware time stamps")
