"""``wirespeed layouts``: every memory layout, with the place of each field."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

from wirespeed.cli.parser import Parser, did_you_mean

SKIPPED = ("wirespeed.cli", "wirespeed.__main__")


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these layouts")
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def main(arguments: Any) -> int:
    """Print the layouts that were asked for, or all."""
    from wirespeed.errors import GraphError
    from wirespeed.jit.layout import layouts

    import_everything()
    declared = layouts()
    names = dict.fromkeys(one.name for one in declared)
    for name in arguments.names:
        if name not in names:
            raise GraphError(f"there is no layout {name!r}{did_you_mean(name, names)}; `wirespeed layouts` lists all")
    chosen = [one for one in declared if not arguments.names or one.name in arguments.names]
    if arguments.json:
        print(json.dumps([describe(one) for one in chosen], indent=2))
    else:
        print("\n\n".join("\n".join(text(describe(one))) for one in chosen))
    return 0


def import_everything() -> list[Any]:
    """Import every module of the package, for a layout or a kernel is known once its module is; return the modules."""
    import wirespeed

    names = [info.name for info in pkgutil.walk_packages(wirespeed.__path__, "wirespeed.")]
    return [importlib.import_module(name) for name in names if not name.startswith(SKIPPED)]


def describe(declared: Any) -> dict[str, Any]:
    """A layout as plain values; ``bit`` is that of a bit field's least significant bit in its container."""
    fields = [
        {"name": f.name, "offset": f.offset, "format": form(f), "size": f.size * max(1, f.count)}
        | ({"bits": f.bits, "bit": f.shift} if f.bits else {})
        for f in declared.fields.values()
    ]
    return {"name": declared.name, "size": declared.size, "fields": fields}


def form(field: Any) -> str:
    """A field's format as its declaration has it, and the length of an array."""
    if field.sub is not None:
        return str(field.sub.name)
    code = ("i" if field.type.signed else "u") + str(field.size)
    return (">" if field.swap else "") + code + (f"[{field.count}]" if field.count else "")


def text(described: dict[str, Any]) -> Iterator[str]:
    """The lines that show one layout; bytes that belong to no field show as a gap in the offsets."""
    yield f"{described['name']}  {described['size']} bytes"
    width = max((len(f["name"]) for f in described["fields"]), default=0)
    for f in described["fields"]:
        bits = f"  bits {f['bit']}-{f['bit'] + f['bits'] - 1}" if "bits" in f else ""
        yield f"  {f['offset']:5}  {f['name']:{width}}  {f['format']}{bits}"
