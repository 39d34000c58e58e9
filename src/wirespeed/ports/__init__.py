"""How packets come in and go out: one module for each kind of port, named in :data:`KINDS`."""

import importlib
import re
from collections.abc import Mapping
from typing import Any

from wirespeed.core.element import Element
from wirespeed.errors import GraphError
from wirespeed.ports import options as parsers
from wirespeed.ports.options import Option

# Kind -> (module, class).  The class has KIND, SUMMARY and OPTIONS, and is made of (target, **options).
KINDS = {
    "pcap": ("wirespeed.ports.pcap", "PcapPort"),
    "generator": ("wirespeed.ports.generator", "GeneratorPort"),
    "checker": ("wirespeed.ports.checker.element", "CheckerPort"),
    "memory": ("wirespeed.ports.memory", "MemoryPort"),
    "null": ("wirespeed.ports.null", "NullPort"),
    "packet": ("wirespeed.ports.packet.port", "PacketPort"),
    "xdp": ("wirespeed.ports.xdp.port", "XdpPort"),
    "tap": ("wirespeed.ports.tap.port", "TapPort"),
    "tun": ("wirespeed.ports.tap.port", "TunPort"),
}

# Options of every kind, which :func:`make` takes before the class sees the others.
COMMON = {
    "filter": Option(
        "expression", None, "only packets that this matches, such as tcp port 80 and not vlan", parsers.text
    ),
}

_PART = re.compile("(?:[^,]|,,)+")


def port(word: str, /, **options: Any) -> Element:
    """The port that ``kind:target,option=value,...`` names; options may also be given by keyword, as values.

    The target is what stands before the first comma (for kinds that have one): a file, a name.  A comma inside a
    target or a value is written twice; an equals sign needs no care unless an option's name stands before it.  The
    value of an option that is a list goes on over commas until an option is named: ``size=64,594,flows=8``.  Every port
    takes ``filter=tcp port 80``: as a source it gives, as a sink it takes, only packets that the expression matches.
    Raises :class:`GraphError` for a kind or an option that is not there or out of range; files and devices are opened
    when the graph runs.
    """
    if not isinstance(word, str):
        raise GraphError(f"port: got {word!r}, wanted a word such as 'pcap:in.pcap'")
    kind, colon, rest = word.partition(":")
    if not colon or kind not in KINDS:
        known = ", ".join(f"{k}:" for k in KINDS)
        raise GraphError(f"port {word!r}: got kind {kind!r}, wanted one of {known}; write for example pcap:in.pcap")
    target, written = _split(word, rest, {**kind_class(kind).OPTIONS, **COMMON})
    for key in written:
        if key in options:
            raise GraphError(f"port {word!r}: option {key!r} is given twice; give it once")
    return make(kind, target, {**written, **options})


def _split(word: str, rest: str, declared: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The target and the options of what stands behind the kind of a port word."""
    target, last = "", ""
    options: dict[str, str] = {}
    for number, part in enumerate(_PART.findall(rest)):
        key, equals, value = part.replace(",,", ",").partition("=")
        if number == 0 and not rest.startswith(",") and key not in (declared if equals else ()):
            target = part.replace(",,", ",")
        elif equals and key in options:
            raise GraphError(f"port {word!r}: option {key!r} is given twice; give it once")
        elif equals and key in declared:
            options[key], last = value, key
        elif last and declared[last].many:
            options[last] += f",{key}{equals}{value}"
        elif equals:
            options[key] = value
        else:
            raise GraphError(f"port {word!r}: got {key!r}, wanted option=value; `wirespeed ports` lists the options")
    return target, options


def make(kind: str, target: str, options: dict[str, Any]) -> Element:
    """The port of a kind, from its parts."""
    port_class = kind_class(kind)
    for key in options:
        if key not in port_class.OPTIONS and key not in COMMON:
            have = ", ".join([*port_class.OPTIONS, *COMMON])
            raise GraphError(f"{kind}: has no option {key!r}; the options are {have}")
    made: Element = port_class(target, **{key: value for key, value in options.items() if key not in COMMON})
    if options.get("filter") is not None:
        from wirespeed.ports.filter.part import put_on  # the language and its compiler, for those who filter

        put_on(made, options["filter"])
    return made


def kind_class(kind: str) -> Any:
    """The class of a kind of port."""
    module, name = KINDS[kind]
    return getattr(importlib.import_module(module), name)
