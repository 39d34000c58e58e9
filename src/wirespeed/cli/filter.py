"""``wirespeed filter``: what an expression is compiled to, or how many packets of captures it matches."""

import itertools
import json
import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wirespeed.cli.parser import Parser, did_you_mean
from wirespeed.errors import GraphError

if TYPE_CHECKING:
    from wirespeed.engine.report import Report
    from wirespeed.net.filter import Program

FORMATS = ("listing", "c", "bytes", "json", "llvm", "asm")
EPILOG = """
formats:
  listing   one step a line, as tcpdump -d prints it
  c         initialisers of a C array of struct bpf_insn, as tcpdump -dd
  bytes     the number of steps, then their numbers, as tcpdump -ddd
  json      all that is known of the program
  llvm      the function that it becomes, in LLVM's language
  asm       its machine code here, as assembly

With capture files, nothing is printed but how many of their packets match, each judged by its own link type.

examples:
  wirespeed filter 'tcp port 80 and not vlan'
  wirespeed filter 'icmp6' --link RAW --format asm
  wirespeed filter 'host 10.0.0.1' in.pcap more.pcapng.gz
"""


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.usage = "wirespeed filter [options] EXPR [FILE ...]"
    parser.epilog = EPILOG
    parser.formatter_class = Parser.Verbatim
    parser.add_argument(
        "expression", nargs="?", metavar="EXPR", help="an expression of the pcap-filter language, as one word"
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="count the packets that match in these captures")
    parser.add_argument("--link", metavar="NAME", help="link type of the frames: EN10MB (Ethernet), RAW, or a number")
    parser.add_argument("--format", choices=FORMATS, default="listing", help="how it is printed (listing)")
    parser.add_argument("--kernel", action="store_true", help="the program that is attached to a socket of Linux")


def main(arguments: Any) -> int:
    """Print the program, or the counts."""
    if arguments.expression is None:
        raise GraphError("got no expression, wanted one such as 'tcp port 80'; see wirespeed filter --help")
    whole(arguments)
    if arguments.files:
        for option in ("link", "kernel"):
            if getattr(arguments, option):
                raise GraphError(f"option --{option}: it has no meaning for captures, whose packets have link types")
        if arguments.format not in ("listing", "json"):
            raise GraphError(f"option --format: got {arguments.format}, wanted listing or json for what captures match")
        for line in counts(arguments.expression, arguments.files, arguments.format == "json"):
            print(line)
        return 0
    from wirespeed.net import filter as pcap_filter
    from wirespeed.ports.filter.expression import LONG

    if len(arguments.expression) > LONG:
        print(f"wirespeed: compiling {len(arguments.expression):,} characters takes seconds", file=sys.stderr)
    link = link_of(arguments.link)
    program = pcap_filter.compile(arguments.expression, link=link, in_kernel=arguments.kernel)
    print(written(program, arguments.format))
    return 0


def whole(arguments: Any) -> None:
    """Refuse an expression that the shell has taken apart: ``filter tcp port 80`` instead of ``filter 'tcp port 80'``."""
    from wirespeed.net.filter import FilterError
    from wirespeed.net.filter.parser import parse

    apart = list(itertools.takewhile(lambda word: not os.path.exists(word), arguments.files))
    expression = " ".join([arguments.expression, *apart])
    if apart:
        try:
            parse(expression)
        except FilterError:
            return
        said = shlex.join([expression, *arguments.files[len(apart) :]])
        raise GraphError(f"the expression must be one word; write wirespeed filter {said}")


def link_of(word: str | None) -> int:
    """The number of a link type, from its name in either case, or its number."""
    from wirespeed.net.filter import link_type
    from wirespeed.net.link import LINKTYPE_ETHERNET

    if word is None or word.upper() == "ETHERNET":
        return LINKTYPE_ETHERNET
    if word.isdecimal():
        return int(word)
    name = word.upper().removeprefix("DLT_").removeprefix("LINKTYPE_")
    numbers: dict[str, int] = {name: number for number, name in link_type.SUPPORTED.items()}
    if name not in numbers:
        near = did_you_mean(name, numbers) or f"; they are {', '.join(sorted(numbers))}"
        raise GraphError(f"option --link: there is no link type {word!r}{near}")
    return numbers[name]


def written(program: "Program", form: str) -> str:
    """A program in one of the formats."""
    steps = program.instructions
    if form == "listing":
        return str(program)
    if form == "c":
        return "\n".join(f"{{ {code:#x}, {jt}, {jf}, {k:#010x} }}," for code, jt, jf, k in steps)
    if form == "bytes":
        return "\n".join([str(len(steps)), *(f"{code} {jt} {jf} {k}" for code, jt, jf, k in steps)])
    if form == "json":
        told = {"expression": program.expression, "link": program.link, "steps": [list(step) for step in steps]}
        return json.dumps(told)
    from wirespeed.jit import bpf

    return (bpf.intermediate(steps) if form == "llvm" else bpf.assembly(steps)).rstrip()


def counts(expression: str, files: list[str], as_json: bool) -> Iterator[str]:
    """A line for each capture: how many of its packets match."""
    from wirespeed.engine.filter import filter
    from wirespeed.engine.run import run
    from wirespeed.ports import make

    for file in files:
        stage = filter(expression)
        nothing = make("null", "", {})
        report = run(make("pcap", file, {}) >> stage >> (nothing, nothing))
        yield counted(report, file, stage.name, as_json)
        for note in [*report.notes, *(f"{k}: {v}" for k, v in report.stage(stage.name).counters.items())]:
            print(f"{file}: {note}", file=sys.stderr)


def counted(report: "Report", file: str, stage: str, as_json: bool) -> str:
    """What is said of one capture."""
    told = report.stage(stage)
    if as_json:
        return json.dumps({"file": file, "matching": told.outputs[0], "packets": told.packets_in})
    return f"{file}: {told.outputs[0]:,} of {told.packets_in:,} packets match"
