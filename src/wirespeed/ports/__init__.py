"""How packets come in and go out: one module for each kind of port, named in :data:`KINDS`."""

import importlib
from typing import Any

from wirespeed.core.element import Element
from wirespeed.errors import GraphError

# Kind -> (module, class).  The class has KIND, SUMMARY and OPTIONS, and is made of (target, **options).
KINDS = {
    "pcap": ("wirespeed.ports.pcap", "PcapPort"),
    "generator": ("wirespeed.ports.generator", "GeneratorPort"),
    "memory": ("wirespeed.ports.memory", "MemoryPort"),
    "null": ("wirespeed.ports.null", "NullPort"),
}


def port(word: str, /, **options: Any) -> Element:
    """The port that ``kind:target,option=value,...`` names; options may also be given by keyword, as values.

    The target is what stands before the first comma (for kinds that have one): a file, a name.  A comma inside a
    target is written twice.  Raises :class:`GraphError` for a kind or an option that is not there or out of range;
    files and devices are opened when the graph runs.
    """
    kind, colon, rest = word.partition(":")
    if not colon or kind not in KINDS:
        known = ", ".join(f"{k}:" for k in KINDS)
        raise GraphError(f"port {word!r}: got kind {kind!r}, wanted one of {known}; write for example pcap:in.pcap")
    parts = rest.replace(",,", "\0").split(",")
    words = [p.replace("\0", ",") for p in parts if p]
    target = words.pop(0) if words and "=" not in words[0] else ""
    for option in words:
        key, equals, value = option.partition("=")
        if not equals:
            raise GraphError(f"port {word!r}: got {option!r}, wanted option=value; `wirespeed ports` lists the options")
        if key in options:
            raise GraphError(f"port {word!r}: option {key!r} is given twice; give it once")
        options[key] = value
    return make(kind, target, options)


def make(kind: str, target: str, options: dict[str, Any]) -> Element:
    """The port of a kind, from its parts."""
    port_class = kind_class(kind)
    for key in options:
        if key not in port_class.OPTIONS:
            have = ", ".join(port_class.OPTIONS)
            raise GraphError(f"{kind}: has no option {key!r}; the options are {have}")
    made: Element = port_class(target, **options)
    return made


def kind_class(kind: str) -> Any:
    """The class of a kind of port."""
    module, name = KINDS[kind]
    return getattr(importlib.import_module(module), name)
