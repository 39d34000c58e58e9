"""Community ID, against the values that the specification's own tool made of its captures."""

import json

import pytest
from scapy.all import ARP, IP, TCP, UDP, Raw

from tests.net.frames import captured
from tests.net.stacks import ETHER
from wirespeed.net.community import community_id, frame_community_id


def test_case_56_every_flow_of_the_baseline_has_its_identifier(captures) -> None:
    folder = captures / "_expected/community-id"
    for name, seed in (("baseline_deflt", 0), ("baseline_seed1", 1)):
        flows = json.loads((folder / f"{name}.json").read_text())
        assert flows
        for flow in flows:
            assert identifier(flow, seed) == flow["communityid"], flow


def identifier(flow: dict, seed: int) -> str:
    return community_id(flow["saddr"], flow["daddr"], flow["proto"], flow.get("sport"), flow.get("dport"), seed)


@pytest.mark.parametrize("name, seed", [("baseline_deflt", 0), ("baseline_seed1", 1)])
def test_case_56_the_captures_frames_have_the_identifiers_of_the_baseline(captures, name: str, seed: int) -> None:
    baseline = json.loads((captures / f"_expected/community-id/{name}.json").read_text())
    frames = [entry for path in (captures / "community-id").glob("*.pcap") for entry in captured(path)]
    found = {frame_community_id(frame, link, seed) for link, frame, _ in frames}
    assert found - {None} == {flow["communityid"] for flow in baseline}


def test_both_directions_have_one_identifier() -> None:
    there = frame_community_id(bytes(ETHER / IP(src="1.2.3.4", dst="5.6.7.8") / TCP(sport=1122, dport=3344)))
    back = frame_community_id(bytes(ETHER / IP(src="5.6.7.8", dst="1.2.3.4") / TCP(sport=3344, dport=1122)))
    assert there == back == "1:wCb3OG7yAFWelaUydu0D+125CLM="  # the specification's first example


@pytest.mark.parametrize("protocol, ports, wanted", [
    (17, (1122, 3344), "1:0Mu9InQx6z4ZiCZM/7HXi2WMhOg="),
    (132, (1122, 3344), "1:EKt4MsxuyaE6mL+hmrEkQ9csDD8="),
    (1, (8, 0), "1:crodRHL2FEsHjbv3UkRrfbs4bZ0="),
    (1, (11, 0), "1:f/YiSyWqczrTgfUCZlBUnvHRcPk="),
    (46, (), "1:ikv3kmf89luf73WPz1jOs49S768="),
])  # fmt: skip
def test_the_specifications_examples(protocol: int, ports: tuple[int, ...], wanted: str) -> None:
    assert community_id("1.2.3.4", "5.6.7.8", protocol, *ports) == wanted


def test_fragments_have_the_identifier_without_ports() -> None:
    ends = {"src": "1.2.3.4", "dst": "5.6.7.8"}
    first = frame_community_id(bytes(ETHER / IP(flags="MF", **ends) / UDP(len=2000) / Raw(bytes(64))))
    later = frame_community_id(bytes(ETHER / IP(frag=9, proto=17, **ends) / Raw(bytes(64))))
    assert first == later == community_id("1.2.3.4", "5.6.7.8", 17)


def test_a_frame_without_ip_has_none() -> None:
    assert frame_community_id(bytes(ETHER / ARP())) is None
    assert frame_community_id(b"") is None
