"""What our switch once did otherwise than Open vSwitch: each case alone, against the real one and against the reference."""

import pytest
from scapy.all import ARP, IP, TCP, Dot1Q, Ether, ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6, raw
from scapy.contrib.mpls import MPLS
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop

from tests.ovs import OpenVSwitch, needs_ovs
from tests.switch.oracle import compare
from tests.switch.oracle.case import Case, Mirror, Port, Send, Setup
from tests.switch.oracle.openvswitch import RealSwitch
from tests.switch.oracle.ours import OurSwitch
from wirespeed.switch.trace.compiled import flow_of_frame
from wirespeed.switch.trace.trace import trace

A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
MACS = Ether(src=A, dst=B)
PLAIN = raw(MACS / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=80) / b"payload")
SIX = {"src": "fc00::1", "dst": "fc00::2"}
SOLICIT = raw(MACS / IPv6(**SIX) / ICMPv6ND_NS(tgt="fc00::9") / ICMPv6NDOptSrcLLAddr(lladdr=A))
ECHO = raw(MACS / IPv6(**SIX) / ICMPv6EchoRequest(data=bytes(32)))
LATER = raw(MACS / IPv6(**SIX) / IPv6ExtHdrFragment(offset=4, nh=6) / bytes(24))
HOPS = raw(MACS / IPv6(**SIX) / IPv6ExtHdrHopByHop() / TCP())
CUT = raw(MACS / IPv6(plen=4, nh=0, **SIX)) + bytes(4)  # its extension header is not whole
FRAGMENT = raw(MACS / IP(src="10.0.0.1", dst="10.0.0.2", frag=3, proto=6) / bytes(24))
BIG_OPERATION = raw(MACS / ARP(op=0x149, psrc="10.0.0.1", pdst="10.0.0.2"))
PRIORITY = raw(MACS / Dot1Q(vlan=0) / IP() / TCP())
NESTED = raw(MACS / Dot1Q(vlan=10) / Dot1Q(vlan=0) / IP() / TCP())
DOWN = Setup(
    ports=(Port(3, up=False),), mirrors=(Mirror("m", destinations=(3,), output_port=8),)
)  # what goes out by port 3 is copied to 8


def labels(n: int, *, ended: bool = True) -> bytes:
    """A frame with so many labels, of which the last one says so or not."""
    packet = MACS
    for i in range(n):
        packet = packet / MPLS(label=i + 1, s=int(ended and i == n - 1), ttl=9)
    return raw(packet / bytes(30))


def case(name: str, frame: bytes, *flows: str, groups: tuple[str, ...] = (), setup: Setup | None = None) -> Case:
    return Case(name=name, flows=flows, groups=groups, steps=(Send(1, frame),), setup=setup or Setup())


ALL = "group_id=1,type=all,bucket=actions=output:3,bucket=actions={},output:4,bucket=actions=output:5"
CASES = (
    case("a VLAN set in a bucket is a tag", PLAIN, "actions=group:1",
         groups=("group_id=1,type=all,bucket=actions=set_field:0x1005->vlan_vid,output:2,bucket=actions=output:3",)),
    case("a neighbour's address, and then another type", SOLICIT,
         "icmp6,icmp_type=135,icmp_code=0,actions=set_field:02:00:00:00:00:77->nd_sll,set_field:fc00::7->nd_target,"
         "set_field:128->icmpv6_type,output:2"),
    case("a type, and then a neighbour's address", ECHO,
         "table=0,icmp6,actions=set_field:135->icmpv6_type,resubmit(,1)",
         "table=1,icmp6,icmp_type=135,icmp_code=0,actions=set_field:fc00::7->nd_target,output:2"),
    case("hops of a later fragment", LATER, "ipv6,actions=set_field:7->nw_ttl,output:2,dec_ttl,output:3"),
    case("hops behind hop-by-hop options", HOPS, "ipv6,actions=set_field:7->nw_ttl,output:2,dec_ttl,output:3"),
    case("hops before options that are not whole", CUT, "ipv6,actions=set_field:7->nw_ttl,output:2,dec_ttl,output:3"),
    case("ports of a later fragment", FRAGMENT, "tcp,actions=set_field:7->tcp_dst,output:2"),
    case("a tag before a priority", PRIORITY, "actions=push_vlan:0x8100,set_field:0x100a->vlan_vid,NORMAL"),
    case("a tag that says nothing behind one that does", NESTED, "actions=NORMAL"),
    case("a mirror of a port that is down", PLAIN, "actions=output:3,output:2", setup=DOWN),
    case("a mirror of a port that is down, last", PLAIN, "actions=output:2,output:3", setup=DOWN),
    case("a mirror of a port that is down, alone", PLAIN, "actions=output:3", setup=DOWN),
    case("a mirror of a port that is down, flooded", PLAIN, "actions=NORMAL", setup=DOWN),
    case("a part of a time to live, and then a hop", PLAIN,
         "ip,actions=load:0->nw_ttl[0..2],load:1->nw_ttl[4],dec_ttl,output:2"),
    case("a part of a label's time to live, and then a hop", labels(1),
         "mpls,actions=load:0->mpls_ttl[0..1],load:1->mpls_ttl[4],dec_mpls_ttl,output:2"),
    case("a part of an operation that is above 255", BIG_OPERATION, "arp,actions=load:3->arp_op[0..1],output:2"),
    case("a fourth label", labels(3), "actions=output:2,push_mpls:0x8847,output:3"),
    case("a fourth label in a bucket", labels(3), "actions=output:2,group:1,output:6",
         groups=(ALL.format("push_mpls:0x8847"),)),
    case("a fourth label below a bucket", labels(3), "actions=output:2,group:1,output:6",
         "table=1,actions=output:7,push_mpls:0x8847,output:8",
         groups=("group_id=1,type=all,bucket=actions=resubmit(,1),bucket=actions=output:5",)),
    case("off a stack that goes on", labels(4), "mpls,actions=output:2,pop_mpls:0x0800,output:3"),
    case("onto a label that is not whole", labels(0)[:12] + b"\x88\x47\x4c\x2e",
         "actions=push_mpls:0x8847,output:2,push_mpls:0x8847,output:3"),
)  # fmt: skip


@pytest.fixture(scope="module")
def ours():
    with OurSwitch() as switch:
        yield switch


@pytest.fixture(scope="module")
def real():
    with OpenVSwitch(8) as switch:
        yield RealSwitch(switch)


@needs_ovs
@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_a_packet_comes_out_as_from_open_vswitch(real, ours, one):
    found = compare.difference(real, ours, one)
    assert found is None, str(found)


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_the_reference_says_what_the_compiled_code_does(ours, one):
    ours.run(one)
    sent = one.steps[0]
    flow = flow_of_frame(ours.switch, sent.frame, sent.port)
    assert trace(ours.switch, flow, sent.frame).differences == ()
