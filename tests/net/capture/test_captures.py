"""Every public capture is read as its manifest, as the obvious reader and as tshark read it; what differs is explained."""

import gzip
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.net.capture import model
from wirespeed.net.capture import scan
from wirespeed.net.capture.reader import CaptureReader

# Names of link types in the manifest, where they are not numbers.
LINKS = {
    "NULL": 0, "EN10MB": 1, "SLIP": 8, "PPP": 9, "RAW": 101, "FRELAY": 107, "LINUX_SLL": 113, "IEEE802_11_RADIOTAP": 127,
    "ARCNET_LINUX": 129, "IPV4": 228, "IPV6": 229, "NFLOG": 239, "NETLINK": 253, "LINUX_SLL2": 276,
}  # fmt: skip

# Simple packet blocks that were cut, which the manifest does not count.
CUT_SIMPLE = {
    "pcapng-test-generator/output_be/difficult/test201.pcapng": 1,
    "pcapng-test-generator/output_le/difficult/test201.pcapng": 1,
    "pcapng-test-generator/output_le/advanced/test101.pcapng": 1,
    "pcapng-test-generator/output_le/advanced/test102.pcapng": 1,
    "pcapng-test-generator/output_le/basic/test012.pcapng": 1,
}
# A simple packet block whose byte of padding the manifest takes for the packet's; tshark does not.
PADDED_SIMPLE = {"pcapng-test-generator/output_le/basic/test012.pcapng"}

# What tshark 4.0 reads otherwise: file -> (packets that tshark reads, why).
REFUSED = {
    "gopacket/pcapgo/tests/be/test901.pcapng": (
        1,
        "it ends at the section of version 2.0, we note the version and go on",
    ),
    "gopacket/pcapgo/tests/le/test901.pcapng": (1, "the same"),
    "libpcap/pcapng-invalid-vers-1.pcapng": (0, "section of version 0.1"),
    "libpcap/pcapng-invalid-vers-2.pcapng": (0, "section of version 1.1"),
    "libpcap/pcap-invalid-version-1.pcap": (0, "version 1.4; the records are as ever"),
    "libpcap/shb-option-too-long.pcapng": (0, "an option longer than its section; the packet's block is whole"),
    "libpcap/filter/brcm-tag-stp.pcap": (0, "link type 281 is newer than tshark 4.0"),
    "libpcap/filter/brcm-tag.pcap": (0, "link type 281"),
    "tcpdump/dsa.pcap": (0, "link type 284"),
    "tcpdump/edsa.pcap": (0, "link type 285"),
}
# Blocks that are no packets, which tshark shows as frames of their own.
OTHER_BLOCKS = {
    "pcapng-test-generator/output_le/advanced/test102.pcapng": (24, 60, 32),
    "pcapng-test-generator/output_le/basic/test017.pcapng": (24, 60, 36, 32),
    "pcapng-test-generator/output_le/basic/test018.pcapng": (24, 60, 36, 32),
}
# Times that tshark computes otherwise: file -> {packet: (ours, tshark's)}, in nanoseconds.
OTHER_TIMES = {
    # The fraction is 2^31 microseconds; tshark makes nanoseconds of it in 32 bits.
    "tcpdump/timestamp_invalid_micro.pcap": {3: (1418147517_483648000, 1418145370_000000000)},
    # The fractions are 0xE4FF0030 and 0x45217756 microseconds, which are more than a second too.
    "tcpdump/rx_serviceid_oobr.pcap": {2: (3841_916976000, 2_078753920)},
    "extra/tcpdump-atm-oam-loopback-print-overrun.pcap": {1: (1544489736_821166000, 1544488577_179996080)},
}
# Time stamps before 1970, which tshark takes for 2^64 microseconds less than nothing: 18446744073204 s and so on.
BEFORE_1970 = "PcapPlusPlus/Tests/Pcap++Test/PcapExamples/pcapng-example.pcapng"
# tshark takes the pseudo header of four bytes off the frame.
PSEUDO_HEADER = "extra/tcpdump-atm-oam-loopback-print-overrun.pcap"


def paths(captures: Path) -> list[Path]:
    suffixes = (".pcap", ".pcapng", ".cap", ".gz")
    return sorted(p for p in captures.rglob("*") if p.is_file() and p.suffix in suffixes)


def read(path: Path) -> tuple[list[tuple[int, int, int]], CaptureReader]:
    with CaptureReader(path) as reader:
        rows = [row for b in reader for row in zip(b.time.tolist(), b.wire.tolist(), b.captured.tolist())]
        return rows, reader


