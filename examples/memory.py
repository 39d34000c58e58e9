"""Push packets into a graph from Python and pull out what it made of them."""

import wirespeed as ws

FRAME = bytes.fromhex("020000000002 020000000001 0800") + bytes(46)


@ws.function
def tag(pkt):
    """Put the packet into VLAN 42."""
    ws.push_vlan(pkt, 42)
    return ws.FORWARD


if __name__ == "__main__":
    memory = ws.port("memory:")
    with ws.start(memory >> tag >> memory) as running:
        for number in range(3):
            memory.push([FRAME] * 4)
            for packet in memory.pull(timeout=5):
                print(number, packet)
        print(running.report().packets, "packets so far")
