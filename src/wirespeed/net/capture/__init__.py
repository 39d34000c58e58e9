"""Capture files: pcap and pcapng, read and written as streams, in kernels."""
