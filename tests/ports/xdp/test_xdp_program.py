"""Which frames the XDP program takes and which it leaves to the kernel, by what arrives on either side."""

import pytest

from tests.lab import laboratory
from tests.ports.xdp.wires import frame, pair, pull, raw, received, send, xdp
from wirespeed.errors import GraphError
from wirespeed.ports import port
from wirespeed.ports.xdp.port import XdpPort

END = frame(0xFFFF)
TAG = bytes.fromhex("81000005")


def ipv4(protocol, payload=b"", options=b"", fragment=0):
    head = bytes([0x45 + len(options) // 4, 0]) + (20 + len(options) + len(payload)).to_bytes(2, "big")
    return head + b"\0\1" + fragment.to_bytes(2, "big") + bytes([64, protocol]) + bytes(10) + options + payload


def ethernet(kind, payload, tags=b""):
    return (b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + tags + kind.to_bytes(2, "big") + payload).ljust(60, b"\0")


def ports(source, target):
    return source.to_bytes(2, "big") + target.to_bytes(2, "big") + bytes(16)


ARP = ethernet(0x0806, bytes(28))
PING = ethernet(0x0800, ipv4(1, bytes(8)))
SSH = ethernet(0x0800, ipv4(6, ports(5000, 22)))
SSH_BACK = ethernet(0x0800, ipv4(6, ports(22, 5000)))
SSH_TAGGED = ethernet(0x0800, ipv4(6, ports(5000, 22)), TAG)
SSH_QINQ = ethernet(0x0800, ipv4(6, ports(5000, 22)), bytes.fromhex("88a80007") + TAG)
SSH_OPTIONS = ethernet(0x0800, ipv4(6, ports(5000, 22), bytes(8)))
SSH_LATER = ethernet(0x0800, ipv4(6, ports(5000, 22), fragment=5))
SSH_IPV6 = ethernet(0x86DD, b"\x60\0\0\0\0\x14\x06\x40" + bytes(32) + ports(5000, 22))
DNS = ethernet(0x0800, ipv4(17, ports(53, 4000)))
DNS_TCP = ethernet(0x0800, ipv4(6, ports(53, 4000)))
OTHER = frame(1)
ALL = [ARP, PING, SSH, SSH_BACK, SSH_TAGGED, SSH_QINQ, SSH_OPTIONS, SSH_LATER, SSH_IPV6, DNS, DNS_TCP, OTHER]
ANY_SSH = [SSH, SSH_BACK, SSH_TAGGED, SSH_QINQ, SSH_OPTIONS, SSH_IPV6]
TCP = [*ANY_SSH, SSH_LATER, DNS_TCP]


@pytest.mark.parametrize(
    ("options", "ours"),
    [
        ({}, ALL),
        ({"leave": "arp"}, [f for f in ALL if f != ARP]),
        ({"leave": "arp,icmp,tcp/22"}, [f for f in ALL if f not in (ARP, PING, *ANY_SSH)]),
        ({"take": "udp/53"}, [DNS]),
        ({"take": "tcp"}, TCP),
        ({"take": "tcp", "leave": "tcp/22"}, [SSH_LATER, DNS_TCP]),
        ({"take": "ip6,ether/0x88b5"}, [SSH_IPV6, OTHER]),
        ({"take": "proto/1"}, [PING]),
    ],
)
def test_frames_are_taken_or_left_by_type_protocol_and_port(options, ours):
    with laboratory() as lab:
        pair(lab)
        taken = [f for f in ALL if f in ours]
        with received(xdp(lab, **options)) as (memory, _), raw(lab) as far, raw(lab, "near/x0") as kernel:
            send(far, ALL)
            assert pull(memory, len(taken)) == taken
            left = [untagged(f) for f in ALL if f not in ours]
            assert [kernel.recv(2048) for _ in left] == left
            assert memory.pull() == []


def untagged(frame):
    """A frame as a packet socket gives it: the kernel keeps the outer tag beside it."""
    return frame[:12] + frame[16:] if frame[12:14] in (b"\x81\0", b"\x88\xa8") else frame


@pytest.mark.parametrize("size", range(14, 60, 3))
def test_frames_that_are_cut_short_are_no_matter(size):
    with laboratory() as lab:
        pair(lab)
        short = [f[:size] for f in (SSH, SSH_QINQ, SSH_IPV6, SSH_OPTIONS)]
        with received(xdp(lab, leave="tcp/9")) as (memory, _), raw(lab) as far:
            send(far, [*short, END])
            assert pull(memory, 5) == [*short, END]


@pytest.mark.parametrize("word", ["tcp/x", "tcp/70000", "ssh", "ether/5", "proto/256", "", "arp/1"])
def test_a_rule_that_is_none_is_refused(word):
    with pytest.raises(GraphError, match=r"xdp option leave: got .*wanted a list of arp, ip"):
        XdpPort("x0", leave=word)


def test_rules_are_read_out_of_a_port_word():
    made = port("xdp:x0,leave=arp,icmp,tcp/22,mode=copy,take=ip,ip6")
    assert [r.ether for r in made.leave] == [0x0806, None, None]
    assert [(r.protocol, r.port) for r in made.leave[1:]] == [(1, None), (6, 22)]
    assert [r.ether for r in made.take] == [0x0800, 0x86DD]
    assert made.mode == "copy"


@pytest.mark.parametrize("word", ["xdp:", "xdp:x0,ring=100", "xdp:x0,mode=fast", "xdp:x0,attach=hw", "xdp:x0,queue=-1"])
def test_options_that_cannot_be_are_refused(word):
    with pytest.raises(GraphError):
        port(word)
