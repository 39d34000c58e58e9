"""What the parser says of each header it meets: the kinds there are, their fixed sizes, and the record of one.

Theory of operation
-------------------
Every header has a *step*, a small kernel ``(frame, at, end) -> (size, next, end, flags)``: the header begins ``at``
bytes into the frame and nothing beyond ``end`` may be read.  It returns the header's own ``size`` with its options, or
0 when its fixed part is not whole (or not a header of this kind at all); the kind of the ``next`` header, or NONE; the
``end`` of what the header carries, never beyond the one it was given; and flags.  Steps only go forward: a size that is
not 0 is at least 1, so a walk ends.
"""

from wirespeed.jit.layout import layout

Layer = layout(
    "Layer",
    [
        ("kind", "u1"),  # which header
        ("whole", "u1"),  # 1: its fixed part is whole and its fields can be read
        ("flags", "u2"),  # LAYER_*
        ("offset", "u4"),  # bytes from the start of the frame
        ("length", "u4"),  # bytes of the header by its own word; of what is there, when it is not whole
        ("end", "u4"),  # offset of the end of what it carries, by its own word; never beyond the captured bytes
    ],
)
assert Layer.size == 16

# Flags of a layer, and results of its step.
LAYER_CUT = 1  # the header, or what it says that it carries, goes beyond the end
LAYER_BAD = 2  # it contradicts itself or its place
LAYER_FIRST_FRAGMENT = 4  # more fragments follow
LAYER_LATER_FRAGMENT = 8  # what follows is the middle of a datagram

# Headers of the link and network layers come first: one of these behind an IP header begins a tunnel's inner frame.
NONE = 0
ETH = 1
VLAN = 2
LLC = 3
SNAP = 4
NULL = 5  # BSD loopback, in the byte order of the machine that captured
LOOP = 6  # OpenBSD loopback, in network order
SLL = 7  # Linux "cooked" capture
SLL2 = 8
PPP = 9
PPPOE = 10
MPLS = 11
ARP = 12
IPV4 = 13
IPV6 = 14
LAST_NETWORK = IPV6
HOPOPTS = 15
ROUTING = 16
FRAGMENT = 17
AH = 18
DSTOPTS = 19
MOBILITY = 20
HIP = 21
SHIM6 = 22
ESP = 23
TCP = 24
UDP = 25
ICMP = 26
ICMPV6 = 27
SCTP = 28
GRE = 29
VXLAN = 30
GENEVE = 31

NAMES = (
    "none", "eth", "vlan", "llc", "snap", "null", "loop", "sll", "sll2", "ppp", "pppoe", "mpls", "arp", "ipv4", "ipv6",
    "hopopts", "routing", "fragment", "ah", "dstopts", "mobility", "hip", "shim6", "esp", "tcp", "udp", "icmp",
    "icmpv6", "sctp", "gre", "vxlan", "geneve",
)  # fmt: skip

MAX_LAYERS = 32
"""Headers that are looked at in one frame, at most; a frame with more is called bad from there on."""
