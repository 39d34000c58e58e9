"""Line-rate packet processing in Python: write one function, have it compiled, forward millions of packets a second.

Four ideas: port, function, ``>>``, run.  See the README for the ten-line hello world.
"""

import importlib
from typing import Any

from wirespeed.errors import FunctionError, GraphError, PeerError, PortError, WirespeedError

__version__ = "0.1.0"

# Where each public name is defined.  They are loaded when first used: importing numba takes half a second.
_NAMES = {
    "FlowCounter": "wirespeed.apps.flows",
    "count_flows": "wirespeed.apps.flows",
    "port": "wirespeed.ports",
    "run": "wirespeed.engine.run",
    "start": "wirespeed.engine.run",
    "interrupted": "wirespeed.engine.run",
    "Report": "wirespeed.engine.report",
    "Running": "wirespeed.engine.run",
    "layout": "wirespeed.jit.layout",
    "read": "wirespeed.apps.columns",
    "Packet": "wirespeed.core.frame",
}

__all__ = ["FunctionError", "GraphError", "PeerError", "PortError", "WirespeedError", "__version__", *_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'wirespeed' has no attribute {name!r}")
    value = getattr(importlib.import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
