"""``wirespeed demo``: the main job on the capture that comes with wirespeed.

The capture is read again and again for some seconds, so that there is something to see, and then once more into a
file: at full speed, a file that took all of it would fill a disk within minutes.
"""

import inspect
import tempfile
import textwrap
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import Any

from wirespeed.cli import session
from wirespeed.cli.parser import Parser

SECONDS = 3.0


def configure(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where the changed capture goes (a new temporary folder)"
    )
    session.configure(parser)


def main(arguments: Any) -> int:
    """Show the function, run it with the live table, print the report and where the changed capture is."""
    from wirespeed.cli.one_hop import one_hop
    from wirespeed.engine.run import run
    from wirespeed.ports import make

    if not arguments.json:
        print(introduction(one_hop.python), flush=True)
    arguments.seconds = arguments.seconds or SECONDS
    target = arguments.output or Path(tempfile.mkdtemp(prefix="wirespeed-demo-")) / "out.pcap"
    with demo_capture() as capture:
        source = make("pcap", str(capture), {"loop": "inf"})
        source.name = "pcap:demo.pcap"  # its whole path would fill half of the table
        again = source >> one_hop >> make("null", "", {})
        code = session.tell(session.conduct(again, arguments, lines=True), arguments)
        once = run(make("pcap", str(capture), {}) >> one_hop >> make("pcap", str(target), {}))
    if not arguments.json:
        print(f"\n{once.packets:,} of its {once.received:,} packets, changed: {target}")
    return code if once.balanced else 1


def demo_capture() -> AbstractContextManager[Path]:
    """The capture that comes with wirespeed, as a file for as long as the context lasts."""
    return resources.as_file(resources.files("wirespeed") / "data" / "demo.pcap")


def introduction(function: Any) -> str:
    """What is about to be seen."""
    source = textwrap.indent(inspect.getsource(function), "    ")
    return f"A small office's traffic, again and again, through this function, compiled:\n\n{source}"
