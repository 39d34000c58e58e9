"""Read a capture as columns: NumPy arrays for each burst, and a pandas table if pandas is installed."""

import importlib.util

import numpy as np

import wirespeed as ws

if __name__ == "__main__":
    lengths = np.concatenate([burst["length"] for burst in ws.read("in.pcap")])
    print(
        f"{len(lengths):,} packets, {lengths.mean():.0f} bytes on average, {np.percentile(lengths, 99):.0f} at most, for 99%"
    )

    if importlib.util.find_spec("pandas") and importlib.util.find_spec("pyarrow"):
        import pyarrow

        table = pyarrow.table(ws.read("in.pcap")).to_pandas()  # through Arrow, without a copy of the columns
        print(table.groupby("proto")["length"].describe())
