"""A packet port between the kernel and a program's memory: frames sent and received by sockets at the far end."""

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import wirespeed as ws
from tests.lab import Lab
from wirespeed.engine.report import Report
from wirespeed.engine.running import Running
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.memory import MemoryPort

ETH_P_ALL, SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR, PACKET_AUXDATA = 3, 263, 23, 15, 8
OURS = 0x88B5  # IEEE 802's EtherType for experiments: no stack sends it by itself
QUIET = ["net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"]
WAIT_S = 10.0


def frame(number: int, size: int = 60, *, tags: bytes = b"", dst: bytes = b"\x02\0\0\0\0\x02") -> bytes:
    """A frame of our EtherType with a number, behind VLAN tags if there are to be any."""
    head = dst + b"\x02\0\0\0\0\x01" + tags + OURS.to_bytes(2, "big") + number.to_bytes(4, "big")
    return head + bytes((number + i) & 0xFF for i in range(size - len(head)))


def pair(lab: Lab, mtu: int = 1500) -> None:
    """Two namespaces, ``far`` and ``near``, with x0 and x1 between them that nobody sends by on his own."""
    for space in ("far", "near"):
        lab.do(space, "sysctl", "-qw", *QUIET)
    lab.veth("far/x0", "near/x1", mtu=mtu)
    await_running(lab, "far/x0")
    await_running(lab, "near/x1")


def await_running(lab: Lab, end: str) -> None:
    """Wait until the kernel transmits by an interface: it takes up to a second to see that the other end is there."""
    space, name = end.split("/")
    wait_until(lambda: "state UP" in lab.ip(space, "link", "show", name), f"{end} is up")


def near(lab: Lab, **options: Any) -> Any:
    """The packet port on x1."""
    return ws.port("packet:x1", netns=lab.space("near"), **options)


def raw_socket(lab: Lab, end: str, *, receiving: bool = False, headers: bool = False) -> socket.socket:
    """A packet socket on ``space/name``; a receiving one does not see what is sent there."""
    space, name = end.split("/")
    with inside(lab.space(space)):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.settimeout(WAIT_S)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    made.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    if headers:
        made.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    made.bind((name, ETH_P_ALL if receiving else 0))
    return made


@contextlib.contextmanager
def tun(lab: Lab, space: str, name: str) -> Iterator[int]:
    """A tun interface that is up: the descriptor of its other side, which blocks."""
    with inside(lab.space(space)):  # the device is made where it is opened
        device = os.open("/dev/net/tun", os.O_RDWR)
    try:
        with inside(lab.space(space)):
            fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))  # IFF_TUN | IFF_NO_PI
        lab.ip(space, "link", "set", name, "up")
        yield device
    finally:
        os.close(device)


def ip_packet(number: int, size: int) -> bytes:
    """An IPv4 packet of a protocol for experiments (RFC 3692)."""
    head = bytearray.fromhex("4500 0000 0000 0000 40fd 0000 0a000001 0a000002")
    head[2:6] = size.to_bytes(2, "big") + number.to_bytes(2, "big")
    total = sum(int.from_bytes(head[i : i + 2], "big") for i in range(0, 20, 2))
    head[10:12] = (~(total % 0xFFFF) & 0xFFFF).to_bytes(2, "big")
    return bytes(head) + bytes(number + i & 0xFF for i in range(size - 20))


def received(from_socket: socket.socket, n: int, size: int = 1 << 18) -> list[bytes]:
    """The next ``n`` frames of a raw socket, with the tag that the kernel took out put back."""
    return [_next(from_socket, size) for _ in range(n)]


def _next(from_socket: socket.socket, size: int) -> bytes:
    got, extra, _, _ = from_socket.recvmsg(size, 256)
    for level, kind, value in extra:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, vlan = int.from_bytes(value[:4], "little"), value[16:20]
            if status & 0x10:  # TP_STATUS_VLAN_VALID
                return got[:12] + vlan[2:4][::-1] + vlan[:2][::-1] + got[12:]
    return got


@contextlib.contextmanager
def capturing(port: Any, **options: Any) -> Iterator[tuple[Running, MemoryPort]]:
    """A run from a port into memory."""
    memory = ws.port("memory:", size="64MB")
    with memory, ws.start(port >> memory, **options) as run:
        yield run, memory


@contextlib.contextmanager
def sending(port: Any, **options: Any) -> Iterator[tuple[Running, MemoryPort]]:
    """A run from memory to a port."""
    memory = ws.port("memory:", size="64MB")
    with memory, ws.start(memory >> port, **options) as run:
        yield run, memory


def pulled(memory: MemoryPort, n: int) -> list[Any]:
    """The next ``n`` packets that a run wrote into memory."""
    found: list[Any] = []
    wait_until(lambda: found.extend(memory.pull(n - len(found), timeout=0.1)) or len(found) >= n, f"{n} packets")
    return found


def wait_until(true: Callable[[], Any], what: str) -> None:
    """Wait until something is so, and fail when it is not in ten seconds."""
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, f"not so in {WAIT_S} s: {what}"
        time.sleep(0.005)


def whole(run: Running | Report) -> Report:
    """The final report of a run, whose books balance and whose pool is whole."""
    report = run if isinstance(run, Report) else run.report()
    assert report.balanced, str(report)
    assert report.pool_free == report.pool_size, str(report)
    assert not report.errors, report.errors
    return report


def drops(run: Running, name: str = "packet:x1") -> dict[str, int]:
    """The drops of a port so far."""
    return dict(run.report().stage(name).drops)


def counter(run: Running, key: str, name: str = "packet:x1") -> Any:
    """A counter of a port's, 0 where it is not told."""
    return run.report().stage(name).counters.get(key, 0)
