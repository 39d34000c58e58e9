"""``wirespeed group``: the groups of a running switch."""

from typing import Any

from wirespeed.cli import control
from wirespeed.cli.parser import Parser, did_you_mean
from wirespeed.errors import GraphError

COMMANDS = {
    "add": "add groups",
    "mod": "replace the buckets of groups; their counters begin anew",
    "del": "remove a group and the rules that lead to it; all, without a number",
    "dump": "print the groups, as ovs-ofctl dump-groups does; --stats adds their counters",
}
EPILOG = """
A GROUP is a text as ovs-ofctl takes it, a file with one a line, or - for standard input; of del, a number.

examples:
  wirespeed group add 'group_id=1,type=select,bucket=weight:2,actions=output:2,bucket=output:3'
  wirespeed group del 1
"""
DONE = {"add": "added", "mod": "changed", "del": "removed"}


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    control.configure(parser, COMMANDS)
    parser.add_argument("words", nargs="*", metavar="GROUP", help="a group, a file of groups, or -")
    parser.add_argument("--stats", action="store_true", help="dump: with packets and bytes of each bucket")


def number(text: str, name: str) -> int:
    """A number, written alone or as ``name=number``."""
    value = text.removeprefix(f"{name}=")
    try:
        return int(value, 0)
    except ValueError:
        raise GraphError(f"got {text!r}, wanted a number such as {name}=1{did_you_mean(text, [name])}") from None


def main(arguments: Any) -> int:
    """Do it, and say how many groups it was about."""
    what = arguments.what
    if not arguments.words and what in ("add", "mod"):
        raise GraphError(f"group {what}: got no group, wanted one such as 'group_id=1,type=all,bucket=output:2'")
    where, text = control.given_all(arguments.words) if what in ("add", "mod") else ("", "")
    with control.connect(arguments) as client:
        if what == "dump":
            control.no_words(arguments, 0, "no further word")
            for group in client.ask("group dump")["groups"]:
                print(f" {group['text']}")
                if arguments.stats:
                    print(f"  {counters(group)},{','.join(buckets(group))}")
        elif what == "del":
            control.no_words(arguments, 1, "one number")
            chosen = number(arguments.words[0], "group_id") if arguments.words else None
            print(f"{control.times(client.ask('group del', group_id=chosen)['n'], 'group')} removed")
        else:
            print(f"{control.times(client.ask(f'group {what}', text=text, where=where)['n'], 'group')} {DONE[what]}")
    return 0


def counters(group: Any) -> str:
    """The counters of a group, as ``ovs-ofctl dump-group-stats`` prints them."""
    return f"duration={group['duration']:.3f}s,packet_count={group['packets']},byte_count={group['bytes']}"


def buckets(group: Any) -> list[str]:
    """And of its buckets."""
    return [
        f"bucket{i}:packet_count={bucket['packets']},byte_count={bucket['bytes']}"
        for i, bucket in enumerate(group["buckets"])
    ]
