"""The bench of the switch: its frames are whole, its rules are rules, and what Open vSwitch says of itself is read right."""

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from bench.harness import ToolFailed
from bench.peers.ovs_switch import parse
from bench.switch_cases import ATTACK, ATTACKED, CASES, attacked
from bench.switch_frames import SIZE
from wirespeed.switch.text.flow import parse_flow

SMALL = [case for case in CASES.values() if case.flows <= 10_000 and case.name != "tse.good"]
SAID = """
pmd thread numa_id 0 core_id 1:

  Iterations:               494322  (2.02 us/it)
  - Used TSC cycles:    2597104836  (100.0 % of total cycles)
  - idle iterations:             0  (  0.0 % of used cycles)
  - busy iterations:        494322  (100.0 % of used cycles)
  - sleep iterations:            0  (  0.0 % of iterations)
  Rx packets:             15818304  (15817 Kpps, 164 cycles/pkt)
  Datapath passes:        15818304  (1.00 passes/pkt)
  - PHWOL hits:                  0  (  0.0 %)
  - Simple Match hits:           0  (  0.0 %)
  - EMC hits:             11388919  ( 72.0 %)
  - SMC hits:                    0  (  0.0 %)
  - Megaflow hits:         4427226  ( 28.0 %, 2.20 subtbl lookups/hit)
  - Upcalls:                  2159  (  0.01 %, 0.0 us/upcall)
"""


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_frames_are_udp_of_64_bytes_with_right_checksums(case) -> None:
    for frames in case.frames():
        for frame in () if frames is None else frames[:5]:
            given = frame.tobytes()
            packet = Ether(given)
            assert len(given) == SIZE and packet.haslayer(UDP)
            del packet[IP].chksum, packet[UDP].chksum
            assert bytes(packet) == given


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_no_two_flows_are_one(case) -> None:
    headers = np.concatenate([frames for frames in case.frames() if frames is not None])
    assert len(np.unique(headers, axis=0)) == case.flows


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_rules_are_rules_of_ours(case) -> None:
    read = [parse_flow(rule) for rule in case.rules()]
    assert len({(mod.table, mod.priority, mod.match) for mod in read}) == len(read)


def test_one_packet_in_a_hundred_is_one_of_the_attack() -> None:
    frames, nothing = attacked()
    assert nothing is None and frames is not None and len(frames) == ATTACKED
    bad = frames[(frames[:, 26:30] != (10, 1, 1, 1)).any(axis=1)]
    assert len(bad) == len(np.unique(bad, axis=0)) == ATTACK


def test_what_its_polling_thread_did_is_read() -> None:
    found = parse(SAID)
    assert (found.cycles, found.mpps, found.emc, found.megaflow) == (164, 15.817, 72.0, 28.0)
    assert (found.upcalls, found.subtables) == (0.01, 2.2)


def test_a_polling_thread_that_received_nothing_is_a_failure() -> None:
    with pytest.raises(ToolFailed, match="received nothing"):
        parse(SAID.replace("15818304  (15817 Kpps, 164 cycles/pkt)", "0  (0 Kpps, 0 cycles/pkt)"))
