"""The generator: packets made from a template, of any sizes, with fields that vary, as fast as possible or at a rate.

Theory of operation
-------------------
For each size one frame is rendered ahead, with lengths and checksums in place.  Making a packet is copying that frame,
64 bytes at a time, and setting the fields that vary (:mod:`wirespeed.ports.varied_field`), field by field over the
whole burst; the checksums over them follow by difference.

Packet number k of the stream (its size, its flow, its fields) is a function of k alone.  Of W workers, worker w makes
the packets w, w + W, w + 2 W and so on, at its share of the rate: together they make what one would.  With a number of
flows that W divides, each flow is made by one worker, in order.

With ``trailer=yes`` each frame ends in 18 bytes (:mod:`wirespeed.net.trailer`) by which :func:`wirespeed.checker` tells
what became of it.  Each worker's packets are a stream of their own, numbered from 0 without a gap, for two workers'
packets have no order among each other; with ``trailer=flow`` each flow's are, for where flows part on their way.

A size is that of the frame without its frame check sequence, as it lies in memory.
"""

from typing import Any, ClassVar

from wirespeed.core.element import Element
from wirespeed.errors import GraphError
from wirespeed.net.headers import HEADERS
from wirespeed.net.trailer import STREAMS
from wirespeed.ports import options, pacing, template, variation
from wirespeed.ports.generator_part import GeneratorPart, Stream
from wirespeed.ports.options import Option
from wirespeed.ports.sizes import IMIX, IMIX_WEIGHTS, LARGEST, sizes, spread, weights
from wirespeed.ports.template import Template
from wirespeed.ports.variation import Variation

SPORT_TURN = 0x3FF  # flows share out 1024 source ports around the template's
BUILT = ("proto", "src", "dst", "sport", "dport", "ttl", "tos", "vlan", "prio", "eth_src", "eth_dst")


def trailer(value: Any) -> str:
    """Parse ``flow``, or what says yes or no."""
    found = options.either(options.flag, "flow")(value)
    return found if isinstance(found, str) else "yes" if found else "no"


def anything(value: Any) -> Any:
    """What is read later, when the template is known."""
    return value


class GeneratorPort(Element):
    """``generator:``, a source of packets made from a template."""

    KIND = "generator"
    SUMMARY = "packets made from a template, with fields that vary"
    OPTIONS: ClassVar[dict[str, Option]] = {
        "template": Option("bytes", None, "a frame in hex, bytes or a scapy packet; else it is built", anything),
        "proto": Option("word", "udp", "what the built frame carries, udp or tcp", options.choice("udp", "tcp")),
        "src": Option("address", "198.18.0.1", "its IPv4 or IPv6 source", options.address),
        "dst": Option("address", "198.19.0.1", "its IPv4 or IPv6 destination", options.address),
        "sport": Option("count", "1024", "its source port", options.count(0, 0xFFFF, "1024")),
        "dport": Option("count", "9", "its destination port", options.count(0, 0xFFFF, "9")),
        "ttl": Option("count", "64", "its time to live or hop limit", options.count(0, 255, "64")),
        "tos": Option("count", "0", "its type of service or traffic class", options.count(0, 255, "0")),
        "vlan": Option("count", None, "the VLAN of its 802.1Q tag; none when not set", options.count(0, 4095, "7")),
        "prio": Option("count", "0", "the priority in that tag", options.count(0, 7, "0")),
        "eth_src": Option("address", "02:00:00:00:00:01", "its Ethernet source", options.mac_address),
        "eth_dst": Option("address", "02:00:00:00:00:02", "its Ethernet destination", options.mac_address),
        "size": Option("bytes", None, "size of the frames, sizes taken in turn, or imix; 64 when built", sizes, True),
        "weights": Option("counts", None, "how many of each size", weights, True),
        "flows": Option("count", "1", "how many flows; each has its own IP source and port", options.count(1, 1 << 32)),
        "order": Option("word", "turn", "flows come in turn or at random", options.choice("turn", "random")),
        "vary": Option("fields", None, "header.field=count:first-last or random:first-last, ...", anything, True),
        "seed": Option("count", "1", "of all that is drawn at random", options.count(0, 1 << 63)),
        "checksums": Option("yes/no", "yes", "put checksums right", options.flag),
        "rate": Option("rate", None, "packets (pps) or bits of frames (bps) a second; none: no limit", options.rate),
        "overhead": pacing.OVERHEAD,
        "count": Option("count", None, "packets in all; no end when not set", options.count(0)),
        "trailer": Option(
            "word", "no", "end frames in a number and a time, for checker:; flow: number each flow", trailer
        ),
        "stream": Option(
            "count",
            "0",
            "the stream that trailers name; further workers, or flows, have the next ones",
            options.count(0, STREAMS - 1, "0"),
        ),
    }

    def __init__(self, target: str = "", **given: Any) -> None:
        if target:
            raise GraphError(f"generator: takes no target, got {target!r}; its options are {', '.join(self.OPTIONS)}")
        self.name = "generator:"
        values = options.read(self.KIND, self.OPTIONS, given)
        self.rate: options.Rate | None = values["rate"]
        self.overhead = pacing.overhead(values["overhead"])
        self.count: int | None = values["count"]
        self.seed: int = values["seed"]
        self.checksums: bool = values["checksums"]
        self.trailer: int | None = None if values["trailer"] == "no" else values["stream"]
        self.streams: int = values["flows"] if values["trailer"] == "flow" else 1
        if self.streams > STREAMS or (values["trailer"] == "flow" and values["order"] == "random"):
            raise GraphError(
                f"generator option trailer: got flow with {self.streams} flows in the order {values['order']}, wanted at "
                f"most {STREAMS} in turn; write order=turn, or number all packets of a worker with trailer=yes"
            )
        if self.rate:
            pacing.check(self.rate)
        pacing.check_overhead(self.name, self.overhead, self.rate)
        base = _base(values, given)
        self.templates, self.pattern = _templates(base, values)
        self.variations = _variations(self.templates[0], values)

    def open(self, role: str, workers: int) -> "GeneratorPart":
        """Ready for one run.  Raises GraphError when it is to be a sink."""
        if role == "sink":
            raise GraphError("generator: is a source of packets; to forget what leaves a graph, end it in null:")
        stream = Stream(
            self.templates,
            self.pattern,
            self.variations,
            self.count,
            self.rate,
            self.overhead,
            self.seed,
            self.checksums,
            self.trailer,
            self.streams,
        )
        return GeneratorPart(stream)


