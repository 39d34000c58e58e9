"""A trace as it is asked for: by a flow's text or a frame's bytes, the answer as text."""

from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch.trace.compiled import flow_of_frame
from wirespeed.switch.trace.flow import read_flow
from wirespeed.switch.trace.tell import lines
from wirespeed.switch.trace.trace import trace


def asked(switch: Any, text: str, frame: bytes | None = None, in_port: int | None = None) -> dict[str, Any]:
    """The lines of a trace, and its differences, of which there should be none."""
    notes: tuple[str, ...] = ()
    if frame is None:
        asked = read_flow(switch, text)
        flow, notes = asked.flow, asked.notes
    else:
        if text:
            raise GraphError("trace: give a flow or a frame, not both")
        if in_port is None:
            raise GraphError("trace: a frame came in by a port; give in_port")
        with switch.lock:
            flow = flow_of_frame(switch, frame, in_port)
    found = trace(switch, flow, frame)
    told = [*(f"({note})" for note in notes), *lines(switch, found)]
    return {"lines": told, "differences": list(found.differences)}
