"""Read a capture as columns: NumPy arrays, and with no copy in between a table of pandas (or polars, or duckdb)."""

import importlib.util

import numpy as np

import wirespeed as ws

if __name__ == "__main__":
    total = np.zeros(65536, np.int64)
    for columns in ws.read("in.pcap"):  # 65,536 packets at a time, whatever the size of the file
        total += np.bincount(columns.dport, columns.length, 65536).astype(np.int64)
    for port in np.argsort(total)[::-1][:5]:
        print(f"{total[port]:9,} bytes to port {port}")

    if importlib.util.find_spec("pandas") and importlib.util.find_spec("pyarrow"):
        import pandas

        table = pandas.DataFrame.from_arrow(ws.read("in.pcap"))
        print(table.groupby("proto")["length"].agg(["count", "mean", "max"]))
