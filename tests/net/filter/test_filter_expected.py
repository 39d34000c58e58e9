"""What libpcap's own tests expect: expressions and the programs they become, verdicts on captures, and refusals.

A program of ours is another one than libpcap's and must mean the same.  Both are run on frames that lead each of them
down its different ways (:mod:`explore`), on some of these frames cut where loads end, and on the captures of the link type.
"""

import json
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.net.filter.bpf_text import read_program
from tests.net.filter.explore import Turn, explore, trace
from tests.net.filter.known_names import KnownNames
from tests.net.frames import captured
from wirespeed.net import filter as pcap_filter
from wirespeed.net.filter import FilterError, Instruction, interpret
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.link_type import LINKS, SUPPORTED

NAMES = KnownNames()
FRAME = 320  # bytes; the farthest that an expected program loads is below
TRIED = 90  # frames for each program
NETMASKS = {"ip_broadcast_30": "255.255.255.252", "ip_broadcast_24": "255.255.255.0", "ip_broadcast_0": "0.0.0.0"}
NOTHING_BESIDE = {op.AD_PKTTYPE: 0, op.AD_IFINDEX: 0, op.AD_VLAN_TAG: 0, op.AD_VLAN_TAG_PRESENT: 0}

# Where the list has words of its remarks among the expressions, and one word that is a command to the program that
# runs the tests. libpcap refuses them as we do.
NO_EXPRESSIONS = {
    *("_enumerate_bpf_image", "opt", "ret", "jeq #0x0", "net", "portrange", "src portrange", "dst portrange"),
    *("25", "53", "smtp", "domain", "net 10/<any masklength>", "net 10 mask <any mask>", "net <any net> mask 255"),
    *("...so in this primitive IPv6", "matches are really always\n\t\t\t# host matches"),
}
# Rows for address families and protocol numbers of other systems, by the number in their names: what one expression
# means for a live capture there. Linux has 2 and 10, and a file has 2, and 24, 28 or 30.
OTHER_SYSTEMS = re.compile(
    r"""(ip6|icmp6)_(5|22|24|26|28|30)_index_PFLOG | udp_1_index_PFLOG | igrp_88(_index_.*)?
    | link_proto_ip_(1LE|2BE)_NULL | link_proto_ip6_(5LE|10BE|22BE|24LE|24BE|26LE|26BE|28LE|28BE|30LE|30BE)_NULL
    | link_proto_ip6_28LE_ENC | link_proto_ip_1_LOOP | link_proto_ip6_(5|22|24|26|28|30)_LOOP | link_proto_ip6_24_PFLOG""",
    re.VERBOSE,
)
# libpcap's programs of these load words of scratch memory that they have not stored: the places of the outer frame
# are forgotten when the tunnel's are found. Ours keep both.
UNSTORED = {"geneve_and_tcp_index_IEEE802_11_RADIO", "vxlan_and_tcp_index_IEEE802_11_RADIO"}
# The one refusal of a libpcap that was built without protochain.
WITHOUT_PROTOCHAIN = {"protochain 17"}
SAVEFILES = (
    *("AH-IPcomp-IPv4.pcap", "AH-IPcomp-IPv6.pcap", "ISIS_external_lsp.pcap", "ISIS_p2p_adjacency.pcap"),
    *("Network_Join_Nokia_Mobile.pcap", "ah-ipip-ping.pcap", "arcnet-rfc1051-arp-icmp-http.pcap"),
    *("arcnet-rfc1201-arp-icmp-http.pcap", "bacnet-arcnet-linux.pcap", "brcm-tag-stp.pcap", "brcm-tag.pcap"),
    *("carp.pcap", "decnet.pcap", "dhcp-rfc3004.pcap", "dsa.pcap", "gateway_or_not.pcap", "geneve.pcap"),
    *("http_PPI.pcap", "ieee802.11_exthdr.pcap", "ipv6_ah_modes.pcap", "ipv6_ext_headers.pcap", "isakmp4500.pcap"),
    *("isup_load_generator.pcap", "llc.pcap", "loopback.pcap", "mstp_20140225214217.pcap"),
    *("pim-packet-assortment.pcap", "pppoe.pcap", "pppoes.pcap", "rarp_req_reply.pcapng", "slip-bad-direction.pcap"),
    *("slip-compressed_sl_print-oobr.pcap", "slip-sliplink_print-oobr.pcap", "vrrp.pcap", "vxlan.pcap"),
    *("wpa-Induction.pcap", "wpa2linkuppassphraseiswireshark.pcap"),
)
EXTENSION_HEADERS = {0, 43, 44, 51, 60}


