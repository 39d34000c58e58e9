"""One stage with everything around it that an engine would give: a pool, outboxes, a drop box, a stop word."""

from pathlib import Path
from typing import Any

from wirespeed.core.arena import Arena
from wirespeed.core.free import free_bulk
from wirespeed.core.packet import Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import alloc
from wirespeed.core.stage import COMMON_DROPS, OUTBOX, Head, Outbox, Site
from wirespeed.jit import libc
from wirespeed.jit.layout import layout

Word = layout("RigWord", [("value", "i8")])
Stop = layout("RigStop", [("value", "u4")])
HANDLES = 256


class Rig:
    """``element`` placed once for a worker with ``outputs`` outputs; ``send`` runs it on frames as one burst."""

    def __init__(
        self, element: Any, outputs: int = 1, *, worker: int = 0, workers: int = 1, capacity: int = HANDLES
    ) -> None:
        self.arena = Arena(1 << 20, huge=False)
        self.pool = PacketPool(2 * HANDLES)
        self.cache = self.pool.cache()
        self.part = element.open("stage", workers)
        self.placed = self.part.place(Site(self.arena, self.pool, worker, workers, 32, outputs))
        self.outputs = outputs
        self.burst = self.arena.alloc(8 * HANDLES)
        self.head = Head.at(self.placed.state)
        self.boxes = self.arena.alloc(OUTBOX * outputs)
        for k in range(1, outputs):
            self._box(self.boxes + OUTBOX * k, capacity)
        drops = self.arena.alloc(OUTBOX)
        self._box(drops, HANDLES)
        self.names = [*COMMON_DROPS, *self.placed.drops]
        self.head.outboxes, self.head.outputs, self.head.drops = self.boxes, outputs, drops
        self.head.cache, self.head.reasons = self.cache, self.arena.alloc(8 * len(self.names))
        self.head.scratch, self.head.zeros = self.arena.alloc(4096), self.arena.alloc(4096)
        self.head.stop = self.arena.alloc(8)

    def _box(self, address: int, capacity: int) -> None:
        box = Outbox.at(address)
        box.address, box.capacity = self.arena.alloc(8 * capacity), capacity

    def fill(self, frames: list[bytes], link: int = 1) -> list[int]:
        """Put frames into packets of the pool and their handles into the burst."""
        handles = []
        for i, frame in enumerate(frames):
            handle = int(alloc(self.cache))
            p = Packet.at(handle)
            p.data, p.length, p.total, p.wire, p.link = 128, len(frame), len(frame), len(frame), link
            p.segments, p.flags, p.port = 1, 0, 0
            libc.copy_in(p.buffer + p.data, frame)
            Word.at(self.burst + 8 * i).value = handle
            handles.append(handle)
        return handles

    def call(self, n: int) -> int:
        """Run the stage on the first ``n`` handles of the burst; how many stay in it."""
        return int(self.part.stage(self.placed.state, self.burst, n))

    def send(self, frames: list[bytes], link: int = 1) -> list[list[bytes]]:
        """Run the stage on frames; what comes out of each output, in order.  All packets go back to the pool."""
        self.fill(frames, link)
        kept = self.call(len(frames))
        out = [self.take(self.burst, kept)]
        for k in range(1, self.outputs):
            box = Outbox.at(self.boxes + OUTBOX * k)
            out.append(self.take(box.address, box.length))
            box.length = 0
        box = Outbox.at(self.head.drops)
        self.take(box.address, box.length)
        box.length = 0
        return out

    def take(self, address: int, n: int) -> list[bytes]:
        """The frames of ``n`` handles at an address, whose packets are freed."""
        frames = []
        for i in range(n):
            p = Packet.at(Word.at(address + 8 * i).value)
            frames.append(libc.copy_out(p.buffer + p.data, p.length))
        free_bulk(self.cache, address, n)
        return frames

    def empty(self) -> None:
        """Free the one packet that was sent, wherever it went."""
        box = Outbox.at(self.head.drops)
        if box.length:
            self.take(box.address, box.length)
            box.length = 0
        else:
            self.take(self.burst, 1)

    def drops(self) -> dict[str, int]:
        """Packets dropped so far, by reason."""
        counts = {name: Word.at(self.head.reasons + 8 * i).value for i, name in enumerate(self.names)}
        return {name: int(n) for name, n in counts.items() if n}

    def stop(self) -> None:
        """Set the worker's stop word."""
        Stop.at(self.head.stop).value = 1

    def close(self) -> None:
        """Give everything back; every packet must be."""
        self.part.close()
        whole = self.pool.whole
        self.pool.close()
        self.arena.close()
        assert whole, "a packet did not come back to the pool"


def define(directory: Path, text: str, **scope: Any) -> dict[str, Any]:
    """What a new source file with that text defines; ``scope`` is in its module beforehand."""
    path = directory / f"source_{len(list(directory.iterdir()))}.py"
    path.write_text(text)
    exec(compile(text, str(path), "exec"), scope)
    return scope
