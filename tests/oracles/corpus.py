"""What wirespeed says of every packet of a public capture, as facts that another program's can be laid beside.

Facts are a dictionary for each packet: what the file says of it (``time``, ``captured``, ``wire``, ``link``,
``comments``), the names of its headers (``stack``), and for each kind of header and each of its fields the values in
the order of the headers, ``"ipv4.src": [...]``.  A header that is not whole is called ``tcp cut`` and has ``None`` for
each of its fields.  Values are integers as headers hold them; an IPv6 address is one integer of 128 bits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.conftest import captures_directory
from wirespeed.net import layer
from wirespeed.net.capture.reader import Burst, CaptureReader
from wirespeed.net.dissect import dissect
from wirespeed.net.headers import HEADERS
from wirespeed.net.layer import MAX_LAYERS, Layer
from wirespeed.net.verdict import VERDICTS, verdict

Facts = dict[str, Any]

SUFFIXES = (".pcap", ".pcapng", ".cap", ".pcap.gz")

# The fields that are compared; the order in which tshark is asked for them too.
COMPARED: dict[str, tuple[str, ...]] = {
    "eth": ("dst", "src", "type"),
    "vlan": ("prio", "dei", "vlan"),
    "mpls": ("label", "cos", "s", "ttl"),
    "arp": ("hwtype", "ptype", "hwlen", "plen", "op", "hwsrc", "psrc", "hwdst", "pdst"),
    "ipv4": ("ihl", "tos", "len", "id", "flags", "frag", "ttl", "proto", "chksum", "src", "dst"),
    "ipv6": ("version", "tc", "fl", "plen", "nh", "hlim", "src", "dst"),
    "fragment": ("nh", "offset", "m", "id"),
    "tcp": ("sport", "dport", "seq", "ack", "dataofs", "flags", "window", "chksum", "urgptr"),
    "udp": ("sport", "dport", "len", "chksum"),
    "icmp": ("type", "code", "chksum"),
    "icmpv6": ("type", "code", "chksum"),
    "sctp": ("sport", "dport", "tag", "chksum"),
    "gre": ("proto", "version"),
    "vxlan": ("flags", "vni"),
    "geneve": ("version", "proto", "vni"),
}
CHECKED = ("ipv4", "tcp", "udp", "icmp", "icmpv6", "sctp", "gre")


def files() -> list[str]:
    """Every public capture, by its path below their directory; none where there is no such directory."""
    directory = captures_directory()
    found = sorted(directory.rglob("*")) if directory else []
    return [str(path.relative_to(directory)) for path in found if path.name.endswith(SUFFIXES)]


class Place(NamedTuple):
    """Where a field stands in its header, taken as one big-endian integer."""

    name: str
    shift: int
    mask: int


def _places(kind: str) -> list[Place]:
    """The compared fields of a kind of header, by its layout."""
    layout, found = HEADERS[kind], []
    for name in COMPARED[kind]:
        whole = name not in layout.fields  # an IPv6 address, which the layout has in two halves
        field = layout.fields[f"{name}_lo" if whole else name]
        assert field.swap or field.size == 1, "headers are in network order"
        bits = 128 if whole else field.bits or 8 * field.size
        shift = 8 * (layout.size - field.offset - field.size) + field.shift
        found.append(Place(f"{kind}.{name}", shift, (1 << bits) - 1))
    return found


PLACES = {kind: _places(kind) for kind in COMPARED}


class Frame:
    """A packet as the reader found it, with the records of its headers and the verdict on each."""

    def __init__(self, burst: Burst, i: int, records: Any, verdicts: list[str]) -> None:
        _, self.time, self.captured, self.wire, self.interface, self.link, _, options, _ = burst.entries[i].item()
        self.data = burst.data(i)
        self.comments = burst.comments(i) if options else ()
        self.layers: list[tuple[int, ...]] = records.tolist()  # kind, whole, flags, offset, length, end
        self.names = [layer.NAMES[record[0]] for record in self.layers]
        self.verdicts = verdicts


def frames(path: Path) -> Iterator[Frame]:
    """Yield every packet of a capture."""
    records = np.zeros(MAX_LAYERS, Layer.dtype)
    out = records.ctypes.data
    with CaptureReader(path) as reader:
        for burst in reader:
            columns = burst.address.tolist(), burst.captured.tolist(), burst.link.tolist()
            for i, (address, captured, link) in enumerate(zip(*columns)):
                n = dissect(address, captured, link, out, MAX_LAYERS)
                verdicts = [VERDICTS[verdict(address, captured, out, k)] for k in range(n)]
                yield Frame(burst, i, records[:n], verdicts)


def facts(frame: Frame) -> Facts:
    """The facts of a packet."""
    said: Facts = {
        "time": frame.time,
        "captured": frame.captured,
        "wire": frame.wire,
        "link": frame.link,
        "comments": ",".join(frame.comments),
        "stack": [],
    }
    for name, (_, whole, _, offset, _, _), judged in zip(frame.names, frame.layers, frame.verdicts):
        said["stack"].append(name if whole else name + " cut")
        if name in COMPARED:
            header = int.from_bytes(frame.data[offset : offset + HEADERS[name].size])
            for field, shift, mask in PLACES[name]:
                said.setdefault(field, []).append(header >> shift & mask if whole else None)
        if name in CHECKED:
            said.setdefault(f"{name}.verdict", []).append(None if judged == "none" else judged)
    return said
