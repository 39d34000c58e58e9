"""A port of AF_XDP in a run, in one role: the stages of its workers, and what the control thread does for them."""

from typing import Any

from wirespeed.core.stage import Placement, Site
from wirespeed.net.link import LINKTYPE_ETHERNET
from wirespeed.net.segmentation import MOST_FRAMES
from wirespeed.ports.xdp import receive, transmit
from wirespeed.ports.xdp.device import Device


class XdpPart:
    """One role of a device; the last part that is closed closes it."""

    link = LINKTYPE_ETHERNET

    def __init__(self, device: Device, role: str) -> None:
        self.device = device
        self.role = role
        self._states: list[int] = []

    @property
    def holds(self) -> int:
        """Packets that the kernel can have at once."""
        return self.device.workers * self.device.port.ring

    def place(self, site: Site) -> Placement:
        """This worker's copy, with its queue's socket."""
        queue = self.device.queue(site)
        source = self.role == "source"
        stage = receive if source else transmit
        address = site.state(stage.State)
        if not source:
            transmit.write_off.compile((transmit.write_off.typeof_pyval(0),))  # now, and not at the end
            transmit.State.at(address).box = site.arena.alloc(8 * MOST_FRAMES)
        self._states.append(address)
        queue.add(self.role, stage, address)
        code = receive.receive.address if source else transmit.transmit.address
        return Placement(code, address, stage.DROPS, (queue.fd,) if source else (), keep=queue)

    def service(self) -> float | None:
        """Look after the link; the parts of both roles do, whoever comes first."""
        return self.device.service()

    def counters(self) -> dict[str, Any]:
        """What the kernel and the sockets counted."""
        return self.device.counters(self.role)

    def made(self) -> int:
        """Frames that packets were cut into, less these packets."""
        return sum(int(transmit.State.at(at).made) for at in self._states) if self.role == "sink" else 0

    def close(self) -> None:
        """Give the packets back that the kernel has still, and count those that it did not send."""
        self.device.leave(self.role)
