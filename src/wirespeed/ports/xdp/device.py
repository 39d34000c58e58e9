"""An interface that is open for AF_XDP, with its program and a socket for each worker, and what becomes of it.

Theory of operation
-------------------
Source and sink of one run share a device.  It is opened with the first role and closed with the last.  A source needs
the XDP program; a sink alone sends without one, so nothing changes for the interface's other users.

A link that goes down and up keeps its sockets: meanwhile the sink drops and the source gives nothing.  An interface
that is gone has lost them.  Each worker is told to use none, and once it says so, the old one's packets are taken back.
When there is an interface of that name again, a new program and new sockets are made, and handed out in the same way.

Thread rules: everything here is the control thread's, but for what is said at the layouts of the stages.
"""

import errno
import logging
from typing import TYPE_CHECKING, Any

from wirespeed.core.stage import Site
from wirespeed.errors import PortError
from wirespeed.net.link import LINKTYPE_ETHERNET
from wirespeed.ports.link import forks
from wirespeed.ports.link.interface import Interface
from wirespeed.ports.link.watch import Change, Watch
from wirespeed.ports.xdp.attachment import Attachment
from wirespeed.ports.xdp.channels import channels
from wirespeed.ports.xdp.queue import Queue

if TYPE_CHECKING:
    from wirespeed.ports.xdp.port import XdpPort

log = logging.getLogger("wirespeed")
PATIENCE_S = 2.0  # for a queue whose socket was closed just before: the kernel tidies up behind it later
COUNTERS = {
    "source": ("rx_dropped", "rx_ring_full", "rx_fill_ring_empty_descs", "rx_invalid_descs", "starved", "invalid"),
    "sink": ("tx_invalid_descs", "wakeups", "busy"),
}
LOOK_AGAIN_S = 0.5  # and how often it is tried to open one that could not be opened
LOOK_S = 0.05  # how often the link is looked after
ETHERNET = 14  # bytes before what the MTU counts (RFC 894)


