"""Several workers share an interface's packets out: each packet once, a flow and its fragments always to one worker."""

from typing import Any

import pytest

from tests.lab import laboratory, needs_root
from tests.ports.packet.rig import capturing, frame, near, pair, pulled, raw_socket, wait_until, whole
from wirespeed.engine.running import Running

pytestmark = needs_root


def by_worker(run: Running) -> list[int]:
    """Packets that each worker has received."""
    return [int(next(c.record(n) for n in c.graph.nodes if n.role == "source").packets_out) for c in run._copies]


def udp(source: int, *, offset: int = 0, more: bool = False, number: int = 7) -> bytes:
    """An IPv4 frame with a UDP header, or a later fragment of one."""
    head = bytearray.fromhex("4500 0054 0000 0000 4011 0000 0a000001 0a000002")
    head[4:6] = number.to_bytes(2, "big")
    head[6:8] = (offset // 8 | more << 13).to_bytes(2, "big")
    head[15] = source >> 8
    return b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0" + bytes(head) + source.to_bytes(2, "big") + bytes(62)


@pytest.mark.parametrize("fanout", ["hash", "cpu", "lb", "rnd", "qm"])
def test_each_packet_comes_once(fanout: str) -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab, fanout=fanout), workers=2) as (run, memory):
            sent = [frame(n, 60 + n % 100) for n in range(1000)]
            for each in sent:
                sender.send(each)
            assert sorted(p.data for p in pulled(memory, len(sent))) == sorted(sent)
            if fanout == "lb":
                assert by_worker(run) == [500, 500]
        whole(run)


def test_a_flow_is_always_one_workers_and_flows_are_both_workers() -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab), workers=2) as (run, memory):
            seen = set()
            for flow in range(1, 33):
                before = by_worker(run)
                for _ in range(10):
                    sender.send(udp(flow * 777))
                pulled(memory, 10)
                gained = tuple(b - a for a, b in zip(before, by_worker(run), strict=True))
                assert sorted(gained) == [0, 10]
                seen.add(gained)
            assert len(seen) == 2
        whole(run)


def test_first_and_later_fragments_of_a_datagram_go_to_one_worker() -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab), workers=2) as (run, memory):
            for flow in range(1, 33):
                before = by_worker(run)
                pieces: list[Any] = [udp(flow * 777, more=True, number=flow), udp(0, offset=64, number=flow)]
                pieces[1] = pieces[1][:29] + pieces[0][29:30] + pieces[1][30:]  # of the same addresses
                for each in pieces:
                    sender.send(each)
                got = sorted(p.data for p in pulled(memory, 2))
                assert got == sorted(pieces)
                wait_until(lambda before=before: sum(by_worker(run)) == sum(before) + 2, "both came")
                assert sorted(b - a for a, b in zip(before, by_worker(run), strict=True)) == [0, 2]
        whole(run)
