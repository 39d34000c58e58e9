"""The packet port: ``packet:eth0``, frames in and out by an interface of the kernel.

The kernel goes on using the interface: it sees what comes in as well, and answers to it if it has addresses there.
"""

from typing import Any, ClassVar

from wirespeed.core.element import Element
from wirespeed.core.stage import Part
from wirespeed.errors import GraphError
from wirespeed.ports import options
from wirespeed.ports.options import Option
from wirespeed.ports.packet.settings import Settings
from wirespeed.ports.packet.sink import SinkPart
from wirespeed.ports.packet.source import FANOUT, SKIPPED, SourcePart

LARGEST = 1 << 20  # bytes of a frame; the kernel's super-frames have 512 kB at most


class PacketPort(Element):
    """``packet:NAME``, a source of what comes in by an interface, or a sink that sends it out; also both."""

    KIND = "packet"
    SUMMARY = "an interface of the kernel, by packet sockets (needs CAP_NET_RAW)"
    OPTIONS: ClassVar[dict[str, Option]] = {
        "netns": Option("name", None, "network namespace that the interface is in", options.text),
        "direction": Option(
            "word", "in", "what is received: in, out (what others send by it), or both", options.choice(*SKIPPED)
        ),
        "promisc": Option("yes/no", "yes", "receive frames for other addresses, too", options.flag),
        "allmulti": Option("yes/no", "no", "receive all multicast frames", options.flag),
        "offloads": Option(
            "yes/no", "yes", "super-frames and checksums still to be done pass as they are; no: done here", options.flag
        ),
        "fanout": Option(
            "word",
            "hash",
            "how workers share packets out: hash (by flow), defrag, cpu, lb, qm, rnd",
            options.choice(*FANOUT),
        ),
        "snaplen": Option("bytes", None, "most bytes of each frame, to capture", options.size(1, LARGEST, "128")),
        "slots": Option(
            "count",
            None,
            "slots of a worker's ring to receive; 16k where memory allows",
            options.count(64, 1 << 20, "16k"),
        ),
        "slot": Option("bytes", None, "bytes of a frame that fit into a slot", options.size(64, 1 << 17, "2048")),
        "buffer": Option(
            "bytes", "32MiB", "most bytes of frames that fit no slot", options.size(4096, 1 << 30, "64MiB")
        ),
        "qdisc_bypass": Option("yes/no", "no", "transmit past the queueing discipline", options.flag),
        "timestamps": Option(
            "word",
            "software",
            "whose clock: software, or hardware where the interface has one",
            options.choice("software", "hardware"),
        ),
    }

    def __init__(self, target: str = "", **given: Any) -> None:
        if not target:
            raise GraphError("packet: names no interface; write packet:eth0")
        values = options.read(self.KIND, self.OPTIONS, given)
        self.name = f"packet:{target}"
        self.settings = Settings(
            name=target,
            netns=values["netns"],
            direction=values["direction"],
            promiscuous=values["promisc"],
            all_multicast=values["allmulti"],
            offloads=values["offloads"],
            fanout=values["fanout"],
            snaplen=values["snaplen"] or LARGEST,
            slots=values["slots"],
            slot=values["slot"],
            buffer=values["buffer"],
            bypass=values["qdisc_bypass"],
            hardware_time=values["timestamps"] == "hardware",
        )

    def open(self, role: str, workers: int) -> Part:
        """Open its sockets; raises :class:`PortError` when there is no such interface, or no right to use it."""
        if role == "source":
            return SourcePart(self.settings, workers)
        return SinkPart(self.settings, workers)
