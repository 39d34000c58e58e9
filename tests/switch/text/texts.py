"""Random flows as text, each of which ``ovs-ofctl`` takes, and what it makes of them.

``python -m tests.switch.text.texts`` asks it anew and writes ``answers.tsv``.
"""

import random
import shutil
import subprocess
from pathlib import Path

ANSWERS = Path(__file__).with_name("answers.tsv")
SEED, COUNT = 11, 300

KINDS = {
    "": (),
    "ip": ("nw_src", "nw_dst", "nw_proto", "nw_tos", "nw_ecn", "nw_ttl", "ip_frag"),
    "ipv6": ("ipv6_src", "ipv6_dst", "ipv6_label", "nw_proto", "nw_tos", "nw_ttl", "ip_frag"),
    "arp": ("arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha"),
    "rarp": ("arp_op", "arp_spa"),
    "mpls": ("mpls_label", "mpls_tc", "mpls_bos", "mpls_ttl"),
    "mplsm": ("mpls_label",),
    "tcp": ("nw_src", "tp_src", "tcp_dst", "tcp_flags"),
    "tcp6": ("ipv6_dst", "tcp_src", "tp_dst", "tcp_flags"),
    "udp": ("nw_dst", "udp_src", "tp_dst"),
    "udp6": ("ipv6_src", "udp_dst"),
    "sctp": ("sctp_src", "tp_dst"),
    "sctp6": ("sctp_dst",),
    "icmp": ("icmp_type", "icmp_code", "nw_src"),
    "icmp6": ("icmp_type", "icmp_code", "ipv6_dst"),
    "icmp6,icmp_type=135,icmp_code=0": ("nd_target", "nd_sll"),
    "icmp6,icmp_type=136,icmp_code=0": ("nd_target", "nd_tll"),
}
ANYWHERE = (
    "in_port",
    "metadata",
    "reg0",
    "reg1",
    "reg15",
    "xreg3",
    "xxreg1",
    "pkt_mark",
    "tun_id",
    "dl_src",
    "dl_dst",
    "vlan",
)
VLANS = (
    "dl_vlan=5", "dl_vlan=7,dl_vlan_pcp=3", "dl_vlan_pcp=6", "vlan_tci=0x1000/0x1000", "vlan_tci=0", "vlan_vid=0x1009",
    "dl_vlan=0xffff", "vlan_vid=0x1004/0x1005", "vlan_tci=0x3003",
)  # fmt: skip
FLAGS = ("+syn", "+syn-ack", "-fin+rst", "0x12", "0x2/0x17", "0", "+ece+cwr-ns", "syn|ack")
ACTIONS = {
    "": ("output:1", "2", "LOCAL", "in_port", "NORMAL", "flood", "all", "controller", "controller:100", "drop",
         "controller(max_len=64,reason=no_match,id=2)", "output(port=3,max_len=64)", "output:NXM_NX_REG0[]",
         "output:reg1[0..15]", "resubmit(,3)", "resubmit:4", "resubmit(5,6)", "resubmit(in_port,7)", "group:9", "exit",
         "set_field:0x12->reg0", "set_field:1/0xff->reg1", "load:5->NXM_NX_REG2[0..7]", "load:0x123->metadata[8..23]",
         "load:0x99->NXM_NX_XXREG1[64..95]", "move:reg0[0..15]->reg1[16..31]", "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
         "move:OXM_OF_METADATA[0..31]->NXM_NX_REG3[]", "mod_dl_src:02:00:00:00:00:01", "mod_dl_dst:2:3:4:5:6:7",
         "set_field:01:00:00:00:00:00/01:00:00:00:00:00->eth_dst", "set_field:7->tun_id", "set_field:3->pkt_mark",
         "mod_vlan_vid:12", "mod_vlan_pcp:4", "push_vlan:0x8100", "push_vlan:0x88a8", "load:0x1005->vlan_tci[]",
         "set_field:0x2/0xf->vlan_tci", "push:NXM_NX_REG0[]", "pop:reg1[0..15]", "clone(output:1,set_field:3->reg0)",
         "clone(mod_vlan_vid:3,clone(output:2),exit)", "set_field:9->in_port", "load:0xfffe->NXM_OF_IN_PORT[]",
         "controller(userdata=01.02.03)", "push_mpls:0x8847", "push_mpls:0x8848,set_field:16->mpls_label",
         "set_field:0x123456789abcdef->xreg1", "move:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]"),
    "ip": ("dec_ttl", "dec_ttl(1,2)", "mod_nw_src:10.0.0.1", "mod_nw_dst:10.0.0.2", "mod_nw_tos:16", "mod_nw_ttl:9",
           "mod_nw_ecn:1", "set_field:10.1.2.3->ip_src", "set_field:10.0.0.0/8->ip_dst", "load:0x0a000001->NXM_OF_IP_SRC[]",
           "load:1->NXM_OF_IP_DST[0..7]", "set_field:12->ip_dscp", "set_field:3->nw_ttl", "set_field:2->nw_ecn",
           "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]", "push:NXM_OF_IP_SRC[]"),
    "ipv6": ("dec_ttl", "set_field:fe80::1->ipv6_src", "set_field:fc00::/7->ipv6_dst", "set_field:5->ipv6_label",
             "load:7->NXM_NX_IPV6_DST[0..15]", "set_field:2->ip_dscp", "mod_nw_tos:8"),
    "tcp": ("mod_tp_src:80", "mod_tp_dst:81", "set_field:82->tcp_dst", "load:0x12->NXM_OF_TCP_SRC[0..7]", "dec_ttl"),
    "udp": ("mod_tp_src:80", "set_field:83->udp_src", "move:NXM_OF_UDP_SRC[]->NXM_OF_UDP_DST[]"),
    "sctp": ("mod_tp_dst:80", "set_field:84->sctp_src"),
    "icmp": ("set_field:3->icmp_type", "set_field:1->icmp_code"),
    "icmp6": ("set_field:129->icmpv6_type",),
    "arp": ("set_field:2->arp_op", "load:0x1->NXM_OF_ARP_OP[]", "set_field:1.2.3.4->arp_spa", "in_port",
            "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]", "set_field:02:00:00:00:00:09->arp_sha"),
    "mpls": ("pop_mpls:0x0800", "pop_mpls:0x8847", "dec_mpls_ttl", "set_mpls_label:3", "set_mpls_tc:2", "set_mpls_ttl:4",
             "set_field:1->mpls_tc", "load:1->OXM_OF_MPLS_LABEL[0..3]"),
}  # fmt: skip
LAST = ("", "", "", "write_actions(output:5)", "clear_actions", "write_actions(dec_mpls_ttl,output:2)", "goto_table:200",
        "clear_actions,write_actions(push_vlan:0x8100,output:1),write_metadata:0x5/0xff,goto_table:99",
        "write_metadata:0x7", "write_actions(set_field:1->reg0,group:4)")  # fmt: skip
