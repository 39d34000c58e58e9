"""Line-rate packet processing in Python: write one function, have it compiled, forward millions of packets a second.

Four ideas: port, function, ``>>``, run.  See the README for the ten-line hello world.
"""

import importlib
from typing import Any

from wirespeed.errors import FunctionError, GraphError, PeerError, PortError, WirespeedError

__version__ = "0.1.0"

# Where each public name is defined.  They are loaded when first used: importing numba takes half a second.
_NAMES = {
    "port": "wirespeed.ports",
    "distribute": "wirespeed.engine.distribute",
    "filter": "wirespeed.engine.filter",
    "DROP": "wirespeed.engine.function",
    "FORWARD": "wirespeed.engine.function",
    "Pkt": "wirespeed.engine.function",
    "checksum_ipv4": "wirespeed.engine.function",
    "checksum_l4": "wirespeed.engine.function",
    "coalesce": "wirespeed.engine.transform",
    "decrement_ttl": "wirespeed.engine.function",
    "fragment": "wirespeed.engine.transform",
    "function": "wirespeed.engine.function",
    "pop_vlan": "wirespeed.engine.function",
    "push_vlan": "wirespeed.engine.function",
    "random": "wirespeed.engine.function",
    "reassemble": "wirespeed.engine.transform",
    "rewrite": "wirespeed.engine.function",
    "segment": "wirespeed.engine.transform",
    "symmetric_hash": "wirespeed.engine.function",
    "Checker": "wirespeed.ports.checker.element",
    "Histogram": "wirespeed.ports.checker.histogram",
    "checker": "wirespeed.ports.checker.element",
    "LiveTable": "wirespeed.observe.live",
    "Running": "wirespeed.engine.running",
    "interrupted": "wirespeed.engine.run",
    "run": "wirespeed.engine.run",
    "start": "wirespeed.engine.run",
    "Report": "wirespeed.engine.report",
    "StageReport": "wirespeed.engine.report",
    "WorkerReport": "wirespeed.engine.report",
    "FlowCounter": "wirespeed.apps.flows",
    "count_flows": "wirespeed.apps.flows",
    "Capture": "wirespeed.apps.columns",
    "Columns": "wirespeed.apps.columns",
    "read": "wirespeed.apps.columns",
    "Packet": "wirespeed.core.frame",
    "Distributor": "wirespeed.core.distributor.distributor",
    "DistributorStatistics": "wirespeed.core.distributor.statistics",
    "DistributorWorker": "wirespeed.core.distributor.worker",
    "ExternalBuffer": "wirespeed.core.external",
    "PacketPool": "wirespeed.core.packet_pool",
    "PacketView": "wirespeed.core.view",
    "Ring": "wirespeed.core.queue",
    "StagedRing": "wirespeed.core.staged_ring",
    "layout": "wirespeed.jit.layout",
    "Switch": "wirespeed.switch.switch",
    "Group": "wirespeed.switch.groups",
    "Bucket": "wirespeed.switch.groups",
    "Band": "wirespeed.tables.meter",
    "output": "wirespeed.switch.action",
    "set_field": "wirespeed.switch.action",
    "move": "wirespeed.switch.action",
    "dec_ttl": "wirespeed.switch.action",
    "goto_table": "wirespeed.switch.action",
    "resubmit": "wirespeed.switch.action",
    "group": "wirespeed.switch.action",
    "meter": "wirespeed.switch.action",
    "controller": "wirespeed.switch.action",
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
