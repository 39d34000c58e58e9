"""Counting by flow, against scapy and a dict."""

from collections import Counter

import pytest
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.utils import wrpcap

import wirespeed as ws
from wirespeed.apps.flows import FRAGMENT


def flows_of(tmp_path, packets, **how):
    path = tmp_path / "in.pcap"
    wrpcap(str(path), packets)
    return ws.count_flows(str(path), **how)


def keys(flows):
    return {
        (int(f["key"]["version"]), int(f["key"]["src_lo"]), int(f["key"]["dst_lo"]), int(f["key"]["proto"]),
         int(f["key"]["sport"]), int(f["key"]["dport"])): (int(f["packets"]), int(f["bytes"]))
        for f in flows
    }  # fmt: skip


def test_each_direction_of_each_five_tuple_is_a_flow(tmp_path):
    packets = [
        Ether()
        / IP(src=f"10.0.0.{i % 5}", dst="10.1.0.1", ttl=64 - i % 3)
        / UDP(sport=1000 + i % 3, dport=53)
        / (b"x" * i)
        for i in range(60)
    ] + [Ether() / IP(src="10.1.0.1", dst="10.0.0.1") / TCP(sport=80, dport=1000, flags="S") for _ in range(4)]
    model: Counter = Counter()
    size: Counter = Counter()
    for p in packets:
        layer = p[UDP] if UDP in p else p[TCP]
        address = [int.from_bytes(bytes(map(int, a.split("."))), "big") for a in (p[IP].src, p[IP].dst)]
        key = (4, *address, p[IP].proto, layer.sport, layer.dport)
        model[key] += 1
        size[key] += len(p)
    assert keys(flows_of(tmp_path, packets)) == {k: (n, size[k]) for k, n in model.items()}


def test_ipv6_flows_have_whole_addresses(tmp_path):
    flows = flows_of(tmp_path, [Ether() / IPv6(src="2001:db8::1", dst="2001:db8:1::2") / TCP(sport=1, dport=2)])
    key = flows[0]["key"]
    assert key["src_hi"] == 0x20010DB800000000 and key["src_lo"] == 1
    assert key["dst_hi"] == 0x20010DB800010000 and key["dst_lo"] == 2
    assert (key["version"], key["proto"], key["sport"], key["dport"]) == (6, 6, 1, 2)


def test_the_fragments_of_a_datagram_are_one_flow_without_ports(tmp_path):
    parts = fragment(IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / (b"x" * 3000), 1000)
    flows = flows_of(tmp_path, [Ether() / p for p in parts])
    assert len(flows) == 1
    assert flows[0]["packets"] == len(parts) > 2
    assert flows[0]["key"]["spare"] == FRAGMENT
    assert flows[0]["key"]["sport"] == flows[0]["key"]["dport"] == 0


def test_frames_without_ip_are_one_flow_together(tmp_path):
    flows = flows_of(tmp_path, [Ether() / ARP(), Ether(type=0x1234) / b"hello"])
    assert len(flows) == 1
    assert flows[0]["key"]["version"] == 0 and flows[0]["packets"] == 2


def test_flows_beyond_the_capacity_are_counted_as_unlisted(tmp_path):
    path = tmp_path / "in.pcap"
    wrpcap(str(path), [Ether() / IP() / UDP(sport=i, dport=1) for i in range(10)])
    counter = ws.FlowCounter(capacity=4)
    report = ws.run(ws.port(f"pcap:{path}") >> counter)
    assert len(counter.table()) == 4
    assert counter.unlisted == 6
    assert report.stage("flows").counters == {"flows": 4, "unlisted": 6}
    assert report.balanced


def test_inside_a_chain_it_passes_everything_on(tmp_path):
    path = tmp_path / "in.pcap"
    wrpcap(str(path), [Ether() / IP() / UDP(sport=i, dport=1) for i in range(10)])
    counter = ws.FlowCounter()
    report = ws.run(ws.port(f"pcap:{path}") >> counter >> ws.port("null:"))
    assert report.packets == 10 and len(counter.table()) == 10


def test_the_tables_of_several_workers_are_added_up(tmp_path):
    path = tmp_path / "in.pcap"
    wrpcap(str(path), [Ether() / IP() / UDP(sport=i % 7, dport=1) for i in range(700)])
    flows = ws.count_flows(str(path), workers=2)
    assert len(flows) == 7
    assert flows["packets"].tolist() == [100] * 7


def test_a_capacity_out_of_range_is_refused():
    with pytest.raises(ws.GraphError, match="flow capacity must be"):
        ws.FlowCounter(0)
