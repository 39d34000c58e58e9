"""A function with a memory of its own: it lets the first packets of each second through and drops the others."""

import wirespeed as ws

Second = ws.layout("Second", [("begin", "i8"), ("packets", "u8"), ("seconds", "u8")])
ALLOWED = 50


@ws.function(state=Second)
def limit(pkt, my):
    """Forward at most ALLOWED packets in each second of the capture's own time."""
    if pkt.time - my.begin >= 1_000_000_000:
        my.begin = pkt.time
        my.packets = 0
        my.seconds += 1
    my.packets += 1
    if my.packets > ALLOWED:
        return ws.DROP
    return ws.FORWARD


if __name__ == "__main__":
    # What a state counts shows up in the report, under the function's name.
    print(ws.run(ws.port("pcap:in.pcap") >> limit >> ws.port("pcap:limited.pcap")))
