"""The virtio-net header: what a guest or the kernel says beside a packet of checksums and of cutting it into frames.

Its fields are little endian in virtio 1 and in the machine's order where the kernel's packet sockets and taps use it;
on the machines that we run on these are the same.  ``num_buffers`` follows it where receive buffers may be merged, and
in virtio 1 always: a port adds those two bytes itself.

*Source:* virtio 1.2, section 5.1.6; Linux, include/uapi/linux/virtio_net.h.
"""

from wirespeed.jit.layout import layout

VirtioNetHeader = layout(
    "VirtioNetHeader",
    [
        ("flags", "u1"),
        ("gso_type", "u1"),
        ("hdr_len", "u2"),  # bytes of all headers, a hint of the sender's that is never believed
        ("gso_size", "u2"),  # most bytes of payload of each frame
        ("csum_start", "u2"),  # where the sum begins, from the packet's first byte,
        ("csum_offset", "u2"),  # and from there to the field
    ],
)
assert VirtioNetHeader.size == 10

# The same with the word that follows it in virtio 1.
VirtioNetHeader1 = layout("VirtioNetHeader1", [("header", VirtioNetHeader), ("num_buffers", "u2")])
assert VirtioNetHeader1.size == 12

# ``flags``
NEEDS_CSUM = 1  # the field holds the pseudo header's sum only
DATA_VALID = 2  # the checksum was looked at and is right

# ``gso_type``
GSO_NONE = 0
GSO_TCPV4 = 1
GSO_UDP = 3  # a datagram to be cut into IP fragments
GSO_TCPV6 = 4
GSO_UDP_L4 = 5  # datagrams that were joined
GSO_ECN = 0x80  # beside one of TCP's: the congestion window was reduced, which the first segment alone says
