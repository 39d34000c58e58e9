"""The memory port: a Python program pushes packets into a graph and pulls out what leaves it, burst by burst.

``m = port("memory:")`` is a source, a sink, or both; :meth:`MemoryPort.push` fills what a graph reads, in
:meth:`MemoryPort.pull` arrives what a graph writes.  The two directions are two rings of frames
(:mod:`wirespeed.ports.frame_ring`) that belong to the port: packets can be pushed before a run and pulled after it.
A full ring refuses: the graph feels back-pressure, ``push`` returns how many it took.

Thread rules: any thread may push and pull; each end has a lock, under which a ring is touched, but for waiting in it.
A ring that is let go of while a thread waits in it, or a run uses it, is given back when nobody refers to it any more.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from wirespeed.core.element import Element
from wirespeed.core.frame import Packet, as_packets
from wirespeed.core.stage import Placement, Site
from wirespeed.errors import GraphError
from wirespeed.ports import options
from wirespeed.ports.frame_ring import MOST_FRAME, UNIT, FrameInfo, FrameQueue
from wirespeed.ports.frame_stages import SINK_DROPS, SOURCE_DROPS, State, receive, transmit
from wirespeed.ports.options import Option

SLICE_NS = 1_000_000  # a waiting Python thread comes back this often, so that Ctrl-C works


@dataclass(frozen=True)
class Columns:
    """Frames as NumPy columns: packet i has the bytes ``data[offset[i] : offset[i] + length[i]]``."""

    data: Any
    offset: Any
    length: Any
    wire: Any
    time: Any
    port: Any
    link: Any
    mark: Any

    def __len__(self) -> int:
        return len(self.length)

    def packets(self) -> list[Packet]:
        """The same as a list of packets."""
        whole = self.data.tobytes()
        columns = (self.offset, self.length, self.time, self.port, self.wire, self.link, self.mark)
        return [Packet(whole[at : at + n], *rest) for at, n, *rest in zip(*(c.tolist() for c in columns))]


class MemoryPort(Element):
    """``memory:``; push into a graph, pull out of it.

    ``size`` is that of each direction's ring in bytes, rounded up to a power of two; a packet takes up to 63 bytes
    more than its data.  Close it, or leave its ``with``, to give the memory back before the object is gone.
    """

    KIND = "memory"
    SUMMARY = "packets that a Python program pushes and pulls"
    OPTIONS: ClassVar[dict[str, Option]] = {
        "size": Option(
            "bytes", "4MB", "bytes of packets that wait in each direction", options.size(256, 1 << 36, "4MB")
        ),
    }

    def __init__(self, target: str = "", **given: Any) -> None:
        self.name = f"memory:{target}"
        self.size: int = options.read(self.KIND, self.OPTIONS, given)["size"]
        self._queues: dict[str, FrameQueue] = {}
        self._locks = {"source": Lock(), "sink": Lock()}
        self._runs = {"source": 0, "sink": 0}  # that have it open in this role
        self._waiting = {"source": 0, "sink": 0}  # threads
        self._written = False  # whether any run had it as a sink

    def open(self, role: str, workers: int) -> "MemoryPart":
        """One direction of it, for one run."""
        with self._locks[role]:
            queue = self._made(role)
            self._runs[role] += 1
            self._written = self._written or role == "sink"
        return MemoryPart(self, role, queue)

    def _close_run(self, part: "MemoryPart") -> None:
        """What a run wrote can still be pulled; what it did not read is left to the next one."""
        role, queue = part.role, part.queue
        with self._locks[role]:
            self._runs[role] -= 1
            part.left = len(queue)
            if role == "source" and not self._runs[role] and queue.closed and not part.left:
                queue.closed = False

    def _queue(self, role: str) -> FrameQueue:
        with self._locks[role]:
            return self._made(role)

    def _made(self, role: str) -> FrameQueue:
        """The ring of a direction, whose lock is held."""
        if role not in self._queues:
            self._queues[role] = FrameQueue(self.size)
        return self._queues[role]

    def _check_open(self, role: str, queue: FrameQueue) -> None:
        """Raise where a ring, of a direction whose lock is held, is no longer the port's."""
        if self._queues.get(role) is not queue:
            raise GraphError(f"{self.name} was closed by another thread meanwhile; end those that wait in it first")

    def _wait(self, role: str, queue: FrameQueue, wait: Callable[[], bool]) -> None:
        """Wait in a ring, which stays meanwhile."""
        with self._locks[role]:
            self._check_open(role, queue)
            self._waiting[role] += 1
        try:
            wait()
        finally:
            with self._locks[role]:
                self._waiting[role] -= 1

    def push(self, frames: Iterable[Any], *, time: Any = 0, timeout: float | None = 0.0) -> int:
        """Give packets to the graph that reads here; return how many were taken.

        A frame is bytes, a :class:`wirespeed.Packet`, or anything with ``__bytes__``, such as a scapy packet.  ``time``
        (ns since 1970) is for those that have none.  When the ring is full, waits up to ``timeout`` seconds for room
        (None: as long as it takes).  Raises :class:`GraphError` for a frame that can never fit, and takes none then.
        """
        packets = as_packets(frames, time)
        infos = np.zeros(len(packets), FrameInfo.dtype)
        for i, packet in enumerate(packets):
            infos[i] = (packet.time, len(packet), packet.wire, packet.mark, packet.port, packet.link)
        return self._push(infos, np.frombuffer(b"".join(p.data for p in packets), np.uint8), timeout)

    def push_columns(self, data: Any, lengths: Any, *, time: Any = 0, timeout: float | None = 0.0) -> int:
        """As :meth:`push`, of NumPy columns: one ``time`` or one for each packet.

        ``data`` (uint8) has the packets end to end, or each in a row of its own of which ``lengths`` says how much.
        """
        data, lengths = np.asarray(data, np.uint8), np.asarray(lengths, np.int64)
        if not _fit(data, lengths):
            raise GraphError(
                f"lengths of shape {lengths.shape} do not fit data of shape {data.shape}; give one within data a packet"
            )
        if data.ndim == 2:
            data = data[np.arange(data.shape[1]) < lengths[:, None]]
        infos = np.zeros(len(lengths), FrameInfo.dtype)
        infos["length"] = infos["wire"] = lengths
        infos["time"], infos["link"] = time, 1
        return self._push(infos, np.ascontiguousarray(data), timeout)

    def _push(self, infos: Any, data: Any, timeout: float | None) -> int:
        queue = self._queue("source")
        lengths = infos["length"].tolist()
        _check_lengths(lengths, queue.size)
        starts = list(itertools.accumulate(lengths, initial=0))
        deadline = _deadline(timeout)
        done = 0
        while True:
            with self._locks["source"]:
                self._check_open("source", queue)
                if queue.closed:
                    raise GraphError(f"{self.name} is closed for input; it opens again when the run that reads it ends")
                done += queue.push(infos[done:], data[starts[done] :])
            left = deadline - time.monotonic_ns()
            if done == len(lengths) or left <= 0:
                return done
            need = -(-lengths[done] // UNIT) * UNIT + UNIT
            self._wait("source", queue, functools.partial(queue.wait_for_room, need, min(left, SLICE_NS)))

    def close_input(self) -> None:
        """Say that no packet follows, so that the run that reads here can end; then packets can be pushed again."""
        with self._locks["source"]:
            self._made("source").closed = True

    def pull(self, max: int | None = None, timeout: float | None = 0.0) -> list[Packet]:
        """Up to ``max`` packets that a graph wrote here, in order; all there are when it is None.

        When there is none, waits up to ``timeout`` seconds for the first (None: as long as a run may write one).
        """
        return self.pull_columns(max, timeout).packets()

    def pull_columns(self, max: int | None = None, timeout: float | None = 0.0) -> Columns:
        """As :meth:`pull`, as NumPy columns."""
        queue = self._queue("sink")
        most = (1 << 62) if max is None else max
        deadline = _deadline(timeout)
        while True:
            # Looked at before the ring: whatever was written before the end is then in it.
            ended = self._written and not self._runs["sink"]
            with self._locks["sink"]:
                self._check_open("sink", queue)
                infos, data = queue.pull(most)
            left = deadline - time.monotonic_ns()
            if len(infos) or ended or left <= 0 or most <= 0:
                return _columns(infos, data)
            self._wait("sink", queue, functools.partial(queue.wait_for_frame, min(left, SLICE_NS)))

    def __iter__(self) -> Iterator[Packet]:
        """Packets as they come, until the run that writes here has ended and all are pulled."""
        while packets := self.pull(timeout=None):
            yield from packets

    @property
    def waiting(self) -> int:
        """Packets that can be pulled now."""
        with self._locks["sink"]:
            return len(self._made("sink"))

    def close(self) -> None:
        """Give the memory back, and what waits in it up.  Raises :class:`GraphError` while a run uses the port."""
        with self._locks["source"], self._locks["sink"]:
            if any(self._runs.values()):
                raise GraphError(
                    f"a run still uses {self.name}; stop it, and wait for its end, before the port is closed"
                )
            for role, queue in self._queues.items():
                if not self._waiting[role]:
                    queue.close()
            self._queues.clear()

    def __enter__(self) -> "MemoryPort":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: Any) -> None:
        try:
            self.close()
        except GraphError:
            if kind is None:
                raise
            self._queues.clear()  # there is an error to be told already; the run keeps what it uses to its end


