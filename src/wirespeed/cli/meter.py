"""``wirespeed meter``: the meters of a running switch."""

from typing import Any

from wirespeed.cli import control
from wirespeed.cli.group import DONE, number
from wirespeed.cli.parser import Parser
from wirespeed.errors import GraphError

COMMANDS = {
    "add": "add meters",
    "mod": "replace the bands of meters; their counters begin anew",
    "del": "remove a meter and the rules that use it; all, without a number",
    "dump": "print the meters, as ovs-ofctl dump-meters does; --stats adds their counters",
}
EPILOG = """
A METER is a text as ovs-ofctl takes it, a file with one a line, or - for standard input; of del, a number.

examples:
  wirespeed meter add 'meter=1 pktps bands=type=drop rate=1000'
  wirespeed flow add 'in_port=1,actions=meter:1,output:2'
  wirespeed meter dump --stats
"""


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    control.configure(parser, COMMANDS)
    parser.add_argument("words", nargs="*", metavar="METER", help="a meter, a file of meters, or -")
    parser.add_argument("--stats", action="store_true", help="dump: with packets and bytes of each band")


def main(arguments: Any) -> int:
    """Do it, and say how many meters it was about."""
    what = arguments.what
    if not arguments.words and what in ("add", "mod"):
        raise GraphError(f"meter {what}: got no meter, wanted one such as 'meter=1 pktps bands=type=drop rate=1000'")
    where, text = control.given_all(arguments.words) if what in ("add", "mod") else ("", "")
    with control.connect(arguments) as client:
        if what == "dump":
            control.no_words(arguments, 0, "no further word")
            for meter in client.ask("meter dump")["meters"]:
                print(meter["text"])
                if arguments.stats:
                    print(f"packet_in_count:{meter['packets']} byte_in_count:{meter['bytes']} bands:")
                    for i, band in enumerate(meter["bands"]):
                        print(f"{i}: packet_count:{band['packets']} byte_count:{band['bytes']}")
        elif what == "del":
            control.no_words(arguments, 1, "one number")
            chosen = number(arguments.words[0], "meter") if arguments.words else None
            print(f"{control.times(client.ask('meter del', meter=chosen)['n'], 'meter')} removed")
        else:
            print(f"{control.times(client.ask(f'meter {what}', text=text, where=where)['n'], 'meter')} {DONE[what]}")
    return 0
