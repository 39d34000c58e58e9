"""Ops done on a packet in plain Python: what is seen of them from outside, and what they say in words."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.switch import ops as op
from wirespeed.switch.actions.sending import REASONS
from wirespeed.switch.execute.reasons import DROPS
from wirespeed.switch.fields import FIELDS, TCI_PRESENT, W_DST
from wirespeed.switch.text import value as texts
from wirespeed.switch.trace.packet import Packet, Seen
from wirespeed.switch.trace.show import fields_of

WHY = tuple(DROPS)
DROP_SENTENCES = tuple(DROPS.values())


@dataclass(frozen=True)
class Event:
    """What somebody sees: ``what`` is out, normal, controller, meter or copy, ``about`` its numbers (or events).

    ``packet`` is the packet as it then is.
    """

    what: str
    about: tuple[Any, ...]
    packet: Seen | None = None


def normal(events: Sequence[Event]) -> tuple[Event, ...]:
    """Events without copies that nobody can tell from the packet itself: those in which no meter can drop."""
    found: list[Event] = []
    for event in events:
        if event.what != "copy":
            found.append(event)
            continue
        inside = normal(event.about)
        if any(one.what in ("meter", "copy") for one in inside):
            found.append(Event("copy", inside))
        else:
            found += inside
    return tuple(found)


def steps(words: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(code, argument, further words) of each op, up to END; what a copy has is among its further words."""
    at = 0
    while words[at] & 0xFFFF != op.END:
        length = words[at] >> 16 & 0xFFFF
        yield words[at] & 0xFFFF, words[at] >> 32, tuple(words[at + 1 : at + length])
        at += length


def replay(words: Sequence[int], packet: Packet) -> list[Event]:
    """What is seen when ops are done on a packet, which changes."""
    events: list[Event] = []
    for code, argument, more in steps(words):
        if code == op.OUT:
            events.append(Event("out", (argument, more[0]), packet.seen()))
        elif code == op.NORMAL:
            events.append(Event("normal", (argument,), packet.seen()))
        elif code == op.CONTROLLER:
            reason, table, extra = more[0] & 0xFF, more[0] >> 8 & 0xFF, more[0] >> 32
            events.append(Event("controller", (argument, reason, table, extra, more[1], more[2]), packet.seen()))
        elif code == op.METER:
            events.append(Event("meter", (argument,)))
        elif code == op.CLONE:
            events.append(Event("copy", tuple(replay((*more, op.END), packet.copy()))))
        else:
            _change(packet, code, argument, more)
    return events


def _change(packet: Packet, code: int, argument: int, more: tuple[int, ...]) -> None:
    if code == op.EDIT:
        packet.write(more[0] << 64 * argument, more[1] << 64 * argument)
    elif code == op.PUSH_VLAN:
        packet.push_tag(argument, more[0])
    elif code == op.POP_VLAN:
        packet.pop_tag()
    elif code == op.PUSH_MPLS:
        packet.push_label(argument, more[0])
    elif code == op.POP_MPLS:
        packet.pop_label(argument)
    elif code == op.DEC_TTL:
        packet.step_ttl()
    elif code == op.DEC_MPLS_TTL:
        packet.step_label_ttl()


def in_words(words: Sequence[int], port: Callable[[int], str], flow: int) -> list[str]:
    """Ops as a person reads them; ``port`` names a port by its place, ``flow`` says which headers there are."""
    found: list[str] = []
    for code, argument, more in steps(words):
        if code == op.OUT:
            cut = f", at most {more[0]} bytes" if more[0] else ""
            found.append(f"out {port(argument)}{cut}")
        elif code == op.EDIT:
            found += _edit_words(flow, argument, *more)
        elif code == op.CLONE:
            found.append(f"a copy ({'; '.join(in_words((*more, op.END), port, flow))})")
        else:
            found.append(_words(code, argument, more))
    return found


def _edit_words(flow: int, number: int, value: int, mask: int) -> list[str]:
    found = []
    if number == W_DST:
        if mask & 0xFFF == 0xFFF:
            found.append(f"set VLAN to {value & 0xFFF}")
        if mask & 0xE000 == 0xE000:
            found.append(f"set VLAN priority to {value >> 13 & 7}")
        mask &= ~sum(bits for bits in (0xFFF, 0xE000) if mask & bits == bits) & ~TCI_PRESENT
    value, mask = value << 64 * number, mask << 64 * number
    return found + [
        f"set {field.name} to {texts.show(field, field.get(value) << field.value_at, field.get(mask) << field.value_at)}"
        for field in fields_of(flow, mask)
    ]


def _words(code: int, argument: int, more: tuple[int, ...]) -> str:
    if code == op.PUSH_VLAN:
        tci = more[0]
        return f"push VLAN {tci & 0xFFF} (priority {tci >> 13 & 7}, type {argument:#06x})"
    if code == op.POP_VLAN:
        return "pop VLAN"
    if code == op.PUSH_MPLS:
        entry = more[0]
        label, ttl = FIELDS["mpls_label"], FIELDS["mpls_ttl"]
        assert label.shift == 12 and ttl.shift == 0
        return f"push label {entry >> 12} (ttl {entry & 0xFF}, type {argument:#06x})"
    if code == op.POP_MPLS:
        return f"pop label (what is behind it is {argument:#06x})"
    if code == op.DEC_TTL:
        return "dec_ttl"
    if code == op.DEC_MPLS_TTL:
        return "dec_mpls_ttl"
    if code == op.METER:
        return f"meter at place {argument}"
    if code == op.NORMAL:
        return "NORMAL"
    if code == op.CONTROLLER:
        return f"tell the controller (at most {argument} bytes, {REASONS[more[0] & 0xFF]})"
    return f"drop: {DROP_SENTENCES[argument]} ({WHY[argument]})"
