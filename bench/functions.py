"""The user functions the benches place between two ports; macswap, 5tswap and csum do what testpmd's modes do."""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False

import wirespeed as ws

OUTPUTS = 4


@ws.function
def one_hop(pkt):
    """Forward IPv4 with one hop less to live; drop the rest."""
    if not pkt.ipv4 or pkt.ipv4.ttl <= 1:
        return ws.DROP
    ws.decrement_ttl(pkt.ipv4)
    return ws.FORWARD


@ws.function
def endless_hop(pkt):
    """Forward IPv4 with one hop less to live; between null ports a packet comes again, so one at 1 begins anew."""
    if not pkt.ipv4:
        return ws.DROP
    if pkt.ipv4.ttl <= 1:
        pkt.ipv4.ttl = 255
        ws.checksum_ipv4(pkt.ipv4)
    ws.decrement_ttl(pkt.ipv4)
    return ws.FORWARD


@ws.function
def forward(pkt):
    """Forward everything: what a stage costs by itself."""
    return ws.FORWARD


@ws.function
def only_udp(pkt):
    """Forward UDP/IPv4 with a checksum; drop the rest: tells what a null port hands out."""
    if not pkt.ipv4 or not pkt.udp or pkt.udp.chksum == 0:
        return ws.DROP
    return ws.FORWARD


@ws.function
def macswap(pkt):
    """Swap the Ethernet addresses."""
    dst = pkt.eth.dst
    pkt.eth.dst = pkt.eth.src
    pkt.eth.src = dst
    return ws.FORWARD


@ws.function
def fivetuple_swap(pkt):
    """Swap Ethernet addresses, IPv4 addresses and ports."""
    dst = pkt.eth.dst
    pkt.eth.dst = pkt.eth.src
    pkt.eth.src = dst
    if pkt.ipv4:
        address = pkt.ipv4.dst
        pkt.ipv4.dst = pkt.ipv4.src
        pkt.ipv4.src = address
        if pkt.udp:
            port = pkt.udp.dport
            pkt.udp.dport = pkt.udp.sport
            pkt.udp.sport = port
        elif pkt.tcp:
            port = pkt.tcp.dport
            pkt.tcp.dport = pkt.tcp.sport
            pkt.tcp.sport = port
    return ws.FORWARD


@ws.function
def csum(pkt):
    """Set the Ethernet addresses and compute all checksums anew; a UDP checksum of zero means none and stays."""
    pkt.eth.dst = 0x020000000001
    pkt.eth.src = 0x020000000002
    if pkt.ipv4:
        ws.checksum_ipv4(pkt.ipv4)
        if pkt.tcp or pkt.udp.chksum != 0:
            ws.checksum_l4(pkt)
    return ws.FORWARD


Dice = ws.layout("Dice", [("seed", "u8")])


@ws.function(state=Dice)
def spray(pkt, my):
    """Send each packet to one of four outputs at random (Knuth's MMIX generator, of which the high bits are good)."""
    my.seed = my.seed * 6364136223846793005 + 1442695040888963407
    return (my.seed >> 33) & 3