@pytest.fixture(scope="module")
def expected(captures: Path) -> dict[str, Any]:
    path = captures / "_expected" / "libpcap" / "libpcap_filter_expect.json"
    if not path.exists():
        pytest.skip("captures absent: no libpcap expectations among them")
    return json.loads(path.read_text())


def expressions(row: dict[str, Any]) -> list[str]:
    """The expressions of a row; some were quoted twice where the list was made."""
    return [one.replace("\\\\", "\\") for one in row["exprs"]]


def programs(row: dict[str, Any]) -> list[tuple[Instruction, ...]]:
    """What libpcap compiles a row to: with its optimiser, and without it."""
    return [read_program(row[key]) for key in ("optunopt", "opt", "unopt") if key in row]


def compiled(row: dict[str, Any], expression: str) -> pcap_filter.Program:
    live = row["linuxext"] or bool(re.search(r"_(2|10)(LE)?_|_\d+_index_PFLOG", row["name"]))
    return pcap_filter.compile(
        expression,
        link=LINKS[row["dlt"]],
        snaplen=row["snaplen"] or 262144,
        netmask=NETMASKS.get(row["name"]),
        in_kernel=live,
        allow_never=True,
        names=NAMES,
    )


@cache
def captured_frames(directory: Path) -> dict[str, list[tuple[bytes, int]]]:
    """Frames of libpcap's captures by the name of their link type."""
    frames: dict[str, list[tuple[bytes, int]]] = {}
    for path in sorted((directory / "libpcap" / "filter").iterdir()):
        for link, frame, wire in captured(path):
            frames.setdefault(SUPPORTED.get(link, ""), []).append((frame, wire))
    return frames


def strange(turns: list[Turn]) -> bool:
    """True if an authentication header is followed by another extension header; there libpcap loses its place.

    Its program takes the header's length for its place, and goes on at another one or, for ever, at the same.
    """
    met = [turn.value for turn in turns if turn.outcome and turn.value in EXTENSION_HEADERS]
    return 51 in met[:-1]


def differences(row: dict[str, Any], expression: str, directory: Path) -> list[str]:
    """Frames on which our program and libpcap's differ."""
    ours, theirs = compiled(row, expression), programs(row)
    chance = random.Random(row["name"] + expression)
    seeds = [bytes(FRAME), b"\xff" * FRAME, chance.randbytes(FRAME), b"\x45" + bytes(FRAME - 1)]
    told = []

    def differs(frame: bytes, wire: int, beside: dict[int, int]) -> None:
        traces = [trace(one, frame, beside, wire) for one in theirs]
        if ours.loops and any(strange(turns) for turns, _, _ in traces):
            return
        answer = interpret(ours, frame, wire, {**NOTHING_BESIDE, **beside})
        if answer not in [result for _, _, result in traces]:
            told.append(f"{row['name']}: {expression!r} gave {answer} for {frame.hex()} beside {beside}")

    for program in (*theirs, ours.instructions):
        for n, (frame, beside, ends) in enumerate(explore(program, seeds, TRIED)):
            cuts = {end - less for end in ends for less in (0, 1)} if n % 4 == 0 else set()
            for cut in {FRAME, *cuts}:
                differs(frame[: max(cut, 0)], FRAME, dict(beside))
    for frame, wire in captured_frames(directory).get(row["dlt"], [])[:60]:
        differs(frame, wire, {})
    return told[:3]


