"""``wirespeed warm``: every kernel of the main path compiled into the cache, each with its seconds and its size."""

import gzip
import importlib
import inspect
import tempfile
from pathlib import Path
from typing import Any

from wirespeed.cli import session
from wirespeed.cli.parser import Parser

# Kernels of live ports that Python calls with addresses and numbers: to rehearse them would need rights and interfaces.
# The cache keeps a kernel under what its first caller asks for: the text that ports have it compiled by when they are
# opened, or, where there is none, the types of whole numbers.
LIVE: dict[str, dict[str, str | None]] = {
    "wirespeed.ports.packet.receive": {"abandon": "(int64,)", "unread": "(int64,)"},
    "wirespeed.ports.packet.rings": {"publish": "(int64, int64)", "used_ring": "(int64,)"},
    "wirespeed.ports.packet.transmit": {"abandon": "(int64,)"},
    "wirespeed.ports.tap.receive": {"give_up": "void(int64)"},
    "wirespeed.ports.tap.transmit": {"abandon": "void(int64)"},
    "wirespeed.ports.xdp.ring": {"left_over": None, "lend": None, "publish": None},
    "wirespeed.ports.xdp.transmit": {"write_off": None},
}


def configure(parser: Parser) -> None:
    """Declare the words."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="also the functions in these files (.py)")


def main(arguments: Any) -> int:
    """Compile, then print what there is now."""
    from wirespeed.cli.words import all_functions
    from wirespeed.jit import cache

    functions = [f for path in arguments.files for f in all_functions(path)]
    with session.shown(lines=True):
        compile_stages()
        compile_live()
        rehearse(functions)
        rehearse_rings()
        rehearse_filters()
        rehearse_transforms()
        rehearse_distributor()
    print(table())
    print(f"in {cache.root()}")
    return 0


def compile_stages() -> None:
    """Compile every stage of the package; what it calls comes with it."""
    from wirespeed.cli.layouts import import_everything
    from wirespeed.jit.inventory import stages

    import_everything()
    for stage in stages():
        _ = stage.address


def compile_live() -> None:
    """Compile the kernels that live ports call when they begin, end and change."""
    for module, kernels in LIVE.items():
        for name, signature in kernels.items():
            kernel = getattr(importlib.import_module(module), name)
            arguments = len(inspect.signature(kernel.py_func).parameters)
            kernel.compile(signature or (kernel.typeof_pyval(0),) * arguments)


def rehearse(functions: list[Any]) -> None:
    """Do a little of everything: kernels that Python calls are compiled when it calls them."""
    import wirespeed as ws
    from wirespeed.cli.demo import demo_capture
    from wirespeed.cli.one_hop import one_hop
    from wirespeed.ports.memory import MemoryPort

    with tempfile.TemporaryDirectory() as folder, demo_capture() as capture:
        for function in [one_hop, *functions]:
            ws.run(ws.port(f"pcap:{capture}") >> function >> ws.port(f"pcap:{folder}/out.pcap"))
        packed = Path(folder) / "in.pcap.gz"
        packed.write_bytes(gzip.compress(capture.read_bytes()))
        ws.run(ws.port(f"pcap:{packed},loop=2") >> ws.port("null:"))
        one_hop(capture.read_bytes()[40:100], compiled=True)
        ws.count_flows(f"pcap:{capture}")
        ws.read(capture).table()
    memory = MemoryPort()
    for seconds in (0.0, 0.01):  # the second one waits, as its kernels are there
        memory.pull(timeout=seconds)
    memory.push([bytes(64)])
    memory.close_input()
    ws.run(ws.port("generator:count=64") >> memory, memory >> ws.port("null:"))
    memory.pull()


def rehearse_rings() -> None:
    """Use a ring of each kind once, staged and shared, and a pool, as Python programs do."""
    import numpy as np

    import wirespeed as ws

    for options in ({"dtype": np.int64}, {"dtype": object}, {"shared": True, "prod": "hts", "cons": "hts"}):
        with ws.Ring(8, **options) as ring:
            ring.enqueue(1)
            ring.enqueue_burst([1, 2])
            ring.dequeue()
            ring.dequeue_burst(1)
            ring.dequeue_bulk(2, timeout_s=0.001)
            if "shared" in options:
                with ring.reserve(1) as room, ring.peek(1) as look:
                    room.commit()
                    look.take()
    with ws.StagedRing(8) as staged:
        staged.enqueue_burst([1, 2])
        with staged.acquire(0, 2):
            pass
        staged.dequeue_burst(2)
    with ws.PacketPool(64) as pool:
        pool.free(pool.alloc(4))


def rehearse_filters() -> None:
    """Filter a little, on ports and as a stage, so that what publishes a program is compiled."""
    import wirespeed as ws

    ws.run(ws.port("generator:count=64,filter=udp") >> ws.filter("tcp") >> ws.port("null:filter=ip"))


def rehearse_transforms() -> None:
    """Cut and join a little: the ends of these stages have kernels of their own."""
    import wirespeed as ws

    cut, joined = (ws.segment(), ws.fragment(576)), (ws.reassemble(), ws.coalesce())
    for there, back in zip(cut, joined):
        ws.run(ws.port("generator:count=64,size=1000,trailer=yes") >> there >> back >> ws.port("checker:"))


def rehearse_distributor() -> None:
    """Distribute a little, in a run, whose end has kernels of its own, and as Python programs do."""
    import wirespeed as ws
    from wirespeed.apps.distributor import distributor
    from wirespeed.cli.one_hop import one_hop

    for ordered in (False, True):
        ws.run(distributor(ws.port("null:count=64"), one_hop, ws.port("null:"), workers=1, ordered=ordered))
    with ws.Distributor(1) as spread, spread.worker() as worker:
        worker.request()
        spread.process([1, 2], [1, 2], timeout_s=1.0)
        spread.process((), ())
        worker.give_back(worker.get(timeout_s=1.0))
        spread.flush(timeout_s=1.0)
        spread.returned()


def table() -> str:
    """A line for each kernel in this process: seconds of compiling, or that it came from the cache; bytes of code."""
    from wirespeed.jit.inventory import entries
    from wirespeed.jit.kernel import compiled

    seconds: dict[str, float] = {}
    for one in compiled():
        seconds[one.name] = max(one.seconds, seconds.get(one.name, 0.0))
    listed = entries()
    width = max((len(entry.name) for entry in listed), default=6)
    lines = [f"{'kernel':{width}}  {'seconds':>7}  {'bytes of code':>13}"]
    for entry in listed:
        took = f"{seconds[entry.name]:.2f}" if entry.name in seconds else "cached"
        lines.append(f"{entry.name:{width}}  {took:>7}  {entry.code_bytes:>13,}")
    total = sum(entry.code_bytes for entry in listed)
    fresh = sum(entry.name in seconds for entry in listed)
    return "\n".join([*lines, f"{len(listed)} kernels, {fresh} compiled now, {total:,} bytes of code"])
