"""A place for one packet outside of any graph, in which a user's function can be tried: ``one_hop(frame)``."""

from collections.abc import Mapping
from threading import Event, Thread

from wirespeed.core.arena import Arena
from wirespeed.core.packet import HEADROOM, MARKED, Packet
from wirespeed.core.stage import COMMON_DROPS, Head, Outbox
from wirespeed.engine.function import runtime
from wirespeed.engine.function.runtime import FunctionState
from wirespeed.errors import FunctionError
from wirespeed.jit import libc
from wirespeed.jit.kernel import Stage

PAGE = 4096
ROOM = 2048  # bytes that a packet of a pool has for its data


class Stand:
    """One packet with its buffer, and a state of ``size`` bytes whose head is filled as an engine would.

    The buffer has the headroom and at least the tailroom that packets of a pool have.  Unmapped by :meth:`close`.
    """

    def __init__(self, data: bytes, size: int, record: Mapping[str, int]) -> None:
        room = HEADROOM + max(ROOM, len(data) + HEADROOM)
        self.arena = Arena(Packet.size + room + size + 4 * PAGE, huge=False)
        self.packet = self.arena.alloc(Packet.size)
        self.state = self.arena.alloc(size)
        self.idle = Event()
        self.idle.set()
        self._fill_packet(data, room, record)
        self._fill_head()

    def _fill_packet(self, data: bytes, room: int, record: Mapping[str, int]) -> None:
        p = Packet.at(self.packet)
        p.buffer, p.capacity, p.data = self.arena.alloc(room), room, HEADROOM
        p.length = p.total = p.wire = len(data)
        p.refcnt = p.segments = p.link = 1
        for name, value in record.items():
            setattr(p, name, value)
        p.flags = MARKED
        libc.copy_in(p.buffer + p.data, data)

    def _fill_head(self) -> None:
        head = Head.at(self.state)
        head.scratch, head.zeros = self.arena.alloc(PAGE), self.arena.alloc(PAGE)
        head.stop = self.arena.alloc(8)
        head.reasons = self.arena.alloc(8 * (len(COMMON_DROPS) + len(runtime.DROPS)))
        head.drops = self.arena.alloc(Outbox.size)
        self.burst = self.arena.alloc(8)
        box = Outbox.at(head.drops)
        box.address, box.capacity = self.arena.alloc(8), 1
        # There is no output, so that a packet with any verdict but 0 ends in the drop outbox.
        head.outputs = 1

    @property
    def verdict(self) -> int:
        """What the compiled function said of a packet that did not stay in the burst."""
        return int(FunctionState.at(self.state).verdict)

    @property
    def failed(self) -> bool:
        """Whether the compiled function ended by an exception."""
        return bool(FunctionState.at(self.state).failed)

    def stop(self) -> None:
        """Have a loop of the compiled function end."""
        runtime.Word.at(Head.at(self.state).stop).value = 1

    def data(self) -> bytes:
        """The packet's bytes as they are now."""
        p = Packet.at(self.packet)
        return libc.copy_out(p.buffer + p.data, p.length)

    def close(self) -> None:
        """Give the memory back, unless a kernel is still at work on it."""
        if self.idle.is_set():
            self.arena.close()


def run(stage: Stage, stand: Stand, may_loop: bool) -> int:
    """Run a stage on the stand's packet; the verdict.

    A stage with loops runs in a thread of its own, so that Ctrl-C can stop it: a kernel holds up the main thread.
    """
    stage.address  # noqa: B018  (compiles it, here and not in the thread)
    libc.copy_in(stand.burst, stand.packet.to_bytes(8, "little"))
    left: list[int] = []

    def call() -> None:
        left.append(stage(stand.state, stand.burst, 1))
        stand.idle.set()

    if may_loop:
        thread = Thread(target=call, name=f"trying {stage.name}")
        stand.idle.clear()
        try:
            thread.start()
            stand.idle.wait()  # Thread.join does not wait any more once Ctrl-C has interrupted it
        finally:
            stand.stop()
            while not stand.idle.wait(0.1) and thread.is_alive():
                pass
    else:
        call()
    if stand.failed:
        raise FunctionError(f"{stage.name} failed inside; the interpreted form may show where")
    return 0 if left == [1] else stand.verdict
