"""Measure a function that loses and reorders packets: loss, order and latency from the trailers of generated packets."""

import wirespeed as ws


@ws.function(state=ws.layout("Clumsy", [("seen", "u8")]))
def clumsy(pkt, my):
    """Lose every 100th packet, and send every 10th one a longer way."""
    my.seen += 1
    if my.seen % 100 == 0:
        return ws.DROP
    return 1 if my.seen % 10 == 0 else ws.FORWARD


if __name__ == "__main__":
    check = ws.checker()
    traffic = ws.port("generator:", trailer="yes", size=128, count=100_000, rate="500kpps", flows=10)
    report = ws.run(traffic >> clumsy >> (check, check))  # output 1 is emptied after the burst: its packets come late
    print(report)
    print(check.latency)  # drawn as a histogram
    print(f"{check.received:,} received, {check.lost:,} lost, {check.reordered:,} reordered, {check.duplicates} double")
