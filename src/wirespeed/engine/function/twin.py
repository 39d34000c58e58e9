"""The interpreted form's packet, headers, state and arrays: Python objects over the same memory as the compiled form's.

A user's function that is interpreted runs as Python, line by line, so that a debugger can stop in it.  What it touches
are these objects; headers are found by the compiled form's own parser, and what takes more than a field is done by the
same kernels (:mod:`wirespeed.engine.function.edit`).
"""

import ctypes
from collections.abc import Callable
from typing import Any

from wirespeed.core.packet import MARKED
from wirespeed.core.packet import Packet as Record
from wirespeed.core.stage import Head
from wirespeed.engine.function import pkt, runtime
from wirespeed.engine.function.arithmetic import wrap
from wirespeed.jit.layout import Layout
from wirespeed.jit.region import array_code
from wirespeed.net import hashing
from wirespeed.net.parse import EVERYTHING, PAYLOAD, locate


class Header(pkt.Header):
    """A header: where it is read and where it is written, which is the same place when it is there."""

    __slots__ = ("ws_layout", "ws_read", "ws_write")
    ws_layout: Layout
    ws_read: int
    ws_write: int

    def __init__(self, layout: Layout, read: int, write: int) -> None:
        for name, value in (("ws_layout", layout), ("ws_read", read), ("ws_write", write)):
            object.__setattr__(self, name, value)

    def __bool__(self) -> bool:
        return self.ws_read == self.ws_write

    def __getattr__(self, name: str) -> int:
        return wrap(int(getattr(self.ws_layout.at(self.ws_read), name)))

    def __setattr__(self, name: str, value: int) -> None:
        setattr(self.ws_layout.at(self.ws_write), name, value)

    def __repr__(self) -> str:
        return repr(self.ws_layout.at(self.ws_read)) if self else f"<{self.ws_layout.name}, not there>"


class Array:
    """Integers at an address: a table, an array of the state, or bytes of the packet."""

    __slots__ = ("address", "big", "length", "signed", "size")

    def __init__(self, address: int, length: int, code: str) -> None:
        self.address, self.length, self.size = address, length, int(code[-1])
        self.big, self.signed = code[0] == ">", "i" in code

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.length:
            return 0
        value = ctypes.string_at(self.address + index * self.size, self.size)
        return wrap(int.from_bytes(value, "big" if self.big else "little", signed=self.signed))

    def __setitem__(self, index: int, value: int) -> None:
        if 0 <= index < self.length:
            low = value & (1 << 8 * self.size) - 1
            order = low.to_bytes(self.size, "big" if self.big else "little")
            ctypes.memmove(self.address + index * self.size, order, self.size)

    def __repr__(self) -> str:
        shown = ", ".join(str(self[i]) for i in range(min(self.length, 16)))
        return f"<{self.length} elements: {shown}{', ...' if self.length > 16 else ''}>"


class Bytes(Array, pkt.Bytes):
    """Bytes of the packet, and words among them."""

    __slots__ = ()

    def __init__(self, address: int, length: int) -> None:
        super().__init__(address, length, "u1")

    def _word(self, at: int, size: int) -> Array:
        """The word at ``at`` as an array of one element, of none where it is not inside."""
        return Array(self.address + at, int(0 <= at <= self.length - size), f">u{size}")

    def u16(self, at: int) -> int:
        return self._word(at, 2)[0]

    def u32(self, at: int) -> int:
        return self._word(at, 4)[0]

    def u64(self, at: int) -> int:
        return self._word(at, 8)[0]

    def put_u16(self, at: int, value: int) -> None:
        self._word(at, 2)[0] = value

    def put_u32(self, at: int, value: int) -> None:
        self._word(at, 4)[0] = value

    def put_u64(self, at: int, value: int) -> None:
        self._word(at, 8)[0] = value


class State:
    """A state, or a part of one: numbers, parts and arrays by name."""

    __slots__ = ("ws_address", "ws_layout")
    ws_address: int
    ws_layout: Layout

    def __init__(self, layout: Layout, address: int) -> None:
        object.__setattr__(self, "ws_layout", layout)
        object.__setattr__(self, "ws_address", address)

    def __getattr__(self, name: str) -> Any:
        field = self.ws_layout.fields.get(name)
        if field is not None and field.sub is not None:
            return State(field.sub, self.ws_address + field.offset)
        if field is not None and field.count:
            return Array(self.ws_address + field.offset, field.count, array_code(field))
        return wrap(int(getattr(self.ws_layout.at(self.ws_address), name)))

    def __setattr__(self, name: str, value: int) -> None:
        setattr(self.ws_layout.at(self.ws_address), name, value)

    def __repr__(self) -> str:
        return repr(self.ws_layout.at(self.ws_address))


