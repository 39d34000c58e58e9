"""Every public capture as tshark reads it: packets, times, lengths, layers, fields, flows, verdicts on checksums.

Four rules bring what tshark says to what we claim; the rest of the differences stands in ``explained.py``.

* A header that is not whole has no fields for us; those of its beginning that tshark shows are not compared.
* ARP that is not between Ethernet and IPv4 addresses is such a header.
* The packet that an ICMP error quotes is the payload of ICMP for us.
* What is behind a header that we do not parse is not compared; which ones these are is told in BEYOND.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import wirespeed as ws
from tests.oracles import corpus, tshark
from tests.oracles.corpus import Facts
from tests.oracles.explained import BEYOND, EXPLAINED, NOT_PACKETS, REFUSED

FILES = corpus.files() or [""]  # without captures there is one parameter, whose tests are skipped


class Asked(NamedTuple):
    """A capture, and what tshark said of it."""

    name: str
    path: Path
    packets: list[Facts]
    not_packets: tuple[int, ...]
    error: str


def ask(captures: Path, name: str) -> Asked:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    listed, error = tshark.ask(captures / name)
    packets = [facts for facts in listed if facts["link"] is not None]
    others = tuple(number for number, facts in enumerate(listed, 1) if facts["link"] is None)
    return Asked(name, captures / name, packets, others, error)


@pytest.fixture(scope="module", params=FILES)
def asked(captures: Path, request: pytest.FixtureRequest) -> Asked:
    """Each capture in turn: pytest runs all tests of one before those of the next, so tshark runs once for each."""
    return ask(captures, request.param)


def differences(ours: Facts, theirs: Facts) -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, ours, tshark's) for each difference in one packet."""
    for field in sorted((ours.keys() | theirs.keys()) - {"beyond"}):
        mine, other = ours.get(field, []), theirs.get(field, [])
        if isinstance(mine, list) and None in mine:
            other = [None if m is None else o for m, o in zip(mine, other)] + other[len(mine) :]
        if mine != other:
            yield field, mine, other


def explained(name: str) -> set[tuple[int, str]]:
    """(number of the packet, field) of each difference in a file that is explained."""
    entries = [entry for entry in EXPLAINED if entry.file == name]
    return {(number, field) for entry in entries for number in entry.numbers() for field in entry.fields}


def test_each_packet_is_what_tshark_says_it_is(asked: Asked) -> None:
    ours = map(corpus.facts, corpus.frames(asked.path))
    found = {
        (number, field): (mine, other)
        for number, (one, two) in enumerate(zip(ours, asked.packets), 1)
        for field, mine, other in differences(one, two)
    }
    excused = explained(asked.name)
    unexplained = [f"packet {n}, {field}: {found[n, field]}" for n, field in sorted(found.keys() - excused)]
    assert not unexplained, f"{asked.name}: (ours, tshark's)\n" + "\n".join(unexplained)
    assert not excused - found.keys(), "explained, but there is no such difference"


def test_tshark_counts_as_many_packets(asked: Asked) -> None:
    ours, theirs = sum(1 for _ in corpus.frames(asked.path)), len(asked.packets)
    refused = REFUSED.get(asked.name)
    assert (theirs, ours) == ((refused.theirs, refused.ours) if refused else (theirs, theirs))
    assert bool(asked.error) == bool(refused), f"tshark said: {asked.error or 'nothing'}"
    assert asked.not_packets == NOT_PACKETS.get(asked.name, ())


def test_what_tshark_parses_and_we_do_not_is_listed(asked: Asked) -> None:
    assert {facts["beyond"] for facts in asked.packets} - {None} <= BEYOND.keys()


def test_the_columns_name_the_flow_that_tshark_names(asked: Asked) -> None:
    excused = {number for number, field in explained(asked.name) if field == "stack"}
    columns = ws.read(asked.path).table()
    found = zip(columns.version, columns.src, columns.dst, columns.sport, columns.dport)
    for number, ((version, src, dst, sport, dport), facts) in enumerate(zip(found, asked.packets), 1):
        mask = 0xFFFFFFFF if version == 4 else (1 << 128) - 1
        ours = (version, *(int.from_bytes(end.tobytes()) & mask for end in (src, dst)), sport, dport)
        assert ours == outer_flow(facts) or number in excused, f"packet {number}"


def outer_flow(facts: Facts) -> tuple[int, int, int, int, int]:
    """(version, source, destination, source port, destination port) of the outermost headers; 0 for what is not there.

    ``facts`` are tshark's.
    """
    ip, ports = "", (0, 0)
    for name in facts["stack"]:
        if ip and name in ("eth", "ipv4", "ipv6"):
            break  # a tunnel's
        if name in ("ipv4", "ipv6"):
            ip = name
        elif name in ("tcp", "udp", "sctp"):
            ports = facts[f"{name}.sport"][0], facts[f"{name}.dport"][0]
    return (int(ip[3]), facts[f"{ip}.src"][0], facts[f"{ip}.dst"][0], *ports) if ip else (0, 0, 0, 0, 0)


@pytest.mark.parametrize("word", BEYOND)
def test_what_is_listed_as_not_parsed_is_met(captures: Path, word: str) -> None:
    file, _ = BEYOND[word]
    assert word in {facts["beyond"] for facts in ask(captures, file).packets}


def test_each_explanation_is_of_a_capture_that_is_there(captures: Path) -> None:
    named = {entry.file for entry in EXPLAINED} | REFUSED.keys() | NOT_PACKETS.keys()
    assert named <= set(FILES)


def test_no_difference_is_explained_twice(captures: Path) -> None:
    places = [(entry.file, n, field) for entry in EXPLAINED for n in entry.numbers() for field in entry.fields]
    assert len(places) == len(set(places))
