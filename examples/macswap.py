"""Swap the Ethernet addresses of packets that a generator makes: how fast is one core?"""

import wirespeed as ws


@ws.function
def macswap(pkt):
    """Send a frame back to whom it came from."""
    dst = pkt.eth.dst
    pkt.eth.dst = pkt.eth.src
    pkt.eth.src = dst
    return ws.FORWARD


if __name__ == "__main__":
    report = ws.run(ws.port("generator:") >> macswap >> ws.port("null:"), seconds=1)
    print(report)
    print(f"{report.packets / report.seconds / 1e6:.1f} million packets a second")