BITS = {
    "metadata": 64,
    "tun_id": 64,
    "xreg3": 64,
    "xxreg1": 128,
    "ipv6_label": 20,
    "mpls_label": 20,
    "mpls_tc": 3,
    "mpls_bos": 1,
}


def _mac(rng: random.Random) -> str:
    return rng.randbytes(6).hex(":")


def _field(rng: random.Random, name: str) -> str:
    if name == "vlan":
        return rng.choice(VLANS)
    if name == "tcp_flags":
        return f"tcp_flags={rng.choice(FLAGS)}"
    if name == "ip_frag":
        return f"ip_frag={rng.choice(('no', 'yes', 'first', 'later', 'not_later'))}"
    if name == "in_port":
        return f"in_port={rng.choice(('1', '17', 'LOCAL', '65279', 'controller'))}"
    if name in ("nw_src", "nw_dst", "arp_spa", "arp_tpa"):
        address = ".".join(map(str, rng.randbytes(4)))
        return f"{name}={address}{rng.choice(('', '/24', '/7', '/255.0.255.0', '/255.255.0.0', '/0.0.0.1'))}"
    if name in ("ipv6_src", "ipv6_dst", "nd_target"):
        address = rng.choice(("fe80::1", "2001:db8:1:2:3:4:5:6", "::ffff:1.2.3.4", "1:0:0:2::3"))
        return f"{name}={address}{rng.choice(('', '/64', '/3', '/ffff::1'))}"
    if name in ("dl_src", "dl_dst", "arp_sha", "arp_tha", "nd_sll", "nd_tll"):
        masks = ("", "", "/ff:ff:ff:00:00:00", "/01:00:00:00:00:00")
        return f"{name}={_mac(rng)}{rng.choice(masks)}"
    if name == "nw_tos":
        return f"nw_tos={rng.randrange(64) << 2}"
    if name == "nw_ecn":
        return f"nw_ecn={rng.randrange(4)}"
    if name in ("mpls_label", "mpls_tc", "mpls_bos"):
        return f"{name}={rng.randrange(1 << BITS[name])}"
    if name in ("nw_proto", "nw_ttl", "arp_op", "icmp_type", "icmp_code", "mpls_ttl"):
        return f"{name}={rng.choice((0, 1, 2, 6, 17, 58, 132, 200))}"
    bits = BITS.get(name, 16 if name[:2] in ("tp", "tc", "ud", "sc") else 32)
    value = rng.getrandbits(bits) & rng.choice(((1 << bits) - 1, 0xFF, 0))
    mask = rng.choice(("", "", f"/{rng.getrandbits(bits) or 1:#x}"))
    return f"{name}={value:#x}{mask}"