class Device:
    """One interface in one run."""

    def __init__(self, port: "XdpPort", workers: int) -> None:
        self.port = port
        self.workers = workers
        self.closed = False
        self.queues: list[Queue] = []
        self.link_changes = 0
        self._returns = 0  # times that it was gone and came back
        self._called = port.target
        self._trouble = ""  # why an interface that was gone could not be opened again
        self._roles: set[str] = set()
        self.joined: set[str] = set()
        self._attachment: Attachment | None = None
        self._mode = ""  # how the program is attached, or was
        self._channels = channels(port.target, port.netns)
        with Interface(port.target, port.netns) as interface:
            self.index, self.mtu, self.up = interface.index, interface.mtu, interface.is_up
            if interface.link != LINKTYPE_ETHERNET:
                raise PortError(errno.EPFNOSUPPORT, f"{port.name}: AF_XDP wants an Ethernet interface")
        self._watch = Watch(port.netns)
        forks.register(self)

    def join(self, role: str) -> None:
        """Open it in a role."""
        if role in self.joined:
            raise PortError(
                errno.EBUSY, f"{self.port.name} is open in a run already; make another port of another queue"
            )
        self.joined.add(role)
        self._roles.add(role)
        try:
            if role == "source" or self.port.mode == "zerocopy":
                self._attach()
            if role == "source" and self._left:
                log.warning("%s: %s", self.port.name, self._advice())
        except BaseException:
            self.leave(role)
            raise

    def _attach(self) -> None:
        with Interface(self.port.target, self.port.netns) as interface:
            self._attachment = Attachment(interface, self.port.attach, self.port.take, self.port.leave)
        self._mode = self._attachment.mode

    @property
    def _left(self) -> int:
        """Queues that receive, and that no worker of ours has."""
        return max(0, self._channels - self.port.queue - self.workers) + min(self.port.queue, self._channels)

    def _advice(self) -> str:
        """What is said of queues that are left to the kernel, whose frames one may miss."""
        return (
            f"{self._left} of {self._channels} queues {'is' if self._left == 1 else 'are'} left to the kernel, with all "
            f"frames that arrive there; run with {self._channels} workers from queue 0 on, or give the interface fewer "
            "queues with `ethtool -L`"
        )

    @property
    def map_fd(self) -> int:
        """The map of the program's sockets, or -1 when there is no program."""
        return self._attachment.map_fd if self._attachment is not None else -1

    @property
    def is_source(self) -> bool:
        """Whether it receives."""
        return "source" in self.joined

    def queue(self, site: Site) -> Queue:
        """The queue of a worker, with its socket."""
        while len(self.queues) <= site.worker:
            self.queues.append(Queue(self, site, len(self.queues)))
        queue = self.queues[site.worker]
        if queue.run_pool is not site.pool:
            raise PortError(errno.EBUSY, f"{self.port.name} is open in another run; make another port of another queue")
        if not queue.is_open:
            queue.open(PATIENCE_S)
        return queue

    @property
    def longest(self) -> int:
        """Bytes of the longest frame that the interface carries, without tags."""
        return self.mtu + ETHERNET

    def service(self) -> float:
        """Look at what happened to the interface; returns in how many seconds to look again."""
        if self.closed:
            return LOOK_S
        told = self._watch.changes()
        for change in self._current() if told is None else told:
            if change.index == self.index:
                self._note(change)
        for queue in self.queues:
            queue.take_back()
        if self.index == 0:
            self._return()
        return LOOK_AGAIN_S if self._trouble else LOOK_S

    def _current(self) -> list[Change]:
        """What the interface is now, as a change, where the kernel had more to tell than the socket held."""
        with Interface(self.port.target, self.port.netns) as interface:
            if not interface.exists() or interface.index != self.index:
                return [Change(self.index, self.port.target, 0, self.mtu, True)]
            return [Change(self.index, self.port.target, interface.flags, interface.mtu, False)]

    def _note(self, change: Change) -> None:
        if change.gone:
            self.link_changes += self.up
            self.index, self.up = 0, False
            log.warning("%s: it is gone; it is opened again as soon as it is there", self.port.name)
            for queue in self.queues:
                queue.retire()
            if self._attachment is not None:
                self._attachment.close()
                self._attachment = None
        else:
            self.link_changes += change.is_up != self.up
            self.up, self.mtu, self._called = change.is_up, change.mtu, change.name or self._called
        self._tell()

    def _tell(self) -> None:
        for queue in self.queues:
            queue.tell()

    def _return(self) -> None:
        """Open the interface again if it is there; packets of the old sockets may come back later."""
        try:
            with Interface(self.port.target, self.port.netns) as interface:
                if not interface.exists():
                    return
                self.index, self.mtu, self.up = interface.index, interface.mtu, interface.is_up
                self._called = self.port.target
            if self._mode:
                self._attach()
            for queue in self.queues:
                queue.open()
        except OSError as error:
            # It went again, is being made, somebody else has it, or its namespace is gone: the next look tells.
            self._trouble = str(error)
            self.index = 0
            for queue in self.queues:
                queue.retire()
            if self._attachment is not None:
                self._attachment.close()
                self._attachment = None
            return
        self._trouble = ""
        self._returns += 1
        self.link_changes += self.up
        log.warning("%s: it is there again", self.port.name)
        self._tell()

    def counters(self, role: str) -> dict[str, Any]:
        """What the kernel and the sockets counted, for one role, without what is 0."""
        every = [queue.counters() for queue in self.queues]
        found: dict[str, Any] = {name: sum(c.get(name, 0) for c in every) for name in COUNTERS[role]}
        if role == "source":
            found["kernel_drops"] = found["rx_dropped"] + found["rx_ring_full"]
            found["program"] = self._mode
            found["queues_left"] = self._left
        found |= {"link_changes": self.link_changes, "returns": self._returns, "trouble": self._trouble}
        if self._called != self.port.target:
            found["renamed"] = self._called
        return {name: value for name, value in found.items() if value}

    def leave(self, role: str) -> None:
        """Close it in a role; the last one closes the device.  Closing twice is harmless."""
        if role not in self._roles:
            return
        self._roles.remove(role)
        if role == "sink":
            for queue in self.queues:
                queue.write_off()
        if self._roles:
            return
        self.closed = True
        if self._attachment is not None:
            self._attachment.close()
        for queue in self.queues:
            queue.close()
        self._watch.close()

    def let_go(self) -> None:
        """In a forked child it is closed; the sockets and the program let go by themselves."""
        if not self.closed:
            self.closed = True
            self._roles.clear()
            for queue in self.queues:
                queue.let_go()
