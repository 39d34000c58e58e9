"""``wirespeed flow``: the rules of a running switch."""

from typing import Any

from wirespeed.cli import control
from wirespeed.cli.parser import Parser
from wirespeed.errors import GraphError

COMMANDS = {
    "add": "add rules; one with the same table, priority and match is replaced",
    "mod": "change the actions of the rules that a match covers (--strict: is)",
    "del": "remove the rules that a match covers (--strict: is); all, without any",
    "dump": "print the rules that a match covers, with their counters; all, without any",
    "replace": "have exactly these rules, at once; what stays keeps its counters",
}
EPILOG = """
A FLOW is a text as ovs-ofctl takes it, a file with one a line, or - for standard input. All lines of a command become
visible to traffic at once, or none does.

examples:
  wirespeed flow add 'priority=100,ip,nw_dst=10.0.0.0/24,actions=dec_ttl,output:2'
  wirespeed flow add flows.txt
  wirespeed flow del 'tcp,tp_dst=80' --name lab
  wirespeed flow dump table=1 --no-stats > flows.txt
"""
DONE = {"add": "added", "mod": "changed", "del": "removed"}
ALL = "table=255"  # what is removed where nothing is said; an empty file is nothing at all


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    control.configure(parser, COMMANDS)
    parser.add_argument("words", nargs="*", metavar="FLOW", help="a flow, a file of flows, or -")
    parser.add_argument("--strict", action="store_true", help="mod, del: the rule with this match and priority alone")
    parser.add_argument("--no-stats", action="store_true", help="dump: only what flow add takes")


def main(arguments: Any) -> int:
    """Do it, and say how many rules it was about."""
    what = arguments.what
    if arguments.strict and what not in ("mod", "del"):
        raise GraphError("option --strict: it is for mod and del")
    if arguments.no_stats and what != "dump":
        raise GraphError("option --no-stats: it is for dump")
    if not arguments.words and what in ("add", "mod", "replace"):
        raise GraphError(f"flow {what}: got no flow, wanted one such as 'in_port=1,actions=output:2', a file, or -")
    reads = arguments.words and what != "dump"
    where, text = control.given_all(arguments.words) if reads else ("", ALL)
    with control.connect(arguments) as client:
        if what == "dump":
            chosen = ",".join(arguments.words)
            for line in client.ask("flow dump", text=chosen, stats=not arguments.no_stats)["flows"]:
                print(f" {line}")
            return 0
        if what == "replace":
            done = client.ask("flow replace", text=text)
            print(f"{done['added']} added, {done['changed']} changed, {done['removed']} removed")
            return 0
        n = client.ask(f"flow {what}", text=text, where=where, strict=arguments.strict)["n"]
        print(f"{control.times(n, 'rule')} {DONE[what]}")
    return 0
