"""Every public capture as tshark reads it: packets, times, lengths, layers, fields, flows, verdicts on checksums.

Four rules bring what tshark says to what we claim; the rest of the differences stands in ``explained.py``.

* A header that is not whole has no fields for us; those of its beginning that tshark shows are not compared.
* ARP that is not between Ethernet and IPv4 addresses is such a header.
* The packet that an ICMP error quotes is the payload of ICMP for us.
* What is behind a header that we do not parse is not compared; which ones these are is told in BEYOND.
"""

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wirespeed as ws
from tests.oracles import corpus, tshark
from tests.oracles.corpus import Facts
from tests.oracles.explained import BEYOND, EXPLAINED, NOT_PACKETS, REFUSED

FILES = corpus.files() or [""]  # without captures there is one parameter, whose test is skipped


@pytest.fixture(autouse=True)
def oracle(captures: Path) -> None:
    """Each test here needs both the captures and tshark."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")


@functools.cache
def packets(path: Path) -> list[Facts]:
    """tshark's packets of a file, without the records that are none."""
    return [facts for facts in tshark.ask(path).packets if facts["link"] is not None]


def differences(ours: Facts, theirs: Facts) -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, ours, tshark's) for each difference in one packet."""
    for field in sorted((ours.keys() | theirs.keys()) - {"beyond"}):
        mine, other = ours.get(field, []), theirs.get(field, [])
        if isinstance(mine, list) and None in mine:
            other = [None if m is None else o for m, o in zip(mine, other)] + other[len(mine) :]
        if mine != other:
            yield field, mine, other


@pytest.mark.parametrize("name", FILES)
def test_every_packet_is_read_as_tshark_reads_it(captures: Path, name: str) -> None:
    path = captures / name
    ours = map(corpus.facts, corpus.frames(path))
    found = {
        (number, field): (mine, other)
        for number, (one, two) in enumerate(zip(ours, packets(path)), 1)
        for field, mine, other in differences(one, two)
    }
    explained = {
        (number, field)
        for entry in EXPLAINED
        if entry.file == name
        for number in entry.numbers()
        for field in entry.fields
    }
    unexplained = [f"packet {n}, {field}: {found[n, field]}" for n, field in sorted(found.keys() - explained)]
    assert not unexplained, f"{name}: (ours, tshark's)\n" + "\n".join(unexplained)
    assert not explained - found.keys(), "explained.py explains what is no difference"


@pytest.mark.parametrize("name", FILES)
def test_as_many_packets_are_read_as_tshark_reads(captures: Path, name: str) -> None:
    ours, theirs = sum(1 for _ in corpus.frames(captures / name)), len(packets(captures / name))
    refused = REFUSED.get(name)
    assert (theirs, ours) == ((refused.theirs, refused.ours) if refused else (theirs, theirs))
    # What tshark complains of is explained, and what is explained it still complains of.
    assert bool(tshark.ask(captures / name).error) == bool(refused), tshark.ask(captures / name).error


@pytest.mark.parametrize("name", FILES)
def test_what_tshark_lists_and_is_no_packet_is_known(captures: Path, name: str) -> None:
    listed = tshark.ask(captures / name).packets
    assert tuple(i for i, facts in enumerate(listed, 1) if facts["link"] is None) == NOT_PACKETS.get(name, ())


def test_each_protocol_that_is_not_parsed_is_known(captures: Path) -> None:
    met = {facts["beyond"] for name in FILES for facts in packets(captures / name)} - {None}
    assert met == BEYOND.keys()


def test_each_explanation_is_about_a_capture_that_is_there() -> None:
    named = {entry.file for entry in EXPLAINED} | REFUSED.keys() | NOT_PACKETS.keys()
    assert named <= set(FILES)
    places = [(entry.file, n, field) for entry in EXPLAINED for n in entry.numbers() for field in entry.fields]
    assert len(places) == len(set(places))


# Flows, as a user reads them


def outer_flow(facts: Facts) -> tuple[int, int, int, int, int] | None:
    """(version, source, destination, ports) of the outermost headers, out of facts; None for those not whole."""
    version, ports = 0, (0, 0)
    for name in facts["stack"]:
        if name in ("eth", "ipv4", "ipv6", "arp") and version:
            break
        if name in ("ipv4", "ipv6"):
            version, ip = int(name[3]), name
        elif name in ("tcp", "udp", "sctp") and version:
            ports = facts[f"{name}.sport"][0], facts[f"{name}.dport"][0]
    return (version, facts[f"{ip}.src"][0], facts[f"{ip}.dst"][0], *ports) if version else (0, 0, 0, 0, 0)


@pytest.mark.parametrize("name", FILES)
def test_columns_name_the_flow_that_tshark_names(captures: Path, name: str) -> None:
    different = {
        number for entry in EXPLAINED if entry.file == name and "stack" in entry.fields for number in entry.numbers()
    }
    columns = ws.read(captures / name).table()
    for i, facts in enumerate(packets(captures / name)):
        if i + 1 in different:
            continue
        version = int(columns.version[i])
        mask = 0xFFFFFFFF if version == 4 else (1 << 128) - 1
        source, destination = (int.from_bytes(columns[end][i].tobytes()) & mask for end in ("src", "dst"))
        ours = (version, source, destination, int(columns.sport[i]), int(columns.dport[i]))
        assert ours == outer_flow(facts), f"packet {i + 1}"
