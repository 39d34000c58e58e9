"""``wirespeed distribute``: packets spread over workers, each flow on one of them at a time."""

from functools import reduce
from typing import Any

from wirespeed.cli import session
from wirespeed.cli.parser import Parser, whole
from wirespeed.errors import GraphError

WORKERS = "threads that run the function (one; or one for each core of --cores but the first)"
EPILOG = """
words:
  kind:target,option=value   a port; `wirespeed ports` lists them
  file.py                    the function in that file that is decorated with @wirespeed.function
  file.py:name               one of several

One thread receives, spreads the packets over the workers, and transmits what they give back; with --cores it has the
first core, and the workers have the others in turn. Packets of one flow are on one worker at a time and leave in the
order in which they came; with --ordered, all packets do. Several functions run one after the other in each worker;
without any, the workers hand packets through. The report counts for each worker the packets and lines it was sent, and
goes to standard output, or, when packets go there (pcap:-), to standard error.

examples:
  wirespeed distribute pcap:in.pcap one_hop.py pcap:out.pcap --workers 2
  wirespeed distribute generator:,flows=1000 slow.py null: --cores 0-3 --seconds 10
  wirespeed distribute pcap:in.pcap work.py:f pcap:out.pcap --workers 2 --by work.py:customer --ordered --json
"""


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    parser.formatter_class = Parser.Verbatim
    add = parser.add_argument
    add("words", nargs="+", metavar="WORD", help="a port, functions, a port, in the order packets take")
    add(
        "--by",
        default="flow",
        metavar="flow|FUNCTION",
        help="what packets that stay together have in common: their flow (usual), or the number a function returns",
    )
    add("--ordered", action="store_true", help="let all packets leave in the order of their arrival")
    add("--mode", default="burst", metavar="burst|single", help="send packets in lines (usual), or one at a time")
    add(
        "--per-line",
        type=whole(1, 31),
        metavar="N",
        help="most packets in a line: 7 fill one cache line, 15 two, 31 four (31; with more than 16 workers 15)",
    )
    add(
        "--lines",
        type=whole(1, 1024),
        metavar="N",
        help="most lines on their way to a worker, a power of two (16; with more than 16 workers 4; singly 1)",
    )
    add(
        "--output",
        action="append",
        default=[],
        metavar="K=PORT",
        help="where output K of the last function leads; may be given again",
    )
    add(
        "--tap",
        action="append",
        default=[],
        metavar="STAGE=FILE",
        help="write what passes a stage to a capture file: distribute=x.pcapng; may be given again",
    )
    session.configure(parser, workers=WORKERS)


def main(arguments: Any) -> int:
    """Build the graph, run it, print the report."""
    from wirespeed.apps.distributor import distributor, placed
    from wirespeed.cli.run import goes_to_stdout, taps
    from wirespeed.cli.words import spell
    from wirespeed.observe.workers import view

    workers = arguments.workers or max(1, len(arguments.cores or ()) - 1)
    source, functions, end, further = spell(arguments.words, arguments.output)
    if any(function is not functions[-1] for function in further):
        raise GraphError("option --output: only the last function has outputs that lead out of the workers")
    graph = distributor(
        source,
        in_a_row(functions),
        end,
        *further.get(functions[-1], ()) if functions else (),
        workers=workers,
        by=tag(arguments.by),
        ordered=arguments.ordered,
        mode=arguments.mode,
        burst=arguments.per_line,
        lines=arguments.lines,
    )
    tapped = taps(arguments.tap, [element.name for element in graph])
    arguments.workers = 1
    if arguments.cores:
        arguments.cores = placed(arguments.cores, workers)
    report = session.conduct(graph, arguments, taps=tapped, crew=workers, view=view)
    return session.tell(report, arguments, to_stderr=goes_to_stdout(graph, tapped))


def tag(word: str) -> Any:
    """What ``--by`` names."""
    from wirespeed.cli.words import function_of

    if word == "flow":
        return word
    if not word.partition(":")[0].endswith(".py"):
        raise GraphError(f"option --by: got {word!r}, wanted flow, or a function such as file.py:name")
    return function_of(word)


def in_a_row(functions: list[Any]) -> Any:
    """The functions as a chain; None where there is none."""
    return reduce(lambda chain, function: chain >> function, functions) if functions else None
