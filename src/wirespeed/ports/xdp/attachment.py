"""The program of an interface while it is attached: loaded, linked, and gone with the descriptor of its link.

Native programs, which the driver runs before it makes anything of a frame, are tried before generic ones, and programs
that can have frames in several buffers before those that cannot.  The link is a descriptor of this process, so nothing is left
attached when it is killed.  At the usual end the program is taken off by a request, for a process that was forked
meanwhile may have the link as well.

*Source:* Documentation/networking/af_xdp.rst, include/uapi/linux/if_link.h; bpf(2).
"""

import contextlib
import errno
import os
from collections.abc import Sequence

from wirespeed.errors import PortError
from wirespeed.ports.link import forks
from wirespeed.ports.link.interface import Interface
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.xdp import bpf, permission
from wirespeed.ports.xdp.program import Rule, program

# include/uapi/linux/if_link.h
FLAGS = {"native": 1 << 2, "generic": 1 << 1}  # XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE
MOST_QUEUES = 4096
TAKEN = (errno.EBUSY, errno.EEXIST)


class Attachment:
    """A program attached to an interface, and its map of sockets; :meth:`close` takes it off."""

    def __init__(self, interface: Interface, how: str, take: Sequence[Rule] | None, leave: Sequence[Rule]) -> None:
        self.name = f"xdp:{interface.name}"
        self._fds: list[int] = []
        self._link = -1
        self.mode = ""
        self.several = False
        index = interface.index
        forks.register(self)
        try:
            self.map_fd = self._kept(bpf.make_socket_map(MOST_QUEUES))
            self._attach(index, interface, how, program(self.map_fd, take, leave))
        except OSError as error:
            self.close()
            raise self._told(error, interface) from error

    def _kept(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _attach(self, index: int, interface: Interface, how: str, code: bytes) -> None:
        """Attach it in the first way that works; the first way's error is the one that tells why none does."""
        first: OSError | None = None
        programs = {flags: self._kept(bpf.load_program(code, flags)) for flags in (bpf.F_XDP_HAS_FRAGS, 0)}
        for mode in ("native", "generic") if how == "auto" else (how,):
            for flags, fd in programs.items():
                try:
                    with inside(interface.netns):
                        self._link = self._kept(bpf.attach(fd, index, FLAGS[mode]))
                    self.mode, self.several = mode, flags != 0
                    return
                except OSError as error:
                    if error.errno in TAKEN:
                        raise
                    first = first or error
        assert first is not None
        raise first

    def _told(self, error: OSError, interface: Interface) -> OSError:
        """The error as a person should read it."""
        code, text = error.errno, error.strerror
        if isinstance(error, PortError):
            return error
        if code in TAKEN:
            text = (
                "another XDP program is attached already; `ip link show` names it, and "
                f"`ip link set dev {interface.name} xdp off` takes one off that no program holds"
            )
        elif code in (errno.EPERM, errno.EACCES):
            return permission.refused(self.name, "load and attach an XDP program", True)
        elif code == errno.ERANGE:
            text = f"its MTU of {interface.mtu} is too large for native XDP; set a smaller one, or use attach=generic"
        elif code == errno.EOPNOTSUPP:
            text = "its driver cannot run XDP programs; use attach=generic, or packet: instead"
        elif code == errno.EINVAL:
            text = (
                f"the kernel would not attach an XDP program ({text}); it must be 5.9 or later, with CONFIG_XDP_SOCKETS"
            )
        return PortError(code, f"{self.name}: {text}")

    def close(self) -> None:
        """Take the program off.  Closing twice is harmless."""
        if self._link >= 0:
            with contextlib.suppress(OSError):  # the interface is gone, or the kernel only knows the end of a link
                bpf.detach(self._link)
        self.let_go()

    def let_go(self) -> None:
        """Close the descriptors."""
        self._link = -1
        while self._fds:
            os.close(self._fds.pop())
