"""Make traffic at a rate: UDP packets of mixed sizes in a thousand flows, for a second."""

import wirespeed as ws


@ws.function
def only_large(pkt):
    """Forward what is larger than 500 bytes."""
    return ws.FORWARD if pkt.length > 500 else ws.DROP


if __name__ == "__main__":
    traffic = ws.port("generator:", size="imix", flows=1000, rate="20kpps", seed=1)
    report = ws.run(traffic >> only_large >> ws.port("pcap:large.pcap"), seconds=1)
    print(report)
