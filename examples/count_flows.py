"""Count packets and bytes by flow in a capture, and print the ten largest flows."""

import sys

import wirespeed as ws
from wirespeed.net.address import ipv4_text, ipv6_text


def end(key, side):
    """One end of a flow as text: address and port."""
    high, low = key[f"{side}_hi"], key[f"{side}_lo"]
    address = "not IP" if key["version"] == 0 else ipv4_text(low) if key["version"] == 4 else ipv6_text(high, low)
    return f"{address} {key['sport' if side == 'src' else 'dport']}"


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "in.pcap"
    flows = ws.count_flows(f"pcap:{path}")  # a NumPy array, one row for each flow
    print(f"{len(flows):,} flows, {flows['packets'].sum():,} packets")
    flows.sort(order="bytes")
    for flow in flows[::-1][:10]:
        key = flow["key"]
        print(f"{flow['bytes']:>12,} bytes  protocol {key['proto']:3}  {end(key, 'src')} -> {end(key, 'dst')}")
