"""Which rights (capabilities) a process has, and what is said when one is missing.

*Source:* capabilities(7); the numbers are those of include/uapi/linux/capability.h.
"""

import errno
import os
import sys

from wirespeed.errors import PortError

NUMBERS = {
    "CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14, "CAP_SYS_ADMIN": 21, "CAP_BPF": 39
}  # fmt: skip


def has(right: str) -> bool:
    """Whether the calling thread has a right now."""
    with open("/proc/thread-self/status", encoding="ascii") as status:
        effective = next(line for line in status if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> NUMBERS[right] & 1)


def missing(*rights: str) -> list[str]:
    """Those of ``rights`` that the calling thread lacks."""
    return [right for right in rights if not has(right)]


def refused(name: str, what: str, *rights: str) -> PortError:
    """The error for a port that may not do ``what``; it names the rights that are missing, and how to get them."""
    lacking = missing(*rights) or list(rights)
    *others, last = lacking
    named = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    lower = ",".join(right.lower() for right in lacking)
    return PortError(
        errno.EPERM,
        f"{name}: no right to {what}: {named} missing; run as root, or give it as an ambient capability (`setpriv "
        f"--ambient-caps`, AmbientCapabilities= of systemd), or once, which gives it to all programs of all users by this "
        f"Python: setcap {lower}+ep {os.path.realpath(sys.executable)}",
    )
