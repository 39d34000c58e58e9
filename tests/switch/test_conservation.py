"""The books of runs with random rules and frames: each packet that came or was made has left, or was dropped with a reason."""

import random

import pytest

import wirespeed as ws
from tests.conftest import TORTURE
from tests.switch.wild_frames import damaged_frames, whole_frames
from wirespeed.switch import action as a
from wirespeed.switch.groups import Bucket, Group
from wirespeed.switch.switch import Switch

SEEDS = range(40 if TORTURE else 4)
MATCHES = (
    "in_port=1", "ip", "ip,nw_dst=10.4.5.6", "tcp", "tcp,tp_dst=80", "udp6", "arp", "dl_vlan=5", "mpls", "ipv6", "icmp6",
    "ip,nw_frag=yes", "dl_dst=02:00:00:00:00:01",
)  # fmt: skip
ACTIONS = (
    "output:2", "output:2,output:3", "NORMAL", "FLOOD", "ALL", "drop", "IN_PORT", "group:1", "group:2",
    "write_actions(dec_ttl,output:3)",
    "push_vlan:0x8100,set_field:4103->vlan_vid,output:2,output:3", "mod_vlan_vid:4,strip_vlan,NORMAL", "output(port=2,max_len=20),output:3",
    "controller", "resubmit(,1),output:2", "resubmit(,0)", "push_mpls:0x8847,output:3", "mod_dl_src:02:00:00:00:00:09,output:2",
    "clone(mod_dl_src:02:00:00:00:00:07,output:3),output:2", "output:9",
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_no_packet_is_lost_or_doubled_unseen(seed: int) -> None:
    rng = random.Random(seed)
    with Switch(cache=rng.choice((0, 64, 1 << 14)), insert=rng.choice((0.01, 1.0))) as switch:
        ports = {n: ws.port(f"memory:{n}") for n in (1, 2, 3)}
        switch.add_port(1, ports[1], tag=rng.choice((None, 5)))
        switch.add_port(2, ports[2], trunks=rng.choice(((), (5, 7))))
        switch.add_port(3, ports[3])
        switch.add_group(Group(1, "all", (Bucket((a.output(2),)), Bucket((a.output(3),)))))
        switch.add_group(Group(2, "select", tuple(Bucket((a.output(n),), weight=n) for n in (1, 2, 3))))
        frames = [*whole_frames(), *damaged_frames(seed, 300)]
        with ws.start(switch, workers=1 + seed % 2) as run:
            for _ in range(25):
                words = f"table={rng.choice((0, 0, 1))},priority={rng.randrange(4)},{rng.choice(MATCHES)}"
                switch.add_flow(f"{words},actions={rng.choice(ACTIONS)}")
                if rng.random() < 0.3:
                    switch.del_flows(rng.choice(MATCHES))
                if rng.random() < 0.1:
                    switch.add_mirror("m", select_all=True, output_port=3)
                    switch.remove_mirror("m")
                for port in ports.values():
                    port.push(rng.sample(frames, 40), timeout=10)
                    port.pull()
            for port in ports.values():
                port.close_input()
            while not run.wait(0.01):
                for port in ports.values():
                    port.pull()
            report = run.report()
        assert report.balanced, str(report)
        assert report.received == 25 * 40 * 3
        for port in ports.values():
            port.close()
