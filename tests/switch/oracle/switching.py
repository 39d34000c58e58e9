"""Cases of ours about NORMAL: MAC addresses that are learnt, move, age and are too many; VLANs by ports; mirrors; meters."""

from itertools import product

from tests.switch.oracle.case import Case, Flows, Mirror, Port, PortState, Send, Setup, Warp
from tests.switch.oracle.packets import BROADCAST, A, B, C, D, packet

NORMAL = ("priority=0,actions=normal",)
# A port of each mode, two of the commonest.
MODES = (
    Port(1, tag=10),
    Port(2, tag=20),
    Port(3),
    Port(4, trunks=(10, 12)),
    Port(5, tag=10, vlan_mode="native-tagged", trunks=(10, 20)),
    Port(6, tag=10, vlan_mode="native-untagged"),
    Port(7, tag=0, vlan_mode="native-untagged", trunks=(0, 12)),
    Port(8, tag=10),
)
TAGS: list[dict[str, int]] = [
    {},
    {"vlan": 0x0000},
    {"vlan": 0xA000},
    *({"vlan": 0x6000 | n} for n in (10, 12, 20, 4095)),
    {"vlan": 0x000A, "inner": 0x2014},
]


def mac(n: int) -> int:
    """The address of host ``n``."""
    return 0x02_00_00_00_00_00 + n


def talk(at: int, of: int | str, to: int | str = BROADCAST, **more: int) -> Send:
    """A packet from one host to another."""
    return packet("udp", at=at, dl_src=of, dl_dst=to, **more)


LEARNING = [
    Case(
        name="an address is learnt where it speaks; others are flooded",
        flows=NORMAL,
        steps=(
            *(talk(1, A, B), talk(2, B, A), talk(1, A, B), talk(3, C, A), talk(3, C, D), talk(1, A, BROADCAST)),
            *(talk(1, C, B), talk(2, B, C), talk(3, A, A), talk(2, B, A), talk(1, A, A)),
        ),
    ),
    Case(
        name="multicast sources are not learnt, reserved groups are not forwarded",
        flows=NORMAL,
        steps=(
            *(talk(1, "01:00:5e:00:00:01", B), talk(2, B, "01:00:5e:00:00:01"), talk(1, A, "01:00:5e:01:02:03")),
            *(talk(1, A, f"01:80:c2:00:00:{n:02x}") for n in (0, 1, 2, 3, 0x0E, 0x0F, 0x10, 0x21)),
            *(
                talk(1, A, group)
                for group in ("01:00:0c:cc:cc:cc", "01:00:0c:cc:cc:cd", "00:e0:2b:00:00:00", "01:23:20:00:00:01")
            ),
            talk(1, 0, B),
        ),
    ),
    Case(
        name="an address is known in its own VLAN only",
        setup=Setup(ports=MODES),
        flows=NORMAL,
        steps=(
            *(
                talk(3, A, B, vlan=10),
                talk(4, B, A, vlan=10),
                talk(4, B, A, vlan=12),
                talk(1, C, A),
                talk(2, C, A),
                talk(3, D, C, vlan=20),
            ),
            *(
                talk(3, D, C, vlan=10),
                talk(6, D, B),
                talk(5, A, D),
                talk(4, B, A, vlan=10),
                talk(7, D, A),
                talk(3, A, D),
            ),
        ),
    ),
    Case(
        name="an address that is silent for long is forgotten",
        setup=Setup(mac_aging=60),
        flows=NORMAL,
        steps=(
            *(
                talk(1, A),
                talk(2, B),
                Warp(30_000),
                talk(3, C, A),
                talk(1, A, B),
                Warp(40_000),
                talk(3, C, B),
                talk(3, C, A),
            ),
            *(Warp(30_000), talk(2, B, A), talk(2, B, C)),
        ),
    ),
    Case(
        name="too many addresses: who has most loses his oldest, who has few keeps his",
        setup=Setup(mac_table_size=10),
        flows=NORMAL,
        steps=(
            *(talk(1, mac(n)) for n in (1, 2)),
            *(step for n in range(100, 130) for step in (talk(2, mac(n)), Warp(1000))),
            *(talk(3, mac(200), mac(n)) for n in (1, 2, 100, 110, *range(120, 130))),
        ),
    ),
    Case(
        name="a port that goes down takes its addresses with it",
        flows=NORMAL,
        steps=(
            talk(1, A),
            talk(2, B),
            talk(3, C, A),
            PortState(1, False),
            talk(3, C, A),
            PortState(1, True),
            talk(3, C, A),
            talk(3, C, B),
        ),
    ),
    Case(
        name="NORMAL sees the packet as the rules have made it, in any table",
        flows=(
            f"priority=2,in_port=1,actions=mod_dl_src:{D},normal,output:1,output:2",
            f"priority=2,in_port=2,actions=normal,mod_dl_dst:{D},normal",
            "priority=1,actions=goto_table:3",
            "table=3,priority=1,actions=push_vlan:0x8100,set_field:0x1005->vlan_vid,normal,pop_vlan,normal",
        ),
        steps=(talk(1, A, B), talk(2, B, A), talk(2, B, D), talk(3, C, D), talk(3, C, B), talk(1, A, C)),
    ),
    Case(
        name="NORMAL in a bucket, in an action set and behind a table's end",
        flows=(
            "priority=1,in_port=1,actions=group:1",
            "priority=1,in_port=2,actions=write_actions(normal)",
            "priority=1,in_port=3,actions=resubmit(,1),output:4",
        ),
        groups=(f"group_id=1,type=all,bucket=actions=normal,bucket=actions=mod_dl_src:{D},normal",),
        steps=(talk(1, A, B), talk(2, B, A), talk(2, B, D), talk(3, C, D), talk(1, A, C)),
    ),
]

