"""``wirespeed stats``: what a running switch counts: ports, tables, caches, drops by reason."""

import json
import time
from typing import Any

from wirespeed.cli import control
from wirespeed.cli.parser import Parser, seconds
from wirespeed.cli.port import shown

EPILOG = """
examples:
  wirespeed stats
  wirespeed stats --watch 2
  wirespeed stats --json --name lab
"""


def configure(parser: Parser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.formatter_class = Parser.Verbatim
    control.name(parser)
    parser.add_argument("--json", action="store_true", help="print all of it as JSON, a line each time with --watch")
    parser.add_argument(
        "--watch", nargs="?", const=1.0, type=seconds, metavar="S", help="print it again and again (every second)"
    )


def main(arguments: Any) -> int:
    """Print the numbers, once or until Ctrl-C."""
    with control.connect(arguments) as client:
        while True:
            found = client.ask("stats")
            if arguments.json:
                print(json.dumps(found, indent=None if arguments.watch else 2), flush=True)
            else:
                print("\n".join(lines(found)), flush=True)
            if not arguments.watch:
                return 0
            time.sleep(arguments.watch)
            if not arguments.json:
                print()


def lines(found: dict[str, Any]) -> list[str]:
    """The numbers as a person reads them."""
    code = "specialised code" if found["specialised"] else "generic code"
    text = [
        f"{found['name']}: version {found['version']}, {control.times(found['rules'], 'rule')},"
        f" {control.times(found['groups'], 'group')}, {control.times(found['meters'], 'meter')},"
        f" {control.times(found['macs'], 'MAC')}; {code}; {found['seconds']:.1f} s",
        "ports:",
        *shown(found["ports"]),
        "tables:",
        *(
            f"{row['table']:>5}  {control.times(row['rules'], 'rule')}, {row['misses']:,} not matched"
            for row in found["tables"]
        ),
        f"cache: {cache(found['counters'])}",
    ]
    if found["not_compiled"]:
        text.append(f"no specialised code: {found['not_compiled']}")
    if found["drops"]:
        text.append("drops:")
        text += [f"{row['packets']:>9,}  {row['stage']}: {row['sentence']} ({row['reason']})" for row in found["drops"]]
    return text


def cache(counters: dict[str, int]) -> str:
    """What the caches did, in a line."""
    hits, misses = counters.get("cache_hits", 0), counters.get("cache_misses", 0)
    share = f"{hits / (hits + misses):.1%} of look-ups" if hits + misses else "no look-ups"
    text = f"{share} hit, {misses:,} through the tables, {counters.get('cache_evicted', 0):,} evicted"
    if counters.get("checked"):
        text += f"; checked {counters['checked']:,} times, {counters.get('differences', 0):,} differences"
    return text
