"""One queue of an interface in a run: its socket now, the record that kernels read, and the packets that the kernel has.

The descriptor that an idle worker sleeps on keeps its number whatever happens: it is a copy of the socket's, or one of an
event that never comes while there is no socket.

Thread rules: the control thread's.  A retired socket is closed when no stage of the worker has it any more.
"""

import errno
import logging
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import RECORD, Pool
from wirespeed.core.stage import Site
from wirespeed.errors import PortError
from wirespeed.ports.xdp import bpf, permission, transmit
from wirespeed.ports.xdp.channels import channels
from wirespeed.ports.xdp.ring import Socket as Record
from wirespeed.ports.xdp.ring import left_over, lend, publish
from wirespeed.ports.xdp.socket import LEAST_CHUNK, MOST_CHUNK, Socket

if TYPE_CHECKING:
    from wirespeed.ports.xdp.device import Device

log = logging.getLogger("wirespeed")
HUGE_PAGES = "2 MB huge pages"  # what an arena says of its memory
COUNTS = ("invalid", "starved", "wakeups", "busy")  # of the record


class Binding:
    """A socket with its record and its marks, from its making to the return of its packets."""

    def __init__(self, socket: Socket, pool: PacketPool, cache: int, target: int) -> None:
        self.socket = socket
        self.memory = np.zeros(Record.size + 64, np.uint8)
        self.address = -(-self.memory.ctypes.data // 64) * 64
        self.marks = np.zeros(pool.size, np.uint8)
        self.record = record = Record.at(self.address)
        start, _ = span(pool)
        record.base, record.first = start, Pool.at(pool.address).first
        record.size, record.stride, record.chunk = pool.size, pool.stride, RECORD + pool.room
        record.shift = (pool.stride & -pool.stride).bit_length() - 1
        record.inverse = pow(pool.stride >> int(record.shift), -1, 1 << 64)
        record.marks, record.pool, record.cache = self.marks.ctypes.data, pool.address, cache
        record.fd, record.target = socket.fileno(), target
        record.several, record.zero_copy = socket.several, socket.zero_copy
        for name, (_, at, offsets, length) in socket.maps.items():
            ring = getattr(record, name)
            ring.producer, ring.consumer, ring.entries, ring.flags = (at + offset for offset in offsets)
            ring.mask, ring.length = length - 1, length

    def counts(self) -> dict[str, int]:
        """What the kernel and our kernels counted."""
        return self.socket.statistics() | {name: int(getattr(self.record, name)) for name in COUNTS}


class Queue:
    """The queue of one worker."""

    def __init__(self, device: "Device", site: Site, worker: int) -> None:
        self.device = device
        self.run_pool = site.pool
        self.number = device.port.queue + worker
        self.binding: Binding | None = None
        self._retired: list[Binding] = []
        self._states: dict[str, tuple[int, Any, int]] = {}
        self._quiet = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.fd = os.dup(self._quiet)
        self._totals: dict[str, int] = {}
        self.pool, self._cache = site.pool, 0
        if not LEAST_CHUNK <= RECORD + site.pool.room <= MOST_CHUNK:
            # The kernel cannot have such buffers.  What is received comes in packets of a pool of our own then, and
            # what is sent is copied into them.
            self.pool = PacketPool(4 * device.port.ring)
            self._cache = self.pool.cache()
        self._target = self._share() if device.is_source else 0

    @property
    def is_open(self) -> bool:
        """Whether it has a socket."""
        return self.binding is not None

    def _share(self) -> int:
        """How many packets the kernel is to have for receiving: all queues of all ports together never have the whole pool."""
        length, pool = self.device.port.ring, self.pool
        return max(1, min(length, pool.size // (2 * self.device.workers), pool.free_count // 2))

    def add(self, role: str, stage: Any, state: int) -> None:
        """Have the state of a stage, at its address, told what there is."""
        self._states[role] = state, stage.State.at(state), state + stage.State.offset("use")
        if len(self._states) == 2:
            self._states["source"][1].sink = self._states["sink"][0]
        self.tell()

    def open(self, patience_s: float = 0.0) -> None:
        """Make the socket, and give the kernel packets to receive into."""
        left_over.compile((left_over.typeof_pyval(0),) * 2)  # now, and not at the end
        device, pool = self.device, self.pool
        length = device.port.ring
        rings = {"fill": length, "completion": length}
        rings |= {name: length for name, role in (("rx", "source"), ("tx", "sink")) if role in device.joined}
        socket = Socket(device.port.name, device.port.netns, span(pool), RECORD + pool.room, rings)
        try:
            socket.bind(device.index, self.number, self._ways(), patience_s)
            self.binding = Binding(socket, pool, self._cache, self._target)
            handles = pool.alloc(self._target)
            lend(self.binding.address, handles.ctypes.data, len(handles))
            if device.map_fd >= 0:
                bpf.set_entry(device.map_fd, self.number, socket.fileno())
        except OSError as error:
            self.retire()
            socket.close()
            raise self._told(error) from error
        os.dup2(socket.fileno(), self.fd, inheritable=False)

    def _ways(self) -> tuple[str, ...]:
        """How the socket may be bound.

        A driver can only use a chunk that is in one piece for the device as well, which is so in huge pages, and sends for
        a socket only while there is a program.
        """
        mode = self.device.port.mode
        if mode != "auto":
            return (mode,)
        whole = getattr(self.pool.memory, "pages", "") == HUGE_PAGES and self.device.map_fd >= 0
        return ("zerocopy", "copy") if whole else ("copy",)

    def _told(self, error: OSError) -> OSError:
        """The error of a socket that cannot be bound, as a person should read it."""
        if isinstance(error, PortError):
            return error
        device, name = self.device, self.device.port.name
        text = error.strerror
        if error.errno == errno.EBUSY:
            text = (
                f"another socket of AF_XDP has queue {self.number}, another program's or one in a child that was forked "
                "during a run; end that, or use queue= and another one"
            )
        elif error.errno == errno.EOPNOTSUPP:
            text = "its driver has no zero-copy; use mode=auto or mode=copy"
        elif error.errno == errno.EINVAL:
            have = channels(device.port.target, device.port.netns)
            if self.number >= have:
                of = "1 queue, number 0" if have == 1 else f"{have} queues, 0 to {have - 1}"
                text = f"there is no queue {self.number}: it has {of}; run with fewer workers, or make more with `ethtool -L`"
        elif error.errno in (errno.EPERM, errno.EACCES):
            return permission.refused(name, "bind a socket of AF_XDP", device.is_source)
        return PortError(error.errno, f"{name}: {text}")

    def tell(self) -> None:
        """Write into the states what is so now."""
        device = self.device
        address = self.binding.address if self.binding is not None else 0
        # The sink first: the source, when it sees that there is another socket, has the sink see it too.
        for role, (_, state, use) in sorted(self._states.items()):
            if role == "sink":
                state.down, state.longest = not device.up, device.longest
            else:
                state.complete, state.mtu = device.port.complete, device.mtu
            publish(use, address)

    def retire(self) -> None:
        """Use the socket no longer; its packets come back when the worker has let go of it."""
        if self.binding is not None:
            os.dup2(self._quiet, self.fd, inheritable=False)
            self._retired.append(self.binding)
            self.binding = None

    def take_back(self) -> None:
        """Close retired sockets that no stage has any more."""
        for binding in list(self._retired):
            if all(int(state.use.socket) != binding.address for _, state, _ in self._states.values()):
                self._retired.remove(binding)
                self._finish(binding)

    def _finish(self, binding: Binding) -> None:
        """Close a socket, and put the packets that the kernel had back into the pool."""
        for name, n in binding.counts().items():
            self._totals[name] = self._totals.get(name, 0) + n
        binding.socket.close()
        handles = np.zeros(self.pool.size + 1, np.int64)
        n = left_over(binding.address, handles.ctypes.data)
        self.pool.free(handles[:n])

    def counters(self) -> dict[str, int]:
        """What was counted over all sockets that it had."""
        found, binding = dict(self._totals), self.binding
        for name, n in (binding.counts() if binding is not None else {}).items():
            found[name] = found.get(name, 0) + n
        return found

    def write_off(self) -> None:
        """Count what is not sent yet as lost, at the end of a run."""
        if "sink" in self._states:
            transmit.write_off(self._states["sink"][0])

    def close(self) -> None:
        """After the workers have left: close all sockets; all packets are back in the pool."""
        self.retire()
        for binding in self._retired:
            self._finish(binding)
        self._retired = []
        for fd in (self.fd, self._quiet):
            os.close(fd)
        if self.pool is not self.run_pool:
            self._close_own()

    def let_go(self) -> None:
        """Close the descriptor, which may be one of the socket, in a forked child."""
        os.close(self.fd)

    def _close_own(self) -> None:
        """Close the pool of our own, unless a packet is elsewhere still: then its memory stays."""
        self.pool.close_cache(self._cache)
        if self.pool.whole:
            self.pool.close()
        else:
            log.warning("%s: %d received packets are out still", self.device.port.name, self.pool.in_use)


def span(pool: PacketPool) -> tuple[int, int]:
    """The memory of a pool's packets from the beginning of a page, as the kernel wants it: address and size."""
    first = int(Pool.at(pool.address).first)
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    return start, first + pool.size * pool.stride - start
