"""A trace: what the reference makes of a flow, what the compiled translation makes of it, and where they differ."""

from dataclasses import dataclass
from typing import Any

from wirespeed.switch.fields import FIELDS
from wirespeed.switch.memory import NO_PLACE
from wirespeed.switch.trace.compiled import Compiled, Translator
from wirespeed.switch.trace.packet import Packet
from wirespeed.switch.trace.reference import Outcome, reference
from wirespeed.switch.trace.replay import normal, replay


@dataclass(frozen=True)
class Trace:
    """A flow, its packet's bytes where there is one, and both results.  ``differences`` has a sentence for each."""

    flow: int
    frame: bytes | None
    outcome: Outcome
    compiled: Compiled
    differences: tuple[str, ...]


def trace(switch: Any, flow: int, frame: bytes | None = None) -> Trace:
    """Trace a flow through the rules as they are now; ``frame`` has the bytes of its packet."""
    with switch.lock:
        port = switch.ports.by_number.get(FIELDS["in_port"].get(flow))
        outcome = reference(switch, flow, frame)
        with Translator(switch) as translator:
            compiled = translator.translate(flow, NO_PLACE if port is None else port.place, frame)
    return Trace(flow, frame, outcome, compiled, tuple(differences(flow, outcome, compiled)))


def differences(flow: int, outcome: Outcome, compiled: Compiled) -> list[str]:
    """How the compiled translation's result differs from the reference's."""
    found = []
    wanted, got = normal(outcome.events), normal(replay(compiled.words, Packet.of(flow)))
    if wanted != got:
        found.append(f"the reference sends {_events(wanted)}, the compiled translation {_events(got)}")
    if not wanted and outcome.fault != compiled.fault:
        found.append(
            f"the reference drops it for reason {outcome.fault}, the compiled translation for {compiled.fault}"
        )
    if tuple(outcome.counters) != compiled.counters:
        found.append(f"the reference counts {outcome.counters}, the compiled translation {list(compiled.counters)}")
    return found


def _events(events: Any) -> str:
    return "; ".join(f"{event.what} {event.about} {event.packet}" for event in events) or "nothing"
