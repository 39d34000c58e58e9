"""The compiled translation, asked for one flow from Python."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.view import PacketView
from wirespeed.switch import extract
from wirespeed.switch.fields import ETH_TYPE_AT, FLOW_SIZE, HEADER_WORDS, W_DERIVED
from wirespeed.switch.memory import Shared
from wirespeed.switch.translate import translation
from wirespeed.switch.translate.run import translate
from wirespeed.switch.translate.translation import Translation

ROOM = 1 << 20
PACKETS = 63
BROUGHT = (1 << 64 * HEADER_WORDS) - 1 | ((1 << 64) - 1) << 64 * W_DERIVED  # bits of a flow that are of its packet


@dataclass(frozen=True)
class Compiled:
    """The result: the words of the ops, the numbers of the counters, why it is dropped or 0."""

    words: tuple[int, ...]
    counters: tuple[int, ...]
    fault: int
    cacheable: bool
    mirrored: bool


def key_of(switch: Any, flow: int) -> int:
    """What a key of a flow has, its live bits; and what no packet brings, such as registers, which may be asked about."""
    bits: int = switch.store.live.bits | ~BROUGHT
    return flow & bits


class Translator:
    """The memory for translations of one switch's flows; a context manager."""

    def __init__(self, switch: Any) -> None:
        self.switch = switch
        self._arena = Arena(translation.SIZE + ROOM, huge=False)
        self._address = translation.make(self._arena, switch.shared)
        self._flow = self._arena.alloc(FLOW_SIZE)

    def translate(self, flow: int, place: int, frame: bytes | None = None) -> Compiled:
        """Translate the key of a flow, with its packet where there is one.  Under the switch's lock."""
        if frame is None:
            return self._translate(flow, place, 0)
        with PacketPool(PACKETS) as pool, pool.open_cache() as cache, PacketView.of(pool, cache, frame) as packet:
            return self._translate(flow, place, packet.handle)

    def _translate(self, flow: int, place: int, handle: int) -> Compiled:
        ctypes.memmove(self._flow, key_of(self.switch, flow).to_bytes(FLOW_SIZE, "little"), FLOW_SIZE)
        t = Translation.at(self._address)
        t.flow, t.version, t.handle, t.place = self._flow, self.switch.store.version, handle, place
        translate(np.int64(self._address))
        words = np.frombuffer(ctypes.string_at(int(t.ops), 8 * int(t.n_ops)), np.uint64)
        counters = np.frombuffer(ctypes.string_at(int(t.counters), 4 * int(t.n_counters)), np.uint32)
        return Compiled(
            tuple(words.tolist()), tuple(counters.tolist()), int(t.fault), bool(t.cacheable), bool(t.mirrored)
        )

    def close(self) -> None:
        """Unmap the memory."""
        self._arena.close()

    def __enter__(self) -> "Translator":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def flow_of_frame(switch: Any, frame: bytes, number: int) -> int:
    """The whole flow of a frame that comes in by a port, its hash included."""
    memory = np.zeros(FLOW_SIZE, np.uint8)
    record = Shared.at(switch.shared)
    port = switch.ports.by_number.get(number)
    place = 255 if port is None else port.place
    with PacketPool(PACKETS) as pool, pool.open_cache() as cache, PacketView.of(pool, cache, frame) as packet:
        packet.record.port = place
        extract.flow_of(
            np.int64(packet.handle), np.int64(int(record.ports)), np.int64(memory.ctypes.data),
            np.uint64(int(record.seed)), True,
        )  # fmt: skip
    return int.from_bytes(memory.tobytes(), "little") & ~0xFFFFFFFF | number


def behind_labels(flow: int, frame: bytes, labels: int) -> int:
    """A flow with what is behind so many labels of a frame."""
    memory = np.frombuffer(flow.to_bytes(FLOW_SIZE, "little"), np.uint8).copy()
    content = np.frombuffer(frame, np.uint8)
    kind = flow >> ETH_TYPE_AT & 0xFFFF
    extract.parse_behind(
        np.int64(memory.ctypes.data), np.int64(content.ctypes.data), np.int64(len(frame)), np.int64(len(frame)),
        np.int64(labels), np.int64(kind),
    )  # fmt: skip
    return int.from_bytes(memory.tobytes(), "little")