class OwnState(State):
    """A state with memory of its own."""

    __slots__ = ("ws_memory",)
    ws_memory: Any

    def __init__(self, layout: Layout) -> None:
        memory = ctypes.create_string_buffer(layout.size)
        object.__setattr__(self, "ws_memory", memory)
        super().__init__(layout, ctypes.addressof(memory))


class Packet(pkt.Pkt):
    """A packet: its record, and where its headers are."""

    __slots__ = ("ws_found", "ws_frame", "ws_length", "ws_record", "ws_state", "ws_want")
    ws_found: dict[str, int]
    ws_frame: int
    ws_length: int
    ws_record: int
    ws_state: int
    ws_want: int

    def __init__(self, record: int, state: int, want: int) -> None:
        for name, value in (("ws_record", record), ("ws_state", state), ("ws_want", want)):
            object.__setattr__(self, name, value)
        self.locate()

    def locate(self) -> None:
        """Find frame and headers."""
        record = Record.at(self.ws_record)
        object.__setattr__(self, "ws_frame", record.buffer + record.data)
        object.__setattr__(self, "ws_length", record.length)
        object.__setattr__(self, "ws_found", self._places(self.ws_want))

    def ws_places(self, bit: int) -> dict[str, int]:
        """Where things are, one of which has that bit; what the function does not name, only a debugger asks for."""
        return self.ws_found if bit & self.ws_want else self._places(int(EVERYTHING))

    def _places(self, want: int) -> dict[str, int]:
        link = Record.at(self.ws_record).link
        return dict(zip(runtime.FOUND, map(int, locate(self.ws_frame, self.ws_length, link, want)), strict=True))

    def __getattr__(self, name: str) -> Any:
        if name in runtime.FIELDS:
            return wrap(int(getattr(Record.at(self.ws_record), runtime.FIELDS[name])))
        if name in runtime.PLACES:
            return self._header(name)
        if name in COMPUTED:
            return COMPUTED[name](self)
        raise AttributeError(f"a packet has no {name!r}")

    def _header(self, name: str) -> Header:
        place = runtime.PLACES[name]
        found = self.ws_places(place.bit)
        if found["layers"] & place.bit:
            at = self.ws_frame + (found[place.slot] if place.slot else 0) + place.more
            return Header(place.layout, at, at)
        head = Head.at(self.ws_state)
        return Header(place.layout, head.zeros, head.scratch)

    def __setattr__(self, name: str, value: int) -> None:
        if name != "mark":
            raise AttributeError(f"{name!r} of a packet cannot be written")
        set_mark(self, value)

    def __repr__(self) -> str:
        return f"<Packet of {self.length} bytes: {_content(_frame(self))[:16].hex(' ')}>"


def _content(seen: Bytes) -> bytes:
    return ctypes.string_at(seen.address, seen.length)


def _frame(packet: Packet) -> Bytes:
    return Bytes(packet.ws_frame, packet.ws_length)


def _payload(packet: Packet) -> Bytes:
    found = packet.ws_places(PAYLOAD)
    start = min(max(found["payload"], 0), packet.ws_length)
    return Bytes(packet.ws_frame + start, min(max(found["end"], start), packet.ws_length) - start)


def _hash(packet: Packet) -> int:
    return int(hashing.flow_hash(packet.ws_frame, packet.ws_length, packet.link))


def _mark(packet: Packet) -> int:
    record = Record.at(packet.ws_record)
    return record.mark if record.flags & MARKED else 0


def set_mark(packet: Packet, value: int) -> None:
    """``pkt.mark = value``."""
    record = Record.at(packet.ws_record)
    record.mark = value
    record.flags |= MARKED


COMPUTED: dict[str, Callable[[Packet], Any]] = {"frame": _frame, "payload": _payload, "hash": _hash, "mark": _mark}
"""Attributes of a packet that are worked out when they are asked for."""
