"""``wirespeed run``: packets through a chain of ports and functions."""

from typing import Any

from wirespeed.cli import session
from wirespeed.cli.parser import Parser
from wirespeed.errors import GraphError

EPILOG = """
words of the chain:
  kind:target,option=value   a port; `wirespeed ports` lists them
  file.py                    the function in that file that is decorated with @wirespeed.function
  file.py:name               one of several
  and                        begins another chain, which runs at the same time

The chain begins and ends with a port and is read as an arrow: what the first port receives goes through each function
in turn; a function's verdict 0 (FORWARD) goes on along the chain. With --both, what the last port receives goes through
the same functions, with states of their own, to the first one. Equal words for a port are one port. The report goes to
standard output, or, when packets go there (pcap:-), to standard error.

examples:
  wirespeed run pcap:in.pcap one_hop.py pcap:out.pcap
  wirespeed run pcap:in.pcap spray.py null: --output 1=pcap:one.pcap --output 2=pcap:two.pcap
  wirespeed run generator:,size=64 null: --seconds 2 --cores 0-1 --json
  wirespeed run pcap:in.pcap pcap:out.pcap --filter 'tcp port 80 and not vlan'
  wirespeed run tap:lan0 verdict.py packet:eth1 --both
  wirespeed run tap:a up.py tap:b and tap:b down.py tap:a
  wirespeed run packet:eth0 pcap:out.pcapng,rotate_size=100MB --filter 'host 10.0.0.1'
  tcpdump -w - | wirespeed run pcap:- one_hop.py pcap:- | tshark -r -
"""


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    parser.formatter_class = Parser.Verbatim
    parser.add_argument("words", nargs="+", metavar="WORD", help="ports and functions, in the order packets take")
    parser.add_argument(
        "--output", action="append", default=[], metavar="[NAME.]K=PORT",
        help="where output K of the last function (or of the one called NAME) leads; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--tap", action="append", default=[], metavar="STAGE=FILE",
        help="write what passes a stage to a capture file: one_hop=x.pcapng; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--filter", metavar="EXPR", help="only packets that this matches, at the first port: 'tcp port 80 and not vlan'"
    )
    parser.add_argument(
        "--both", action="store_true", help="packets go the other way, too, from the last port to the first"
    )
    session.configure(parser)


def main(arguments: Any) -> int:
    """Build the chains, run them, print the report."""
    from wirespeed.cli.words import build_all

    chains = build_all(arguments.words, arguments.output, both=arguments.both)
    if arguments.filter is not None:
        from wirespeed.ports.filter.part import put_on

        # Of the chains that lead the other way, which come last, the first port is the others' last one.
        for first in dict.fromkeys(chain.first for chain in chains[: len(chains) >> arguments.both]):
            put_on(first, arguments.filter)
    tapped = taps(arguments.tap, list(dict.fromkeys(element.name for chain in chains for element in chain)))
    report = session.conduct(chains[0], arguments, further=chains[1:], taps=tapped)
    return session.tell(report, arguments, to_stderr=any(goes_to_stdout(chain, tapped) for chain in chains))


def goes_to_stdout(chain: Any, tapped: dict[str, Any]) -> bool:
    """Whether packets go to standard output, where the report then must not go."""
    from wirespeed.net.capture.target import number_of

    written = [*(target for _, _, target in chain.links), *tapped.values()]
    return any(number_of(getattr(element, "target", ""), 1) == 1 for element in written)


def taps(texts: list[str], names: list[str]) -> dict[str, Any]:
    """From each ``STAGE=FILE`` what writes the file; both sides may have an equals sign of their own."""
    from wirespeed.cli.parser import did_you_mean, listed
    from wirespeed.ports.pcap import CaptureTap

    found: dict[str, Any] = {}
    for text in texts:
        known = [*names, *(name.partition(":")[2] for name in names)]
        stage = next(
            (name for name in sorted(known, key=len, reverse=True) if name and text.startswith(f"{name}=")), None
        )
        if stage is None:
            if text in known:
                raise GraphError(f"option --tap: got {text!r}, wanted a file too: {text}=x.pcapng")
            near = did_you_mean(text.partition("=")[0], names) or f"; the stages are {listed(names)}"
            raise GraphError(f"option --tap: got {text!r}, wanted STAGE=FILE such as {names[0]}=x.pcapng{near}")
        if stage in found:
            raise GraphError(f"option --tap: {stage} is tapped twice; one file has all that passes it")
        found[stage] = CaptureTap(text[len(stage) + 1 :])
    return found
