"""A load balancer: what one port receives is spread over workers, each flow on one of them at a time, and leaves by ports.

Theory of operation
-------------------
::

    receive -> tag -> lines -> worker 0: function -> lines back -> transmit
                            -> worker 1: function
                            -> ...

One thread receives, distributes and transmits, in turns of a burst; each worker is a thread of its own.  DPDK's sample
gives receiving, distributing and transmitting a core each, joined by rings: it spends three cores before the first
worker has one, and each packet crosses twice more from one core's cache to another's.  Here it is in the distributor's
cache when it is tagged, and every core but one works.  Where that one thread is the limit, the report shows it: it is
never idle, and its workers are.

Nothing is lost on the way: what no worker has room for stays with the distributor, and then its source waits; what is
back is looked for also when nothing arrives; a port that refuses makes all before it wait; a packet for an output that
is not there is dropped and counted.  At the end the source stops first, what is on its way is delivered, the workers
leave last.

Thread rules: what is made here is a description; :func:`wirespeed.run` runs it.
Source: what it must do is DPDK's sample application ``distributor``.
"""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from wirespeed.core.element import Chain, Element
from wirespeed.engine.distribute import distribute
from wirespeed.errors import GraphError

MODES = ("burst", "single")


def distributor(
    source: Element,
    work: Any,
    *sinks: Element,
    workers: int,
    by: Any = "flow",
    ordered: bool = False,
    mode: str = "burst",
    burst: int | None = None,
    lines: int | None = None,
) -> Chain:
    """The graph: ``source``, then ``work`` (a function, a chain, or None) in so many ``workers``, then its outputs' ``sinks``.

    ``mode`` is ``"burst"``, lines of up to ``burst`` packets of which ``lines`` may be under way to each worker, or
    ``"single"``, the handshake of one packet at a time.  The rest is as for :func:`wirespeed.distribute`.
    """
    if mode not in MODES:
        raise GraphError(f"mode must be 'burst' or 'single', got {mode!r}")
    if not sinks:
        raise GraphError("got no port behind the workers; give one for each output, such as port('null:')")
    if mode == "single":
        if burst not in (None, 1):
            raise GraphError(
                f"mode 'single' sends one packet in a line, got {burst}; leave it out, or use mode 'burst'"
            )
        burst, lines = 1, 1 if lines is None else lines
    return source >> distribute(work, workers=workers, by=by, ordered=ordered, burst=burst, lines=lines) >> sinks


def placed(cores: Sequence[int], workers: int) -> list[int]:
    """A core for each thread: the first of ``cores`` for the distributor's, the others in turn for the workers'.

    With one core, all are on it.
    """
    first, *others = cores
    return [first, *islice(cycle(others), workers)]
