"""``xdp:eth0``: frames of an interface's queues by AF_XDP, in packets of our own pool.

As a source it gives what arrives at the interface, as a sink it sends.  The same element may be both in one graph; then
each worker's source and sink share a socket.  Worker k has the interface's queue ``queue`` + k.

Nothing is changed for good: the XDP program is gone with the process, and as a sink alone there is none.
"""

from typing import Any, ClassVar

from wirespeed.core.element import Element
from wirespeed.errors import GraphError
from wirespeed.ports import options
from wirespeed.ports.options import Option
from wirespeed.ports.xdp.device import Device
from wirespeed.ports.xdp.part import XdpPart
from wirespeed.ports.xdp.program import Rule, rules


class XdpPort(Element):
    """``xdp:INTERFACE``, a source and a sink of the frames of an interface's queues."""

    KIND = "xdp"
    SUMMARY = "an interface's queues by AF_XDP, past the kernel's stack"
    OPTIONS: ClassVar[dict[str, Option]] = {
        "queue": Option("number", 0, "queue of the first worker; each further worker has the next one",
                        options.count(0, 4095, "0")),
        "mode": Option("word", "auto", "auto, copy or zerocopy: whether the driver puts frames into packets itself",
                       options.choice("auto", "copy", "zerocopy")),
        "attach": Option("word", "auto", "auto, native or generic: who runs the XDP program, the driver or the stack",
                         options.choice("auto", "native", "generic")),
        "take": Option("list", None, "take only such frames, leave others to the kernel: arp,icmp,tcp/22; all when not set",
                       rules, many=True),
        "leave": Option("list", None, "leave such frames to the kernel, as in leave=arp,tcp/22", rules, many=True),
        "checksums": Option("word", "complete", "complete or leave: what is done where the kernel left them for later",
                            options.choice("complete", "leave")),
        "ring": Option("frames", 2048, "length of each of a queue's rings, a power of two", options.count(64, 1 << 15, "2048")),
        "netns": Option("name", None, "network namespace that the interface is in", options.text),
    }  # fmt: skip

    def __init__(self, target: str, **given: Any) -> None:
        if not target:
            raise GraphError("xdp: names no interface; write xdp:eth0")
        self.name = f"xdp:{target}"
        self.target = target
        values = options.read(self.KIND, self.OPTIONS, given)
        self.queue: int = values["queue"]
        self.mode: str = values["mode"]
        self.attach: str = values["attach"]
        self.take: tuple[Rule, ...] | None = values["take"]
        self.leave: tuple[Rule, ...] = values["leave"] or ()
        self.complete: bool = values["checksums"] == "complete"
        self.ring: int = values["ring"]
        self.netns: str | None = values["netns"]
        if self.ring & (self.ring - 1):
            raise options.refused(self.KIND, "ring", self.ring, "a power of two", "2048")
        self._device: Device | None = None

    def open(self, role: str, workers: int) -> XdpPart:
        """Open the interface; source and sink of one run share what is open."""
        device = self._device
        if device is None or device.closed:
            device = self._device = Device(self, workers)
        device.join(role)
        return XdpPart(device, role)
