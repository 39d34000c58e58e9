"""Count packets and bytes by flow in a capture, and print the ten largest."""

import sys

import wirespeed as ws


def main(path):
    """Print the largest flows of a capture of any format and size."""
    flows = ws.count_flows(f"pcap:{path}")  # a NumPy array, one row for each flow
    flows.sort(order="bytes")
    print(f"{len(flows)} flows, {flows['packets'].sum():,} packets")
    for flow in flows[::-1][:10]:
        print(flow)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "in.pcap")
