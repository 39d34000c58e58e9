"""``wirespeed switch``: a virtual switch between ports, by rules that may be changed while it runs."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from wirespeed.cli import session
from wirespeed.cli.control import DEFAULT_NAME, times
from wirespeed.cli.parser import Parser, cores, seconds, whole
from wirespeed.errors import GraphError

if TYPE_CHECKING:
    from wirespeed.core.element import Element
    from wirespeed.engine.report import Report
    from wirespeed.engine.running import Running
    from wirespeed.switch.switch import Switch

SPECIALISE_AFTER_S = 0.5  # a run that is over by then compiles nothing
NUMBERED = re.compile(r"(?P<number>\d{1,5}|LOCAL)=(?P<word>.+)")
RECEIVE_ONLY, TRANSMIT_ONLY = ("generator",), ("checker", "null")
EPILOG = """
A port is a number and a word as `wirespeed ports` lists them: 1=tap:a, 2=packet:eth1, LOCAL=tap:br0. A capture that is
there is received from, one that is not is written; --receive and --transmit give a port one way each.

The switch serves at once with code for any rules; code for the rules' own shape is compiled meanwhile, takes over when it
is ready, and follows when rules of another shape come (--no-specialise: never). While it runs, `wirespeed flow`,
`group`, `meter`, `fdb`, `port`, `stats` and `trace` talk to it by its --name.

examples:
  wirespeed switch --port 1=tap:a --port 2=tap:b --flows flows.txt
  wirespeed switch --port 1=pcap:in.pcap --port 2=pcap:out.pcap --flows 'in_port=1,actions=output:2'
  wirespeed switch --port 1=tap:a --port 2=pcap:in.pcap --transmit 2=pcap:out.pcap --tag 1=10 --trunks 2=10,20