def _fit(data: Any, lengths: Any) -> bool:
    """Whether each length is within the data of its packet."""
    if lengths.ndim != 1 or (lengths < 0).any():
        return False
    if data.ndim == 2:
        return len(lengths) == len(data) and bool((lengths <= data.shape[1]).all())
    return data.ndim == 1 and int(lengths.sum()) <= len(data)


def _check_lengths(lengths: list[int], size: int) -> None:
    most = min(size - UNIT, MOST_FRAME)
    for i, length in enumerate(lengths):
        if length > most:
            raise GraphError(
                f"frame {i} has {length} bytes, the memory port takes at most {most}; make it larger, such as size=8MB"
            )


def _deadline(timeout: float | None) -> int:
    return 1 << 62 if timeout is None else time.monotonic_ns() + int(timeout * 1e9)


def _columns(infos: Any, data: Any) -> Columns:
    length = infos["length"].astype(np.int64)
    rest = (infos[name] for name in ("wire", "time", "port", "link", "mark"))
    return Columns(data, np.cumsum(length) - length, length, *rest)


class MemoryPart:
    """One direction of a memory port in a run; all workers share its ring."""

    def __init__(self, port: MemoryPort, role: str, queue: FrameQueue) -> None:
        self.port = port
        self.role = role
        self.queue = queue
        self.left: int | None = None  # packets in the ring at the end of the run, after which it may be gone

    def place(self, site: Site) -> Placement:
        """This worker's state, which points to the shared ring."""
        address = site.state(State)
        State.at(address).ring = self.queue.address
        if self.role == "sink":
            return Placement(transmit.address, address, SINK_DROPS, keep=self.queue)
        return Placement(receive.address, address, SOURCE_DROPS, fds=(self.queue.fd,), keep=self.queue)

    def counters(self) -> dict[str, int]:
        """Packets that wait in the ring."""
        with self.port._locks[self.role]:
            return {"waiting": len(self.queue) if self.left is None else self.left}

    def close(self) -> None:
        """The run has ended."""
        self.port._close_run(self)
