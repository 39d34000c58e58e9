"""What a port of AF_XDP must be allowed; all that is missing of it is told at once.

*Source:* bpf(2), capabilities(7); Documentation/networking/af_xdp.rst, net/xdp/xdp_umem.c.
"""

import resource

from wirespeed.errors import PortError
from wirespeed.ports.link import rights

SOCKET = ("CAP_NET_RAW",)
PROGRAM = ("CAP_BPF", "CAP_NET_ADMIN")
LOCKED = 8 << 20  # bytes of memory that a run with the usual rings locks at the least


def refused(name: str, what: str, is_source: bool) -> PortError:
    """The error for a port that may not do ``what``, with the rights that it will want later on as well."""
    wanted: tuple[str, ...] = (*PROGRAM, *SOCKET) if is_source else SOCKET
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and limit < LOCKED:
        wanted += ("CAP_IPC_LOCK",)
    return rights.refused(name, what, *wanted)
