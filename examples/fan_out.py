"""A function with several outputs: sort a capture into files by protocol."""

import wirespeed as ws


@ws.function
def by_protocol(pkt):
    """The verdict is the number of the output."""
    if pkt.tcp:
        return 0
    if pkt.udp:
        return 1
    return 2


if __name__ == "__main__":
    files = (ws.port("pcap:tcp.pcap"), ws.port("pcap:udp.pcap"), ws.port("pcap:other.pcap"))
    print(ws.run(ws.port("pcap:in.pcap") >> by_protocol >> files))
