"""The packet as a user's function sees it, for annotations, editors and type checkers.

``def one_hop(pkt: ws.Pkt) -> int`` lets an editor complete ``pkt.ipv4.ttl``.  The classes say what there is; what it
does when the function is interpreted stands in :mod:`wirespeed.engine.function.twin`.  Fields are those of
:data:`wirespeed.net.headers.HEADERS`, each an ``int``: a MAC address is one of 48 bits, an IPv4 address one of 32.

A header that is not there is false, reads as zeros and swallows what is written.
"""


class Header:
    """A header of the packet; true when it is there, whole."""

    def __bool__(self) -> bool:
        raise NotImplementedError


class Ethernet(Header):
    dst: int
    src: int
    type: int


class Vlan(Header):
    """``type`` is that of what follows the tag."""

    prio: int
    dei: int
    vlan: int
    type: int


class Arp(Header):
    hwtype: int
    ptype: int
    hwlen: int
    plen: int
    op: int
    hwsrc: int
    psrc: int
    hwdst: int
    pdst: int


class IPv4(Header):
    version: int
    ihl: int
    tos: int
    len: int
    id: int
    flags: int
    frag: int
    ttl: int
    proto: int
    chksum: int
    src: int
    dst: int


class IPv6(Header):
    """An address is two halves of 64 bits, which are negative when their first bit is set."""

    version: int
    tc: int
    fl: int
    plen: int
    nh: int
    hlim: int
    src_hi: int
    src_lo: int
    dst_hi: int
    dst_lo: int


class Fragment(Header):
    nh: int
    reserved: int
    offset: int
    res2: int
    m: int
    id: int


class Tcp(Header):
    sport: int
    dport: int
    seq: int
    ack: int
    dataofs: int
    reserved: int
    flags: int
    window: int
    chksum: int
    urgptr: int


class Udp(Header):
    sport: int
    dport: int
    len: int
    chksum: int


class Icmp(Header):
    type: int
    code: int
    chksum: int
    rest: int


class Sctp(Header):
    sport: int
    dport: int
    tag: int
    chksum: int


class Mpls(Header):
    label: int
    cos: int
    s: int
    ttl: int


class Gre(Header):
    chksum_present: int
    routing_present: int
    key_present: int
    seqnum_present: int
    strict_route_source: int
    recursion_control: int
    flags: int
    version: int
    proto: int


class Vxlan(Header):
    flags: int
    reserved1: int
    vni: int
    reserved2: int


class Geneve(Header):
    version: int
    optionlen: int
    oam: int
    critical: int
    reserved: int
    proto: int
    vni: int
    reserved2: int


class Bytes:
    """Some bytes of the packet.  What lies outside them reads as 0 and swallows what is written."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, at: int) -> int:
        raise NotImplementedError

    def __setitem__(self, at: int, value: int) -> None:
        raise NotImplementedError

    def u16(self, at: int) -> int:
        """The two bytes at ``at``, in network order."""
        raise NotImplementedError

    def u32(self, at: int) -> int:
        """The four bytes at ``at``, in network order."""
        raise NotImplementedError

    def u64(self, at: int) -> int:
        """The eight bytes at ``at``, in network order; negative when the first bit is set."""
        raise NotImplementedError

    def put_u16(self, at: int, value: int) -> None:
        """Write two bytes at ``at``, in network order."""
        raise NotImplementedError

    def put_u32(self, at: int, value: int) -> None:
        """Write four bytes at ``at``, in network order."""
        raise NotImplementedError

    def put_u64(self, at: int, value: int) -> None:
        """Write eight bytes at ``at``, in network order."""
        raise NotImplementedError


class Pkt:
    """The packet that a function is called with.

    Headers are the outer ones, found when the packet arrives, and again after each of the methods below and after
    :func:`push_vlan` and :func:`pop_vlan`; a header held in a variable stays where it was.  Of a packet in several
    segments, headers and bytes are those of the first.
    """

    eth: Ethernet
    vlan: Vlan
    vlan2: Vlan
    arp: Arp
    ipv4: IPv4
    ipv6: IPv6
    fragment: Fragment
    tcp: Tcp
    udp: Udp
    icmp: Icmp
    icmpv6: Icmp
    sctp: Sctp
    mpls: Mpls
    gre: Gre
    vxlan: Vxlan
    geneve: Geneve

    time: int
    """Nanoseconds since 1970, 0 where the port knows none.  Read only."""
    port: int
    """Number of the port it came in by.  Read only."""
    length: int
    """Bytes of the whole packet.  Read only."""
    wire: int
    """Bytes it had on the wire, more than ``length`` where a capture cut it.  Read only."""
    link: int
    """Link type of its first header (LINKTYPE_*), 1 for Ethernet.  Read only."""
    mark: int
    """A word of 32 bits for the user, which goes along with the packet."""
    hash: int
    """Flow hash of 32 bits of the addresses, ports and protocol as they are now, 0 where there is no IP.  Read only."""

    payload: Bytes
    """What follows the last of the outer headers, to the end of the IP datagram (padding is not in it)."""
    frame: Bytes
    """All bytes, from the first header on."""

    def prepend(self, size: int) -> bool:
        """Grow it by ``size`` bytes at its front; whether there was room.  The new bytes are zeros."""
        raise NotImplementedError

    def append(self, size: int) -> bool:
        """Grow it by ``size`` bytes at its end; whether there was room.  The new bytes are zeros."""
        raise NotImplementedError

    def adjust(self, size: int) -> bool:
        """Cut ``size`` bytes off its front; whether it had as many."""
        raise NotImplementedError

    def trim(self, size: int) -> bool:
        """Cut ``size`` bytes off its end; whether it had as many."""
        raise NotImplementedError

    def locate(self) -> None:
        """Find the headers again, after own writes changed which header follows which."""
        raise NotImplementedError
