"""``wirespeed trace``: what happens to a packet, step by step, and why."""

from itertools import islice
from typing import Any

from wirespeed.cli import control
from wirespeed.cli.parser import Parser, whole
from wirespeed.errors import GraphError

EPILOG = """
A FLOW is a text such as in_port=1,tcp,nw_dst=10.0.0.1,tp_dst=80; what it does not name is 0. It goes through the rules of
the running switch, or with --flows of a file. With --pcap it is a packet of a capture that is traced.

Each step says the table, the rule and its actions, what they change, and for groups which bucket and why; then come the
result, what the cache would know it by, and, if it is dropped, the reason. The steps are those of a plain interpreter:
what the compiled translation makes of the same flow is compared, and a difference is an error.

examples:
  wirespeed trace in_port=1,tcp,nw_dst=10.0.0.1
  wirespeed trace in_port=1,arp --flows flows.txt --ports 4
  wirespeed trace --pcap in.pcap --packet 3 --in-port 1 --name lab
"""
MOST_PORTS = 255


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    parser.formatter_class = Parser.Verbatim
    add = parser.add_argument
    add("flow", nargs="?", default="", metavar="FLOW", help="the flow to trace")
    control.name(parser)
    add("--flows", metavar="FILE", help="use these rules instead of those of a running switch")
    add("--groups", metavar="FILE", help="with --flows: the groups that they name")
    add("--meters", metavar="FILE", help="with --flows: the meters that they name")
    add("--ports", type=whole(1, MOST_PORTS), metavar="N", default=4, help="with --flows: ports 1 to N (4)")
    add("--pcap", metavar="FILE", help="trace a packet of this capture")
    add("--packet", type=whole(1), metavar="N", default=1, help="with --pcap: which packet, from 1 on (1)")
    add("--in-port", type=whole(1, 0xFEFF), metavar="PORT", help="with --pcap: the port it comes in by")


def main(arguments: Any) -> int:
    """Trace it; 1 when the interpreter and the compiled translation differ."""
    if bool(arguments.flow) == bool(arguments.pcap):
        raise GraphError(
            "trace: got none or both of a flow and --pcap, wanted one; such as in_port=1,ip,nw_dst=10.0.0.1"
        )
    if arguments.pcap and arguments.in_port is None:
        raise GraphError("option --pcap: a packet comes in by a port; add --in-port 1")
    frame = packet(arguments.pcap, arguments.packet) if arguments.pcap else None
    if arguments.flows is None:
        for option in ("groups", "meters"):
            if getattr(arguments, option):
                raise GraphError(f"option --{option}: it goes with --flows; a running switch has its own")
        with control.connect(arguments) as client:
            hexadecimal = None if frame is None else frame.hex()
            answer = client.ask("trace", flow=arguments.flow, frame=hexadecimal, in_port=arguments.in_port)
    else:
        answer = alone(arguments, frame)
    for line in answer["lines"]:
        print(line)
    return 1 if answer["differences"] else 0


def packet(path: str, number: int) -> bytes:
    """The bytes of a packet of a capture, counted from 1."""
    import wirespeed as ws

    found = next(islice(ws.read(path).packets(), number - 1, None), None)
    if found is None:
        raise GraphError(f"{path} has no packet {number}; it has fewer")
    return bytes(found)


def alone(arguments: Any, frame: bytes | None) -> dict[str, Any]:
    """Trace through the rules of files, on a switch that does not run."""
    import wirespeed as ws
    from wirespeed.cli.rules import load
    from wirespeed.switch.switch import Switch
    from wirespeed.switch.trace.ask import asked

    with Switch("trace", memory=1 << 30) as switch:
        for number in range(1, arguments.ports + 1):
            switch.add_port(number, ws.port("null:"), name=f"port {number}")
        load(switch, arguments)
        return asked(switch, arguments.flow, frame, arguments.in_port)
