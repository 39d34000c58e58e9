"""Runs one port or stage by hand, as a worker would, without the engine: burst by burst, with everything in view."""

from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.frame import Packet as Frame
from wirespeed.core.free import free_bulk
from wirespeed.core.packet import MARKED, Packet, copy_out
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import drain
from wirespeed.core.stage import COMMON_DROPS, Head, Outbox, Site
from wirespeed.jit.intrinsics import call_stage
from wirespeed.jit.kernel import kernel

DROPS = 256  # capacity of a driver's drop outbox


@kernel
def call(code, state, burst, n):
    """Call a stage as the engine does."""
    return call_stage(code, state, burst, n)


@kernel
def take(cache, length):
    return alloc_length(cache, length)


@kernel
def free(cache, handles, n):
    free_bulk(cache, handles, n)


class Driver:
    """One worker's copy of an opened part; ``head`` is its head, ``burst`` the array of handles it works on."""

    def __init__(self, part: Any, *, pool: PacketPool, worker: int = 0, workers: int = 1, burst: int = 32) -> None:
        self.part, self.pool = part, pool
        self.arena = Arena(1 << 20)
        self.cache = pool.cache(arena=self.arena)
        self.burst = np.zeros(burst, np.int64)
        self.placement = part.place(Site(self.arena, pool, worker, workers, burst, 1))
        self._drops = np.zeros(DROPS, np.int64)
        self._box = self.arena.alloc(Outbox.size)
        box = Outbox.at(self._box)
        box.address, box.capacity = self._drops.ctypes.data, DROPS
        self.reasons = np.zeros(len(COMMON_DROPS) + len(self.placement.drops), np.uint64)
        self.head = Head.at(self.placement.state)
        self.head.cache, self.head.drops, self.head.reasons = self.cache, self._box, self.reasons.ctypes.data
        self.head.outputs = 1

    def call(self, n: int) -> int:
        """Call the stage with what stands in ``burst``; free what it dropped; return what it returned."""
        left = call(self.placement.code, self.placement.state, self.burst.ctypes.data, n)
        box = Outbox.at(self._box)
        free(self.cache, self._drops.ctypes.data, box.length)
        box.length = 0
        assert left >= 0, "the stage raised"
        return left

    def receive(self, n: int | None = None) -> list[Frame]:
        """What a source gives for a room of ``n``, as packets; their handles are freed."""
        n = self.call(len(self.burst) if n is None else n)
        frames = [self.frame(int(handle)) for handle in self.burst[:n]]
        free(self.cache, self.burst.ctypes.data, n)
        return frames

    def receive_all(self, limit: int = 100_000) -> list[Frame]:
        """What a source gives until it says that it is done."""
        frames: list[Frame] = []
        while not self.head.done and len(frames) < limit:
            frames += self.receive()
        return frames

    def transmit(self, frames: list[bytes | Frame]) -> int:
        """Give packets to a sink; return how many it refused.  Those are freed, after a look that they are the last."""
        made = [self.packet(frame) for frame in frames]
        self.burst[: len(made)] = made
        left = self.call(len(made))
        assert self.burst[:left].tolist() == made[len(made) - left :], "what is refused stands at the front, in order"
        free(self.cache, self.burst.ctypes.data, left)
        return left

    def packet(self, frame: bytes | Frame) -> int:
        """A new packet with these bytes and what is known about them; its handle."""
        frame = frame if isinstance(frame, Frame) else Frame(frame)
        handle = int(take(self.cache, len(frame)))
        assert handle, "the pool is empty"
        data = np.frombuffer(frame.data or b"\0", np.uint8)
        copy_in(handle, 0, len(frame), data.ctypes.data)
        p = Packet.at(handle)
        p.time, p.port, p.wire, p.link, p.mark = frame.time, frame.port, frame.wire, frame.link, frame.mark
        p.flags |= MARKED
        return handle

    def frame(self, handle: int) -> Frame:
        """The bytes of a packet and what is known about it."""
        p = Packet.at(handle)
        data = np.zeros(p.total + 1, np.uint8)
        assert copy_out(handle, 0, p.total, data.ctypes.data) == p.total
        return Frame(data[:-1].tobytes(), p.time, p.port, p.wire, p.link, p.mark if p.flags & MARKED else 0)

    def free(self, handles: list[int]) -> None:
        """Free packets that the test has kept."""
        kept = np.array(handles, np.int64)
        free(self.cache, kept.ctypes.data, len(kept))

    def drops(self) -> dict[str, int]:
        """Drops by reason, without those that did not occur."""
        names = [*COMMON_DROPS, *self.placement.drops]
        return {name: int(n) for name, n in zip(names, self.reasons, strict=True) if n}

    def release(self) -> None:
        """Give this worker's memory back, its free packets to the pool; the part stays open for other workers."""
        drain(self.cache)
        self.pool.close_cache(self.cache)
        self.arena.close()

    def close(self) -> None:
        """End the run; every packet must be back in the pool."""
        self.part.close()
        self.release()
        assert self.pool.whole, f"{self.pool} misses packets"

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.release()
