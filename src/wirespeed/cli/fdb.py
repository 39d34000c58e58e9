"""``wirespeed fdb``: the MAC table of a running switch, into which NORMAL learns."""

from typing import Any

from wirespeed.cli import control
from wirespeed.cli.parser import Parser, whole
from wirespeed.errors import GraphError

COMMANDS = {
    "show": "print the entries, as ovs-appctl fdb/show does",
    "flush": "forget what was learned",
    "add": "fix an address to a port: fdb add PORT MAC",
    "del": "forget an address: fdb del MAC",
}
EPILOG = """
examples:
  wirespeed fdb show
  wirespeed fdb add 2 02:00:00:00:00:01 --vlan 10
"""


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    control.configure(parser, COMMANDS)
    parser.add_argument("words", nargs="*", metavar="WORD", help="what the command takes")
    parser.add_argument("--vlan", type=whole(0, 4095), default=0, metavar="N", help="add, del: the VLAN (0: none)")


def main(arguments: Any) -> int:
    """Do it."""
    what, words = arguments.what, arguments.words
    wanted = {"show": 0, "flush": 0, "add": 2, "del": 1}[what]
    if len(words) != wanted:
        raise GraphError(f"fdb {what}: got {len(words)} words, wanted {['none', 'a MAC', 'a port and a MAC'][wanted]}")
    with control.connect(arguments) as client:
        if what == "show":
            print(" port  VLAN  MAC                Age")
            for row in client.ask("fdb show")["entries"]:
                age = "static" if row["static"] else row["age"]
                print(f"{row['port']:>5}  {row['vlan']:>4}  {row['mac']}  {age:>3}")
        elif what == "flush":
            n = client.ask("fdb flush")["n"]
            print(f"{n} {'entry' if n == 1 else 'entries'} forgotten")
        elif what == "add":
            client.ask("fdb add", port=words[0], mac=words[1], vlan=arguments.vlan)
        else:
            client.ask("fdb del", mac=words[0], vlan=arguments.vlan)
    return 0
