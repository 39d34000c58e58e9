"""A trace as text: the flow, each step set in under what led to it, then the outcome and why."""

from collections.abc import Iterator
from typing import Any

from wirespeed.switch import ops as op
from wirespeed.switch.fields import HEADER_WORDS
from wirespeed.switch.trace.compiled import key_of
from wirespeed.switch.trace.replay import DROP_SENTENCES, WHY, in_words
from wirespeed.switch.trace.show import fields_of, flow_text
from wirespeed.switch.trace.trace import Trace

INSET = "    "
_MARKS = {"effect": " -> ", "note": " -- ", "stop": " ** ", "group": " => "}
MOST_STEPS = 20_000


def lines(switch: Any, found: Trace) -> Iterator[str]:
    """A trace, line by line."""
    yield f"flow: {flow_text(found.flow)}"
    yield ""
    for step in found.outcome.steps[:MOST_STEPS]:
        yield INSET * step.depth + _MARKS.get(step.kind, "") + step.text
    if len(found.outcome.steps) > MOST_STEPS:
        yield f"... and {len(found.outcome.steps) - MOST_STEPS} steps more"
    yield ""
    yield from _outcome(switch, found)


def _outcome(switch: Any, found: Trace) -> Iterator[str]:
    with switch.lock:
        names = {port.place: f"port {switch.port_name(port.number)}" for port in switch.ports.by_number.values()}
        key = key_of(switch, found.flow)
        live = switch.store.live.bits & ((1 << 64 * HEADER_WORDS) - 1)
    words = found.compiled.words
    if words[0] & 0xFFFF == op.DROP:
        why = words[0] >> 32
        yield f"result: dropped: {DROP_SENTENCES[why]} ({WHY[why]})"
    else:
        said = in_words(words, lambda place: names.get(place, f"place {place}"), found.flow)
        yield f"result: {'; '.join(said)}"
    if found.compiled.mirrored:
        yield "mirrors: one may want a copy; which is known when the packet is there"
    if found.compiled.cacheable:
        named = ", ".join(dict.fromkeys(field.name for field in fields_of(found.flow, live)))
        yield f"cached by: {named} ({flow_text(key)})"
    else:
        yield "cached by: nothing; the key does not tell all that decides, so each packet goes through the tables"
    for difference in found.differences:
        yield f"!! DIFFERENCE between the reference and the compiled translation: {difference}"