"""


def configure(parser: Parser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.formatter_class = Parser.Verbatim
    add = parser.add_argument
    many: dict[str, Any] = {"action": "append", "default": []}
    add("--port", **many, metavar="N=PORT", help="a port of the switch, by its OpenFlow number; may be given again")
    add("--receive", **many, metavar="N=PORT", help="what port N only receives from")
    add("--transmit", **many, metavar="N=PORT", help="what port N only sends to")
    add("--tag", **many, metavar="N=VLAN", help="port N is an access port of this VLAN, or, with --trunks, its own one")
    add("--trunks", **many, metavar="N=VLANS", help="port N carries only these VLANs: 2=10,20")
    add("--flows", metavar="FILE", help="rules as ovs-ofctl takes them, one a line; - for standard input; or one rule")
    add("--groups", metavar="FILE", help="the same of groups")
    add("--meters", metavar="FILE", help="the same of meters")
    add("--name", default=DEFAULT_NAME, metavar="NAME", help="its name for other commands, and in the report (switch)")
    add("--control", metavar="PATH", help="where its control socket is, if not where its name says; none: no socket")
    add("--cache", type=whole(0, 1 << 24), default=1 << 17, metavar="N", help="flows in each worker's cache (131072)")
    add("--check", action="store_true", help="compare what the specialised code and the cache do with the tables")
    add("--no-specialise", action="store_true", help="compile nothing for the shape of the rules")
    add("--workers", type=whole(1, 256), default=1, metavar="N", help="threads that switch (1)")
    add("--cores", type=cores, metavar="LIST", help="pin the workers to these cores in turn: 0, 0-1, 0,2,4-5")
    add("--seconds", type=seconds, metavar="S", help="end after so long: 3, 0.5, 250ms, 2min")
    add("--burst", type=whole(1, 256), metavar="N", default=32, help="most packets that are switched at once (32)")
    add("--pool", type=whole(1, 1 << 30), metavar="N", help="packet buffers (as many as are needed)")
    add("--busy", action="store_true", help="never sleep while there is nothing to do")
    add("--no-live", action="store_true", help="show no table of rates while it runs")
    add("--json", metavar="FILE", help="write the report there as JSON; - for standard output, in place of the text")


def main(arguments: Any) -> int:
    """Build the switch, run it, print the report."""
    from wirespeed.engine.worker import work
    from wirespeed.jit import ahead
    from wirespeed.switch import apart

    ahead.begin([apart.translation, work, apart.execution])
    with build(arguments) as switch:
        report, statistics = conduct(switch, arguments)
    return told(report, statistics, arguments)


def build(arguments: Any) -> "Switch":
    """The switch with its ports and rules; says on standard error what it has."""
    from wirespeed.cli.rules import load

    switch = _made(arguments)
    try:
        _add_ports(switch, arguments)
        begun = time.monotonic()
        n = load(switch, arguments)
        took = time.monotonic() - begun
        rules = ", ".join(times(count, kind[:-1].replace("flow", "rule")) for kind, count in n.items()) or "no rules"
        _say(f"{switch.name}: {times(len(switch.ports.by_number), 'port')}, {rules} in {took:.1f} s")
        for port in sorted(switch.ports.by_number.values(), key=lambda port: port.number):
            ways = " and ".join(way for way, on in (("receives", port.receive), ("sends", port.transmit)) if on)
            _say(f"  port {switch.port_name(port.number)}: {port.name} {ways}")
    except BaseException:
        switch.close()
        raise
    return switch


def _made(arguments: Any) -> "Switch":
    from wirespeed.switch.switch import Switch

    return Switch(os.path.basename(arguments.name), cache=arguments.cache, check=arguments.check)


def _say(text: str) -> None:
    print(f"wirespeed: {text}", file=sys.stderr, flush=True)


def _numbered(texts: list[str], option: str) -> dict[str, str]:
    """The values of an option by the numbers of their ports."""
    found: dict[str, str] = {}
    for text in texts:
        match = NUMBERED.fullmatch(text)
        if match is None:
            wanted = {"tag": "1=10", "trunks": "1=10,20"}.get(option, "1=tap:a")
            raise GraphError(f"option --{option}: got {text!r}, wanted a port's number and a value, such as {wanted}")
        if match["number"] in found:
            raise GraphError(f"option --{option}: port {match['number']} is given twice; give it once")
        found[match["number"]] = match["word"]
    return found


def _add_ports(switch: "Switch", arguments: Any) -> None:
    from wirespeed.ports import port as port_of

    words = {option: _numbered(getattr(arguments, option), option) for option in ("port", "receive", "transmit")}
    tags, trunks = _numbered(arguments.tag, "tag"), _numbered(arguments.trunks, "trunks")
    numbers = list(dict.fromkeys(number for given in words.values() for number in given))
    if not numbers:
        raise GraphError("a switch needs ports; give for example --port 1=tap:a --port 2=tap:b")
    for option, given in (("tag", tags), ("trunks", trunks)):
        for number in given:
            if number not in numbers:
                raise GraphError(f"option --{option}: there is no port {number}; add --port {number}=...")
    for number in numbers:
        ways = {option: port_of(given[number]) for option, given in words.items() if number in given}
        ends = _ends(number, ways)
        switch.add_port(
            "LOCAL" if number == "LOCAL" else int(number),
            receive=ends.get("receive"),
            transmit=ends.get("transmit"),
            tag=_vlans(number, tags, "tag")[0] if number in tags else None,
            trunks=_vlans(number, trunks, "trunks") if number in trunks else (),
        )


def _vlans(number: str, given: dict[str, str], option: str) -> list[int]:
    words = given[number].split(",")
    if not all(word.isdecimal() and int(word) < 4096 for word in words) or (option == "tag" and len(words) > 1):
        raise GraphError(f"option --{option}: got {number}={given[number]}, wanted VLANs from 0 to 4095")
    return [int(word) for word in words]


def _ends(number: str, ways: dict[str, "Element"]) -> dict[str, "Element"]:
    """What a port receives from and sends to; a port of one way does not do the other."""
    port = ways.pop("port", None)
    if port is None:
        return ways
    if len(ways) == 2:
        raise GraphError(f"port {number}: got --port, --receive and --transmit, wanted two of them at most")
    if ways:
        other = "receive" if "transmit" in ways else "transmit"
        return ways | {other: port}
    kind = getattr(port, "KIND", None)
    if kind == "pcap":
        return {"receive" if _is_read(getattr(port, "target", "")) else "transmit": port}
    if kind in RECEIVE_ONLY:
        return {"receive": port}
    return {"transmit": port} if kind in TRANSMIT_ONLY else {"receive": port, "transmit": port}


def _is_read(target: str) -> bool:
    from wirespeed.net.capture.target import number_of

    return number_of(target, 0) is not None or os.path.exists(target)


class Watch:
    """Is called with the Running as the run goes on: shows it, and has its code specialised once it has lasted."""

    def __init__(self, live: Callable[["Running"], None], specialise: Callable[[], None] | None) -> None:
        self.running: Running | None = None
        self._live, self._specialise = live, specialise
        self._since = time.monotonic()

    def __call__(self, running: "Running") -> None:
        """Something runs."""
        if self.running is None:
            self.running, self._since = running, time.monotonic()
        if self._specialise is not None and running.alive and time.monotonic() - self._since >= SPECIALISE_AFTER_S:
            specialise, self._specialise = self._specialise, None
            specialise()
        self._live(running)

    def report(self) -> "Report | None":
        """What it has done so far."""
        return None if self.running is None else self.running.report()


def conduct(switch: "Switch", arguments: Any) -> tuple["Report", dict[str, Any]]:
    """Run a switch to its end, or to its first interruption; its report and its statistics."""
    from wirespeed.engine.run import interrupted, run
    from wirespeed.observe.machine import crowding
    from wirespeed.observe.switch import view
    from wirespeed.switch.control.address import path_of
    from wirespeed.switch.control.request import Desk
    from wirespeed.switch.control.server import Server
    from wirespeed.switch.control.specialiser import Specialiser
    from wirespeed.switch.control.statistics import statistics

    if crowded := crowding(arguments.workers):
        _say(crowded)
    with ExitStack() as stack:
        stack.enter_context(session.second_interrupt_leaves())
        stack.enter_context(session.relayed({signal.SIGHUP: signal.SIGTERM}))
        shown = session.untold if arguments.no_live else partial(view, switch)
        live = stack.enter_context(session.shown(view=shown))
        specialiser = Specialiser(switch, begin=False)
        stack.callback(specialiser.close)
        watch = Watch(live, None if arguments.no_specialise else specialiser.begin)
        desk = Desk(switch, watch.report, specialiser)
        if arguments.control != "none":
            server = stack.enter_context(Server(desk, path_of(arguments.control or arguments.name)))
            _say(f"  control socket {server.path}")
        report = run(
            *switch.chains(),
            seconds=arguments.seconds,
            until=interrupted,
            live=watch,
            workers=arguments.workers,
            cores=arguments.cores,
            burst=arguments.burst,
            pool=arguments.pool,
            busy=arguments.busy,
        )
        return report, statistics(switch, report, specialiser)


def told(report: "Report", found: dict[str, Any], arguments: Any) -> int:
    """Print the report; the exit code says whether the books balance, no port failed, and no check differed."""
    from wirespeed.cli.stats import lines

    if arguments.json == "-":
        print(report.to_json())
    else:
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                file.write(report.to_json() + "\n")
        print(report)
        print("\n".join(lines(found)))
    differences = found["counters"].get("differences", 0)
    if differences:
        _say(f"{differences:,} packets were treated otherwise than the tables say; tell whoever maintains wirespeed")
    return 0 if report.balanced and not report.errors and not differences else 1
