"""Wire formats, without state: headers, addresses, checksums, parsing, flow hashes."""
