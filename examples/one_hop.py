"""Forward IPv4 with one hop less to live, from in.pcap to out.pcap; drop the rest."""

import wirespeed as ws


@ws.function
def one_hop(pkt):
    """Forward IPv4 with one hop less to live; drop the rest."""
    if not pkt.ipv4 or pkt.ipv4.ttl <= 1:
        return ws.DROP
    ws.decrement_ttl(pkt.ipv4)  # and its checksum, by RFC 1624
    return ws.FORWARD


if __name__ == "__main__":
    report = ws.run(ws.port("pcap:in.pcap") >> one_hop >> ws.port("pcap:out.pcap"))
    print(report)  # packets in and out of each stage, drops by reason