def test_every_capture_is_read_as_the_model_reads_it(captures):
    for path in paths(captures):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        expected = model.read(data)
        with CaptureReader(path) as reader:
            got = [
                (b.data(i), int(b.time[i]), int(b.wire[i]), int(b.link[i]), int(b.interface[i]))
                for b in reader
                for i in range(len(b))
            ]
            assert got == [p[:5] for p in expected.packets], path
            assert reader.faults == expected.faults, path
            assert (reader.damage is None) == (expected.damage is None), path


def test_every_capture_is_as_its_manifest_says(captures):
    lines = (captures / "MANIFEST.tsv").read_text().splitlines()
    names, *rows = (line.split("\t") for line in lines)
    assert len(rows) > 100
    for values in rows:
        row = dict(zip(names, values))
        with CaptureReader(captures / row["file"]) as reader:
            counts: Counter[str] = Counter()
            links, longest, widest = set(), 0, 0
            for burst in reader:
                counts["packets"] += len(burst)
                counts["truncated"] += int((burst.captured < burst.wire).sum())
                counts["cap>len"] += int((burst.captured > burst.wire).sum())
                counts["zero"] += int((burst.captured == 0).sum())
                links |= set(burst.link.tolist())
                longest, widest = max(longest, int(burst.captured.max())), max(widest, int(burst.wire.max()))
            told = {LINKS.get(name) if name in LINKS else int(name) for name in row["linktypes"].split(",") if name}
            counts["truncated"] -= CUT_SIMPLE.get(row["file"], 0)
            for name in ("packets", "truncated", "cap>len", "zero"):
                assert counts[name] == int(row[name]), (row["file"], name)
            longest += row["file"] in PADDED_SIMPLE
            assert (longest, widest) == (int(row["maxcap"]), int(row["maxwire"])), row["file"]
            assert {i.link for i in reader.interfaces} | links == told or not links, row["file"]
            assert reader.damage is None, row["file"]
            assert (reader.fault is not None and reader.fault.what == scan.TRAILER) == (row["err"] != ""), row["file"]


def tshark(path: Path) -> list[tuple[int, int, int]]:
    """Time in nanoseconds, length on the wire and length of each frame."""
    fields = ["-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len"]
    done = subprocess.run(
        ["tshark", "-r", str(path), "-T", "fields", *fields], capture_output=True, text=True, check=False
    )
    rows = []
    for line in done.stdout.splitlines():
        time, wire, captured = line.split("\t")
        seconds, _, rest = time.partition(".")
        rows.append((int(seconds or 0) * 10**9 + int(rest or 0), int(wire), int(captured)))
    return rows


def explained(
    name: str, ours: list[tuple[int, int, int]], theirs: list[tuple[int, int, int]]
) -> list[tuple[int, int, int]]:
    """What tshark reads of a file, without the differences that are known and explained above."""
    if name in REFUSED:
        assert len(theirs) == REFUSED[name][0], name
        return theirs + ours[len(theirs) :]
    if name in OTHER_BLOCKS:
        others = [row for row in theirs if row not in ours]
        assert tuple(row[1] for row in others) == OTHER_BLOCKS[name], name
        return [row for row in theirs if row in ours]
    for packet, (our_time, their_time) in OTHER_TIMES.get(name, {}).items():
        time, wire, captured = theirs[packet - 1]
        assert (ours[packet - 1][0], time) == (our_time, their_time), name
        theirs[packet - 1] = (our_time, wire, captured)
    if name == BEFORE_1970:
        assert sum(time > 1 << 64 for time, *_ in theirs) == 100, name
        return [(time if time < 1 << 64 else time - (1000 << 64), *rest) for time, *rest in theirs]
    if name == PSEUDO_HEADER:
        return [(time, wire + 4, captured + 4) for time, wire, captured in theirs]
    return theirs


def test_every_capture_is_read_as_tshark_reads_it(captures):
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    files = paths(captures)
    names = {str(path.relative_to(captures)) for path in files}
    assert {*REFUSED, *OTHER_BLOCKS, *OTHER_TIMES, BEFORE_1970, PSEUDO_HEADER} <= names
    with ThreadPoolExecutor(2) as pool:
        for path, theirs in zip(files, pool.map(tshark, files)):
            ours, _ = read(path)
            assert ours == explained(str(path.relative_to(captures)), ours, theirs), path