def _base(values: dict[str, Any], given: dict[str, Any]) -> Template:
    """The template as given or built, in the size that it has by itself."""
    if values["template"] is None:
        return template.read(template.build(values))
    for name in BUILT:
        if name in given:
            raise GraphError(f"generator options template and {name}: the template says it already; leave {name} out")
    data, link = template.given(values["template"])
    if not 1 <= len(data) <= LARGEST:
        raise options.refused("generator", "template", data, f"a frame of 1 to {LARGEST} bytes", "ffffffffffff...")
    return template.read(data, link)


def _templates(base: Template, values: dict[str, Any]) -> tuple[list[Template], list[int]]:
    """A template for each size, and the pattern in which they come."""
    wanted = values["size"] or (None if values["template"] is not None else (64,))
    if values["trailer"] != "no":
        found = [template.for_trailer(base, size) for size in wanted or (len(base.data),)]
    else:
        found = [base] if wanted is None else [template.resized(base, size) for size in wanted]
    share = values["weights"] or (IMIX_WEIGHTS if wanted == IMIX else (1,) * len(found))
    if len(share) != len(found):
        raise options.refused("generator", "weights", share, f"one for each of {len(found)} sizes", "7,4,1")
    return found, spread(share)


def _variations(base: Template, values: dict[str, Any]) -> list[Variation]:
    found = _flows(base, values["flows"], values["order"] == "random") if values["flows"] > 1 else []
    return found + [variation.variation(name, how, base) for name, how in variation.parse(values["vary"] or "").items()]


def _flows(base: Template, flows: int, random: bool) -> list[Variation]:
    """The fields that tell flows apart; flow 0 is the template's own."""
    if not base.ip:
        raise GraphError("generator option flows: the template carries no IP, so it has no flows; use vary instead")
    name = "src" if base.ip == "ipv4" else "src_lo"
    source = getattr(HEADERS[base.ip](base.data, base.places[base.ip]), name)
    found = [Variation(f"{base.ip}.{name}", random, source, flows, stream="flow")]
    for header in ("udp", "tcp", "sctp"):
        if header in base.places:
            port = HEADERS[header](base.data, base.places[header]).sport
            first, bias = port & ~SPORT_TURN, port & SPORT_TURN
            found.append(Variation(f"{header}.sport", random, first, flows, 1, bias, SPORT_TURN, "flow"))
    return found
