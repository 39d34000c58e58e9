"""Random cases about what a switch remembers and how its ports are set: NORMAL with VLANs of every mode, mirrors, rules between.

Here the order of the packets counts, for addresses are learnt from them.
"""

import random

from tests.switch.oracle.case import PORTS, Case, Mirror, Port, PortState, Send, Setup, Step
from tests.switch.oracle.packets import packet

VLANS = (0, 10, 11, 20, 4095)
MODES = ("access", "trunk", "native-tagged", "native-untagged")
MULTICAST = (0xFFFFFFFFFFFF, 0x01005E000001, 0x333300000001, 0x0180C2000000, 0x0180C2000003)


def generate(rng: random.Random, *, packets: int = 30) -> Case:
    """A random case; the same ``rng`` gives the same."""
    setup = Setup(ports=tuple(_ports(rng)), mirrors=tuple(_mirrors(rng)))
    steps: list[Step] = []
    hosts = [0x020000000000 + n for n in range(rng.choice([2, 3, 5]))]
    for _ in range(packets):
        if rng.random() < 0.03:
            steps.append(PortState(rng.choice(PORTS[:3]), rng.random() < 0.5))
        else:
            steps.append(_packet(rng, hosts, {step.port for step in steps if isinstance(step, PortState)}))
    return Case(flows=tuple(_rules(rng)), steps=tuple(steps), setup=setup)


def _ports(rng: random.Random) -> list[Port]:
    """Ports of all modes, most of them with VLANs that others have too."""
    ports = []
    for number in PORTS:
        mode = rng.choice(MODES)
        tag = rng.choice(VLANS[1:4]) if mode != "trunk" else None
        trunks = tuple(sorted(rng.sample(VLANS, rng.choice([0, 0, 1, 2, 3])))) if mode != "access" else ()
        if rng.random() < 0.6:
            ports.append(
                Port(number, tag=tag, trunks=trunks, vlan_mode=mode if rng.random() < 0.7 or "native" in mode else "")
            )
    return ports


def _mirrors(rng: random.Random) -> list[Mirror]:
    """No mirror or one; of two, no one says which is first, and that shows in what they copy."""
    mirrors = []
    for name in ("m",)[: rng.choice([0, 1])]:
        everything = rng.random() < 0.3
        sources = () if everything else tuple(rng.sample(PORTS, rng.choice([0, 1, 2])))
        destinations = () if everything else tuple(rng.sample(PORTS, rng.choice([0, 1, 2]) if sources else 1))
        vlans = tuple(sorted(rng.sample(VLANS, rng.choice([1, 2])))) if rng.random() < 0.3 else ()
        to_port = rng.random() < 0.75
        mirrors.append(
            Mirror(
                name,
                sources=sources,
                destinations=destinations,
                everything=everything,
                vlans=vlans,
                output_port=rng.choice(PORTS[5:]) if to_port else None,
                output_vlan=None if to_port else rng.choice((10, 12, 20)),
                snaplen=rng.choice([14, 20, 60]) if rng.random() < 0.2 else None,
            )
        )
    return mirrors


def _rules(rng: random.Random) -> list[str]:
    """NORMAL for most packets, and before it rules that change them."""
    rules = ["priority=0,actions=normal"]
    tagged = "vlan_tci=0x1000/0x1000"
    before = [
        "priority=1,in_port=1,actions=push_vlan:0x8100,set_field:0x100a->vlan_vid,normal",
        f"priority=2,in_port=2,{tagged},actions=pop_vlan,normal",
        f"priority=3,in_port=3,{tagged},actions=set_field:0x1014->vlan_vid,normal,output:1",
        "priority=4,in_port=4,actions=normal,mod_dl_src:02:00:00:00:00:01,normal",
        "priority=5,in_port=5,actions=output:1,normal,in_port",
        "priority=6,in_port=6,udp,actions=dec_ttl,mod_dl_dst:02:00:00:00:00:00,normal",
        "priority=7,dl_dst=02:00:00:00:00:01,actions=output(port=2,max_len=30),normal",
        "priority=8,dl_src=02:00:00:00:00:01,actions=write_actions(normal),goto_table:1",
        "priority=9,in_port=7,actions=flood,normal",
        "priority=10,in_port=8,actions=all",
    ]
    rules += rng.sample(before, rng.choice([0, 0, 1, 2, 4]))
    if any("goto_table" in rule for rule in rules):
        rules.append("table=1,priority=1,in_port=2,actions=output:3")
    return rules


def _packet(rng: random.Random, hosts: list[int], wobbly: set[int]) -> Send:
    at = rng.choice([port for port in PORTS if port not in wobbly])
    target = rng.choice(MULTICAST) if rng.random() < 0.2 else rng.choice(hosts)
    tags = {}
    if rng.random() < 0.6:
        tags["vlan"] = rng.choice((0, 0, 1)) * 0x6000 | rng.choice(VLANS)
        if rng.random() < 0.2:
            tags["inner"] = rng.choice(VLANS[1:])  # an inner tag that says nothing is lost on its way through NORMAL
    more = {"tpid": 0x88A8} if tags and rng.random() < 0.1 else {}
    return packet(
        rng.choice(["udp", "udp", "arp", ""]),
        at=at,
        dl_src=rng.choice(hosts),
        dl_dst=target,
        payload=rng.choice([0, 9, 60]),
        **tags,
        **more,
    )
