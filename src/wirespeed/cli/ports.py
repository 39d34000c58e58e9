"""``wirespeed ports``: the kinds of ports and their options, what each can do here, and the interfaces there are."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wirespeed.cli.parser import Parser, did_you_mean

if TYPE_CHECKING:
    from wirespeed.observe.interfaces import Seen

WIDTH = 100
HEADINGS = ("interface", "state", "mtu", "driver", "queues", "xdp", "offloads")


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these kinds")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    parser.add_argument("--netns", metavar="NAME", help="look at the interfaces of this network namespace")


def main(arguments: Any) -> int:
    """Print the kinds that were asked for, or all."""
    from wirespeed.errors import GraphError
    from wirespeed.observe.interfaces import seen
    from wirespeed.observe.obstacles import TRIES
    from wirespeed.ports import COMMON, KINDS, kind_class

    chosen = [kind.rstrip(":") for kind in arguments.kinds] or list(KINDS)
    for kind in chosen:
        if kind not in KINDS:
            raise GraphError(
                f"there is no kind of port {kind!r}{did_you_mean(kind, KINDS)}; the kinds are {', '.join(KINDS)}"
            )
    described = [describe(kind, kind_class(kind), COMMON) for kind in chosen]
    interfaces = seen(arguments.netns) if any(kind in TRIES for kind in chosen) else []
    if arguments.json:
        for one in described:
            if one["kind"] in TRIES:
                one["interfaces"] = [asdict(found) for found in interfaces]
        print(json.dumps(described, indent=2))
        return 0
    print("\n\n".join("\n".join(text(d)) for d in described))
    if interfaces:
        print("\n" + "\n".join(table(interfaces)))
    if not arguments.kinds:
        print()
        for line in every(COMMON):
            print(line)
        print("A port is written kind:target,option=value, for example pcap:in.pcap,loop=3")
    return 0


def describe(kind: str, port_class: Any, common: Mapping[str, Any]) -> dict[str, Any]:
    """A kind of port as plain values; ``obstacle`` is None where it can be opened now."""
    from wirespeed.observe import obstacles

    options = [
        {"name": name, "type": option.type, "default": option.default, "sentence": option.sentence}
        for name, option in port_class.OPTIONS.items()
    ]
    return {
        "kind": kind,
        "summary": port_class.SUMMARY,
        "needs": obstacles.needs(kind, port_class),
        "obstacle": obstacles.obstacle(kind, port_class),
        "options": options,
        "common": list(common),
    }


def text(described: dict[str, Any]) -> Iterator[str]:
    """The lines that show one kind of port."""
    yield from textwrap.wrap(f"{described['kind']}:  {described['summary']}", WIDTH, subsequent_indent="    ")
    here = f"not here: {described['obstacle']}" if described["obstacle"] else f"ready; it needs {described['needs']}"
    yield from textwrap.wrap(here, WIDTH, initial_indent="  ", subsequent_indent="    ")
    yield from option_lines(described["options"])


def option_lines(options: list[dict[str, Any]]) -> Iterator[str]:
    """The lines that show options, in two columns."""
    heads = [f"{o['name']}={o['type']}" for o in options]
    width = min(28, max((len(head) for head in heads), default=0))
    for head, option in zip(heads, options):
        default = "" if option["default"] is None else f" [{option['default']}]"
        body = textwrap.wrap(f"{option['sentence']}{default}", WIDTH - width - 4) or [""]
        first = f"  {head:{width}}  "
        yield first + body[0] if len(head) <= width else first.rstrip()
        for line in body[0 if len(head) > width else 1 :]:
            yield " " * (width + 4) + line


def every(common: Mapping[str, Any]) -> Iterator[str]:
    """The lines that show the options of every kind."""
    yield "every port:"
    yield from option_lines(
        [{"name": n, "type": o.type, "default": o.default, "sentence": o.sentence} for n, o in common.items()]
    )


def table(interfaces: list["Seen"]) -> Iterator[str]:
    """Interfaces, one a line: what packet, xdp and tap ports find there."""
    rows = [HEADINGS, *(row(one) for one in interfaces)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEADINGS))]
    for r in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(r, widths)).rstrip()


def row(one: "Seen") -> tuple[str, ...]:
    """One line of the table."""
    xdp = [*one.xdp, *([f"({one.attached} program attached)"] if one.attached else [])]
    return (
        one.name,
        ("up" if one.up else "down") if one.carries else "not for us",
        str(one.mtu),
        one.driver or one.kind or "-",
        "{} rx {} tx".format(*one.queues),
        ", ".join(xdp) or "generic",
        ", ".join(one.offloads) or "none",
    )
