"""``wirespeed port``: the ports of a running switch."""

import json
from typing import Any

from wirespeed.cli import control
from wirespeed.cli.parser import Parser, listed
from wirespeed.errors import GraphError

COMMANDS = {
    "show": "print the ports, what they do with VLANs, and what they received and sent",
    "mod": "change a port's settings: port mod PORT SETTING ...",
}
SETTINGS = {
    "up": ("down", False), "down": ("down", True), "flood": ("no-flood", False), "no-flood": ("no-flood", True),
    "forward": ("no-forward", False), "no-forward": ("no-forward", True), "receive": ("no-receive", False),
    "no-receive": ("no-receive", True),
}  # fmt: skip
EPILOG = f"""
settings: {", ".join(SETTINGS)}

examples:
  wirespeed port show
  wirespeed port mod 2 no-flood down
"""


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    control.configure(parser, COMMANDS)
    parser.add_argument("words", nargs="*", metavar="WORD", help="what the command takes")
    parser.add_argument("--json", action="store_true", help="show: as JSON")


def main(arguments: Any) -> int:
    """Do it."""
    words = arguments.words
    if arguments.what == "show":
        control.no_words(arguments, 0, "no further word")
        with control.connect(arguments) as client:
            ports = client.ask("port show")["ports"]
        if arguments.json:
            print(json.dumps(ports, indent=2))
        else:
            for line in shown(ports):
                print(line)
        return 0
    if len(words) < 2:
        raise GraphError(f"port mod: wanted a port and settings, got {len(words)} words; such as port mod 2 down")
    wrong = [word for word in words[1:] if word not in SETTINGS]
    if wrong:
        raise GraphError(f"port mod: no setting {wrong[0]!r}; they are {listed(SETTINGS)}")
    config = {name.replace("-", "_"): on for name, on in (SETTINGS[word] for word in words[1:])}
    with control.connect(arguments) as client:
        client.ask("port mod", port=words[0], config=config)
    return 0


def shown(ports: list[dict[str, Any]]) -> list[str]:
    """Ports, a line each."""
    lines = []
    for port in ports:
        vlans = f", {port['vlan_mode']}" + (f" {port['tag']}" if port["tag"] else "")
        vlans += f" of {','.join(map(str, port['trunks']))}" if port["trunks"] else ""
        ways = ["received", "sent"]
        counts = [f"{way} {port[way]:,}" for way, on in zip(ways, (port["receives"], port["transmits"])) if on]
        config = f" [{' '.join(port['config'])}]" if port["config"] else ""
        lines.append(
            f"{port['port']:>5}  {port['name']}{vlans if vlans != ', trunk' else ''}: {', '.join(counts)}{config}"
        )
    return lines