def random_text(rng: random.Random) -> str:
    """A flow."""
    kind = rng.choice(list(KINDS))
    names = rng.sample(ANYWHERE, rng.choice((0, 0, 1, 2))) + list(KINDS[kind])
    if "xxreg1" in names:
        names = [name for name in names if name != "xreg3"]
    chosen = rng.sample(names, min(len(names), rng.choice((0, 1, 2, 4))))
    parts = [f"table={rng.randrange(90)}"] if rng.random() < 0.4 else []
    parts += [f"priority={rng.randrange(65536)}"] if rng.random() < 0.5 else []
    parts += [kind] if kind else []
    parts += [_field(rng, name) for name in chosen]
    short = kind.partition(",")[0]
    family = {"tcp6": "tcp", "udp6": "udp", "sctp6": "sctp", "mplsm": "mpls", "rarp": "arp"}.get(short, short)
    usable = [*ACTIONS[""], *(ACTIONS[family] * 4 if family else ())]
    if family in ("tcp", "udp", "sctp", "icmp") and not short.endswith("6"):
        usable += ACTIONS["ip"]
    actions = [one for one in rng.choices(usable, k=rng.choice((1, 1, 2, 3))) if one != "drop"]
    last = rng.choice(LAST)
    if any("mpls:" in one or "write_actions(dec" in last for one in actions) or "dec_mpls" in last:
        actions, last = actions[:1], ""
    return (
        ",".join(parts)
        + (" " if parts else "")
        + "actions="
        + (",".join([*actions, last] if last else actions) or "drop")
    )


def available() -> bool:
    """Whether there is an ``ovs-ofctl`` to ask."""
    return shutil.which("ovs-ofctl") is not None


def ask(texts: list[str]) -> list[str | None]:
    """What ``ovs-ofctl -O OpenFlow15 parse-flows`` prints of each; None where it refuses one."""
    answers: list[str | None] = []
    waiting = list(texts)
    while waiting:
        line = ["ovs-ofctl", "-O", "OpenFlow15", "parse-flows", "-"]
        done = subprocess.run(line, input="\n".join(waiting) + "\n", capture_output=True, text=True, check=False)
        found = [one.partition(": ADD")[2].strip() for one in done.stdout.splitlines() if ": ADD" in one]
        if len(found) == len(waiting):
            answers += found
            break
        if len(waiting) == 1:
            answers.append(None)
            break
        half = len(waiting) // 2
        answers += ask(waiting[:half])
        waiting = waiting[half:]
    return answers


def sample(seed: int = SEED, count: int = COUNT) -> list[tuple[str, str]]:
    """Random flows that it takes, and what it prints of each."""
    rng = random.Random(seed)
    found: list[tuple[str, str]] = []
    while len(found) < count:
        texts = [random_text(rng) for _ in range(2 * count)]
        found += [(text, answer) for text, answer in zip(texts, ask(texts), strict=True) if answer is not None]
    return found[:count]


if __name__ == "__main__":
    ANSWERS.write_text("".join(f"{text}\t{answer}\n" for text, answer in sample()))