VLANS = [
    Case(
        name=f"a flood from port {port.number} ({port.vlan_mode or ('access' if port.tag else 'trunk')}), with every tag",
        setup=Setup(ports=MODES),
        flows=NORMAL,
        steps=tuple(talk(port.number, mac(100 + 10 * port.number + n), **tag) for n, tag in enumerate(TAGS)),
    )
    for port in MODES
] + [
    Case(
        name="answers find their way through access, trunk and native ports",
        setup=Setup(ports=MODES),
        flows=NORMAL,
        steps=tuple(
            talk(port.number, mac(port.number), **tag) for port in MODES for tag in ({}, {"vlan": 10}, {"vlan": 12})
        )
        + tuple(
            talk(a, mac(a), mac(b), **tag)
            for a, b in product(range(1, 9), repeat=2)
            if a != b
            for tag in ({}, {"vlan": 10}, {"vlan": 12})
        ),
    ),
    Case(
        name="a rule's own output knows no VLANs of ports",
        setup=Setup(ports=MODES),
        flows=("priority=0,actions=output:1,output:3,output:4,output:5,output:6",),
        steps=tuple(talk(2, A, B, **tag) for tag in TAGS),
    ),
    Case(
        name="flood and all know no VLANs either",
        setup=Setup(ports=(*MODES[:5], Port(6, tag=10, flood=False), *MODES[6:])),
        flows=("priority=1,in_port=1,actions=flood", "priority=1,in_port=3,actions=all", "priority=0,actions=normal"),
        steps=tuple(talk(at, A, B, **tag) for at in (1, 3, 8) for tag in TAGS[:4]),
    ),
    Case(
        name="a tag of the other kind is a VLAN as well",
        setup=Setup(ports=MODES),
        flows=NORMAL,
        steps=tuple(talk(at, A, B, vlan=vlan, tpid=0x88A8) for at in (1, 3, 4, 6) for vlan in (10, 12, 0x6000)),
    ),
]

SPAN = Port(8)  # where mirrors put their copies


def mirrored(
    name: str,
    *mirrors: Mirror,
    flows: tuple[str, ...] = NORMAL,
    ports: tuple[Port, ...] = (),
    **parts: tuple[Send, ...],
) -> Case:
    """A case of mirrors; the same packets for each, unless others are given."""
    steps = parts.get("steps") or tuple(
        step
        for tag in ({}, {"vlan": 10}, {"vlan": 12})
        for step in (
            talk(1, A, B, **tag),
            talk(2, B, A, **tag),
            talk(3, C, A, **tag),
            talk(8, D, A, **tag),
            talk(1, A, C, **tag),
        )
    )
    return Case(name=name, setup=Setup(ports=ports, mirrors=mirrors), flows=flows, steps=steps)


REWRITES = (
    f"priority=2,in_port=1,actions=mod_dl_src:{D},output:2,push_vlan:0x8100,set_field:0x1007->vlan_vid,output:3,output:2",
    "priority=2,in_port=2,actions=drop",
    "priority=2,in_port=3,ip,actions=dec_ttl,in_port,resubmit(,1)",
    "table=1,priority=1,actions=output:4",
)

