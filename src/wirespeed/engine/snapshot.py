"""Reading the workers' records: the parts of a report, at any moment of a run."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from wirespeed.core import pool
from wirespeed.core.stage import COMMON_DROPS, Part
from wirespeed.engine.clock import read_cycles
from wirespeed.engine.graph import Node
from wirespeed.engine.placement import GraphCopy
from wirespeed.engine.report import StageReport, WorkerReport

log = logging.getLogger("wirespeed")


def drain(copies: Sequence[GraphCopy]) -> None:
    """Put the packets in the workers' caches back into the pool; only when no worker runs any more."""
    for copy in copies:
        pool.drain(copy.cache)


def stage_report(node: Node, part: Part, copies: Sequence[GraphCopy], crew: str = "") -> StageReport:
    """What a node did in all copies of the graph; ``crew`` is the stage whose crew has the copies."""
    records = [copy.record(node) for copy in copies]
    heads = [copy.head(node) for copy in copies]
    edges = [[copy.edge(node, k).packets for copy in copies] for k in sorted(node.targets) if k > 0]
    drops: Counter[str] = Counter()
    for copy in copies:
        drops.update(copy.drops(node))
    made = int(getattr(part, "made", int)())
    outputs = (sum(r.packets_out for r in records), *(sum(e) for e in edges))
    if node.role == "sink":
        # The worker counts what a sink did not refuse; what it then dropped, or still has, has not gone out, and what
        # it made (a frame cut into several) has.
        dropped = sum(n for reason, n in drops.items() if reason != "output_full")
        outputs = (outputs[0] + made - dropped - sum(h.held for h in heads),)
    timed = sum(r.timed for r in records)
    return StageReport(
        name=node.name,
        kind=node.role,
        packets_in=sum(r.packets_in for r in records),
        packets_out=sum(outputs),
        outputs=outputs,
        bytes=sum(h.bytes for h in heads),
        held=sum(h.held for h in heads) + sum(copy.waiting(node) for copy in copies),
        refused=sum(r.refused for r in records),
        drops=dict(drops),
        sentences={**COMMON_DROPS, **copies[0].placements[node].drops},
        cycles_per_packet=sum(r.cycles for r in records) / timed if timed else None,
        counters=_counters(part),
        crew=crew,
        made=made,
    )


def _counters(part: Part) -> dict[str, Any]:
    """What a part counts itself; one that cannot say so must not keep a run from its end."""
    try:
        counted: dict[str, Any] = getattr(part, "counters", dict)()
    except Exception as error:
        log.exception("the counters of a part failed")
        return {"counters": repr(error)}
    return counted


def worker_report(copy: GraphCopy, cores: Sequence[int]) -> WorkerReport:
    """What a worker did; its idle time includes that which is going on now."""
    record, number = copy.worker, copy.number
    now = record.end or int(read_cycles())
    total = max(1, now - record.begin) if record.begin else 1
    idle = record.idle_cycles + (now - record.idle_since if record.idle_since else 0)
    core = cores[number % len(cores)] if cores else None
    return WorkerReport(number, core, record.loops, min(1.0, max(0.0, idle / total)), copy.stage_name())
