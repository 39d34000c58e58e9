"""``wirespeed ports``: the kinds of ports and their options."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from wirespeed.cli.parser import Parser, did_you_mean

WIDTH = 100


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these kinds")
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def main(arguments: Any) -> int:
    """Print the kinds that were asked for, or all."""
    from wirespeed.errors import GraphError
    from wirespeed.ports import KINDS, kind_class

    chosen = [kind.rstrip(":") for kind in arguments.kinds] or list(KINDS)
    for kind in chosen:
        if kind not in KINDS:
            raise GraphError(
                f"there is no kind of port {kind!r}{did_you_mean(kind, KINDS)}; the kinds are {', '.join(KINDS)}"
            )
    described = [describe(kind_class(kind)) for kind in chosen]
    if arguments.json:
        print(json.dumps(described, indent=2))
    else:
        print("\n\n".join("\n".join(text(d)) for d in described))
        if not arguments.kinds:
            print("\nA port is written kind:target,option=value, for example pcap:in.pcap,loop=3")
    return 0


def describe(port_class: Any) -> dict[str, Any]:
    """A kind of port as plain values."""
    options = [
        {"name": name, "type": option.type, "default": option.default, "sentence": option.sentence}
        for name, option in port_class.OPTIONS.items()
    ]
    return {"kind": port_class.KIND, "summary": port_class.SUMMARY, "options": options}


def text(described: dict[str, Any]) -> Iterator[str]:
    """The lines that show one kind of port."""
    yield from textwrap.wrap(f"{described['kind']}:  {described['summary']}", WIDTH, subsequent_indent="    ")
    options = described["options"]
    if not options:
        return
    heads = [f"{o['name']}={o['type']}" for o in options]
    width = min(28, max(len(head) for head in heads))
    for head, option in zip(heads, options):
        default = "" if option["default"] is None else f" [{option['default']}]"
        body = textwrap.wrap(f"{option['sentence']}{default}", WIDTH - width - 4) or [""]
        first = f"  {head:{width}}  "
        yield first + body[0] if len(head) <= width else first.rstrip()
        for line in body[0 if len(head) > width else 1 :]:
            yield " " * (width + 4) + line