MIRRORS = [
    mirrored("a mirror of everything", Mirror("m", everything=True, output_port=8)),
    mirrored("a mirror of what comes in at a port", Mirror("m", sources=(1,), output_port=8)),
    mirrored("a mirror of what goes out at a port", Mirror("m", destinations=(1, 2), output_port=8)),
    mirrored(
        "a mirror of what comes in at one port or goes out at another",
        Mirror("m", sources=(2,), destinations=(1,), output_port=8),
    ),
    mirrored(
        "a mirror of a VLAN",
        Mirror("m", everything=True, vlans=(10, 11), output_port=8),
        ports=(Port(3, tag=12), Port(2, trunks=(0, 10))),
    ),
    mirrored("a mirror of a VLAN at a port", Mirror("m", sources=(1,), vlans=(0,), output_port=8)),
    mirrored(
        "a mirror sees headers as they come in and as they go out, each once",
        Mirror("m", everything=True, output_port=8),
        flows=REWRITES,
    ),
    mirrored(
        "a mirror of an output that is made twice, with other headers",
        Mirror("m", destinations=(2, 3), output_port=8),
        flows=REWRITES,
    ),
    mirrored("a mirror of a port whose packets are dropped", Mirror("m", sources=(2,), output_port=8), flows=REWRITES),
    mirrored(
        "two mirrors, one port", Mirror("m", sources=(1,), output_port=8), Mirror("n", destinations=(2,), output_port=8)
    ),
    mirrored(
        "two mirrors, two ports",
        Mirror("m", sources=(1,), output_port=8),
        Mirror("n", destinations=(2,), output_port=7),
    ),
    mirrored(
        "the mirrors' own ports are no way in",
        Mirror("m", sources=(1,), output_port=3),
        Mirror("n", sources=(3,), output_port=8),
    ),
    mirrored(
        "a mirror into a VLAN",
        Mirror("m", sources=(1,), output_vlan=12),
        ports=(Port(3, trunks=(12,)), Port(4, tag=12), Port(5, trunks=(10,))),
    ),
    mirrored(
        "mirrors into two VLANs",
        Mirror("m", sources=(1,), output_vlan=500),
        Mirror("n", destinations=(2,), output_vlan=501),
        ports=(Port(3, trunks=(500,)), Port(4, tag=501), Port(5, trunks=(500, 501))),
    ),
    mirrored("copies are cut", Mirror("m", everything=True, output_port=8, snaplen=30)),
    mirrored(
        "copies are cut, whatever the rules cut",
        Mirror("m", everything=True, output_port=8, snaplen=20),
        flows=("priority=0,actions=output(port=2,max_len=40),output:3",),
    ),
    mirrored(
        "an output to the mirror's port is also a packet of its own",
        Mirror("m", sources=(1,), output_port=8),
        flows=("priority=0,actions=output:8,output:2",),
    ),
]

METERS = [
    Case(
        name="a meter of packets",
        meters=("meter=1,pktps,burst,bands=type=drop,rate=10,burst_size=5",),
        flows=("priority=1,in_port=1,actions=meter:1,output:2", "priority=0,actions=output:3"),
        steps=(
            Warp(5000),
            *(packet() for _ in range(20)),
            packet(at=4),
            Warp(500),
            *(packet() for _ in range(20)),
            Warp(3000),
            *(packet() for _ in range(20)),
        ),
    ),
    Case(
        name="a meter of bits",
        meters=("meter=2,kbps,burst,bands=type=drop,rate=8,burst_size=16",),
        flows=("priority=1,in_port=1,actions=meter:2,output:2",),
        steps=(
            Warp(5000),
            *(packet(payload=n) for n in (500, 500, 500, 500, 500, 10, 10)),
            Warp(1000),
            *(packet(payload=n) for n in (958, 900, 10, 0, 10)),
        ),
    ),
    Case(
        name="two bands: the higher one that is exceeded drops",
        meters=("meter=3,pktps,burst,bands=type=drop,rate=2,burst_size=2,type=drop,rate=8,burst_size=8",),
        flows=("priority=1,in_port=1,actions=meter:3,output:2",),
        steps=(Warp(5000), *(packet() for _ in range(15)), Warp(1000), *(packet() for _ in range(15))),
    ),
    Case(
        name="a meter that two rules share, and one behind another table",
        meters=(
            "meter=1,pktps,burst,bands=type=drop,rate=4,burst_size=4",
            "meter=2,pktps,burst,bands=type=drop,rate=2,burst_size=2",
        ),
        flows=(
            "priority=1,in_port=1,actions=meter:1,output:2",
            "priority=1,in_port=2,actions=meter:1,output:3,goto_table:1",
            "table=1,priority=1,actions=meter:2,output:4",
        ),
        steps=(
            Warp(5000),
            *(packet(at=1 + n % 2) for n in range(16)),
            Warp(1000),
            *(packet(at=1 + n % 2) for n in range(16)),
        ),
    ),
]

TIMEOUTS = [
    Case(
        name="rules end by their hard timeout, and by their idle timeout when no packet comes",
        flows=(
            "priority=9,in_port=1,hard_timeout=10,actions=output:2",
            "priority=9,in_port=2,idle_timeout=10,actions=output:3",
            "priority=0,actions=output:4",
        ),
        steps=(
            *(
                packet(at=1),
                packet(at=2),
                Warp(6000),
                packet(at=1),
                packet(at=2),
                Warp(7000),
                packet(at=1),
                packet(at=2),
            ),
            *(
                Warp(6000),
                packet(at=2),
                Warp(14000),
                packet(at=1),
                packet(at=2),
                Flows("actions=output:5"),
                packet(at=2),
            ),
        ),
    ),
]

CASES = LEARNING + VLANS + MIRRORS + METERS + TIMEOUTS