@pytest.mark.parametrize("link", sorted(LINKS))
def test_expected_programs_and_ours_mean_the_same(link: str, expected: dict[str, Any], captures: Path) -> None:
    told: list[str] = []
    for row in expected["accept"]:
        if row["dlt"] != link or row["name"] in UNSTORED or OTHER_SYSTEMS.fullmatch(row["name"]):
            continue
        seen = set()
        for expression in expressions(row):
            if (
                expression.strip() not in NO_EXPRESSIONS
                and (program := compiled(row, expression).instructions) not in seen
            ):
                seen.add(program)
                told += differences(row, expression, captures)
    assert not told, "\n".join(told)


def test_all_expected_expressions_are_accepted(expected: dict[str, Any]) -> None:
    counts: Counter[str] = Counter()
    for row in expected["accept"]:
        for expression in expressions(row):
            if expression.strip() in NO_EXPRESSIONS:
                with pytest.raises(FilterError):
                    compiled(row, expression)
                counts["no expression"] += 1
            else:
                assert compiled(row, expression).instructions
                counts["other systems" if OTHER_SYSTEMS.fullmatch(row["name"]) else "accepted"] += 1
    assert counts == {"accepted": 2195, "no expression": 59, "other systems": 40}
    assert sum(counts.values()) == 2294


def test_expected_link_types_are_all_supported(expected: dict[str, Any]) -> None:
    wanted = {row["dlt"] for key in ("accept", "reject") for row in expected[key]}
    assert len(wanted) == 43
    assert wanted <= set(LINKS)


def test_programs_of_other_systems_differ_from_ours_only_in_their_numbers(
    expected: dict[str, Any], captures: Path
) -> None:
    for row in expected["accept"]:
        if OTHER_SYSTEMS.fullmatch(row["name"]):
            assert row["skip"]
            assert differences(row, expressions(row)[0], captures), row["name"]


def test_expected_programs_that_load_what_they_have_not_stored_are_known(expected: dict[str, Any]) -> None:
    for row in expected["accept"]:
        for program in programs(row):
            stored = {one.k for one in program if one.code in (op.ST, op.STX)}
            loaded = {one.k for one in program if one.code in (op.LD | op.MEM, op.LDX | op.MEM)}
            assert (loaded <= stored) == (row["name"] not in UNSTORED), row["name"]


def test_expected_verdicts_are_all_in_the_list(expected: dict[str, Any]) -> None:
    assert sum(len(row["results"]) for row in expected["apply"]) == 1554
    assert {row["savefile"] for row in expected["apply"]} == set(SAVEFILES)


@pytest.mark.parametrize("savefile", SAVEFILES)
def test_expected_verdicts_on_captures(savefile: str, expected: dict[str, Any], captures: Path) -> None:
    path = captures / "libpcap" / "filter" / savefile
    if not path.exists():
        pytest.skip(f"captures absent: no libpcap/filter/{savefile} among them")
    frames = list(captured(path))
    for row in expected["apply"]:
        if row["savefile"] == savefile:
            results = row["results"]
            mask, snaplen = row["netmask"] or None, max(results) or 1
            got = []
            for link, frame, wire in frames[: len(results)]:
                program = pcap_filter.compile(row["expr"], link=link, snaplen=snaplen, netmask=mask, names=NAMES)
                got.append(interpret(program, frame, wire))
            assert got == results, row["expr"]


def test_expected_refusals(expected: dict[str, Any]) -> None:
    refused = 0
    for row in expected["reject"]:
        if row["expr"] in WITHOUT_PROTOCHAIN:
            continue
        with pytest.raises(FilterError):
            pcap_filter.compile(row["expr"], link=LINKS[row["dlt"]])
        refused += 1
    assert refused == 166


def test_our_programs_are_no_longer_than_the_expected_ones_together(expected: dict[str, Any]) -> None:
    ours = theirs = 0
    for row in expected["accept"]:
        for expression in expressions(row)[:1]:
            if expression.strip() not in NO_EXPRESSIONS and row["name"] not in UNSTORED:
                ours += len(compiled(row, expression))
                theirs += len(programs(row)[0])
    assert ours <= theirs * 1.05
