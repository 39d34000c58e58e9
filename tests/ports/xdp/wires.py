"""A port of AF_XDP and the other end of its wire: packet sockets and other ports in namespaces of the test."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import wirespeed as ws
from tests.lab import Lab
from wirespeed.engine.running import Running
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.memory import MemoryPort

TYPE = 0x88B5  # IEEE 802's EtherType for experiments: no stack sends it by itself
WAIT_S = 60.0  # far more than it takes: a machine may be busy, or stand still for a while


def frame(number: int, size: int = 60, tags: bytes = b"", kind: int = TYPE) -> bytes:
    """A frame of our own type with a number, behind VLAN tags if there are to be any."""
    head = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + tags + kind.to_bytes(2, "big") + number.to_bytes(4, "big")
    return (head + bytes((number + i) & 0xFF for i in range(size)))[:size]


def pair(lab: Lab, near: str = "near/x0", far: str = "far/y0", mtu: int = 1500, queues: int = 1) -> None:
    """An interface each in two namespaces, with a wire between, by which nobody sends on his own account."""
    (space, name), (there, other) = near.split("/"), far.split("/")
    for each in (space, there):
        lab.do(each, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
    many = ["numrxqueues", str(queues), "numtxqueues", str(queues)]
    lab.ip(
        space, "link", "add", name, "mtu", str(mtu), *many, "type", "veth",
        "peer", "name", other, "mtu", str(mtu), *many, "netns", lab.space(there),
    )  # fmt: skip
    for each, device in ((space, name), (there, other)):
        lab.ip(each, "link", "set", device, "up")
    for each, device in ((space, name), (there, other)):
        until(lambda each=each, device=device: "state UP" in lab.ip(each, "link", "show", device), f"{device} is up")


def until(true: Callable[[], Any], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WAIT_S
    while True:
        late = time.monotonic() > deadline  # looked at before, so that who was stopped meanwhile looks once more
        if true():
            return
        assert not late, f"it never came to be that {what}"
        time.sleep(0.01)


def xdp(lab: Lab, end: str = "near/x0", **options: Any) -> Any:
    """The port on an interface."""
    space, name = end.split("/")
    return ws.port(f"xdp:{name}", netns=lab.space(space), **options)


@contextlib.contextmanager
def raw(lab: Lab, end: str = "far/y0", kind: int = 3) -> Iterator[socket.socket]:
    """A packet socket of the kernel on an interface; ``kind`` 3 is of all types."""
    space, name = end.split("/")
    with inside(lab.space(space)):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with made:
        made.settimeout(WAIT_S)
        made.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
        made.setsockopt(263, 23, 1)  # PACKET_IGNORE_OUTGOING
        made.bind((name, kind))
        yield made


def send(by: socket.socket, frames: list[bytes]) -> None:
    """Send frames one by one."""
    for each in frames:
        by.send(each)


@contextlib.contextmanager
def received(*ports: Any, workers: int = 1, **run: Any) -> Iterator[tuple[MemoryPort, Running]]:
    """What arrives at ports while the block runs, in memory; the books are looked at behind it."""
    with MemoryPort() as memory:
        with ws.start(*(port >> memory for port in ports), workers=workers, **run) as running:
            yield memory, running
        balanced(running)


def pull(memory: MemoryPort, n: int) -> list[bytes]:
    """The next ``n`` frames that came."""
    found: list[bytes] = []

    def complete() -> bool:
        found.extend(bytes(p.data) for p in memory.pull(n - len(found), timeout=0.1))
        return len(found) == n

    until(complete, f"{n} frames came")
    return found


def goes_through(by: socket.socket, memory: MemoryPort) -> None:
    """Send until something arrives; a program is attached before a worker has given its socket packets to receive into."""
    probes = (frame(1 << 20 | i) for i in range(1 << 20))

    def came() -> bool:
        """Whether the last probe has come, so that none is on its way any more."""
        probe = next(probes)
        by.send(probe)
        waits_s = 0.1 * (1 + int.from_bytes(probe[17:18], "big"))
        return probe in [bytes(p.data) for p in memory.pull(32, timeout=waits_s)]

    until(came, "a frame came through")


def balanced(running: Running) -> None:
    """All packets are accounted for, and back in the pool."""
    report = running.report()
    assert report.balanced, str(report)
    assert report.pool_free == report.pool_size


def attached(lab: Lab, end: str = "near/x0") -> bool:
    """Whether an XDP program is attached to an interface, by what ``ip`` says."""
    space, name = end.split("/")
    return "xdp" in lab.ip(space, "-details", "link", "show", name)
