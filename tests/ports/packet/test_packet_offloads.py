"""Checksums and segmentation that the kernel left to be done: they arrive right, whole or cut, through packet ports."""

import random
import socket
import threading
from typing import Any

import pytest

import wirespeed as ws
from tests.lab import Lab, laboratory, needs_root
from tests.ports.packet.rig import await_running, raw_socket, received, whole
from wirespeed.engine.report import Report
from wirespeed.ports.link.namespace import inside

pytestmark = needs_root
BYTES = random.Random(5).randbytes(8_000_000)


def hosts(lab: Lab, mtu: int = 1500) -> None:
    """Two hosts, left and right, each with a veth that ends in the namespace of the ports."""
    lab.veth("left/l0", "near/l1", mtu=mtu)
    lab.veth("right/r0", "near/r1", mtu=mtu)
    lab.address("left/l0", "10.0.0.1/24", "fd00::1/64")
    lab.address("right/r0", "10.0.0.2/24", "fd00::2/64")
    for end in ("left/l0", "near/l1", "right/r0", "near/r1"):
        await_running(lab, end)


def bridge(lab: Lab, function: Any = None, **options: Any) -> Any:
    """A run between the two hosts."""
    left, right = (ws.port(f"packet:{name}", netns=lab.space("near"), **options) for name in ("l1", "r1"))
    if function is None:
        return ws.start(left >> right, right >> left)
    return ws.start(left >> function >> right, right >> function.bind() >> left)


def sent_by_tcp(lab: Lab, address: str, data: bytes, bound: str = "") -> bytes:
    """What arrives at an address of the right host when the left one sends it data."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(lab.space("right")):
        listener = socket.create_server((bound or address, 5001), family=family)
    with inside(lab.space("left")):
        client = socket.socket(family)
    client.settimeout(30)
    got = bytearray()

    def accept() -> None:
        connection, _ = listener.accept()
        connection.settimeout(30)
        while piece := connection.recv(1 << 20):
            got.extend(piece)

    thread = threading.Thread(target=accept)
    thread.start()
    client.connect((address, 5001))
    client.sendall(data)
    client.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    listener.close()
    client.close()
    return bytes(got)


def checksum_errors(lab: Lab) -> int:
    """Packets with a wrong checksum that the two hosts' stacks have seen."""
    total = 0
    for space in ("left", "right"):
        for file in ("snmp", "netstat"):
            lines = lab.do(space, "cat", f"/proc/net/{file}").stdout.splitlines()
            for names, values in zip(lines[::2], lines[1::2], strict=True):
                told = dict(zip(names.split(), values.split(), strict=True))
                total += sum(int(n) for name, n in told.items() if "Csum" in name)
    return total


def longest(report: Report) -> float:
    """Mean bytes of what the left port received."""
    stage = next(s for s in report.stages if s.kind == "source" and s.name == "packet:l1")
    return stage.bytes / stage.packets_out


@pytest.mark.parametrize("address", ["10.0.0.2", "fd00::2"])
@pytest.mark.parametrize("offloads", ["yes", "no"])
def test_tcp_between_kernels_arrives_with_right_checksums(offloads: str, address: str) -> None:
    with laboratory() as lab:
        hosts(lab)
        with bridge(lab, offloads=offloads) as run:
            assert sent_by_tcp(lab, address, BYTES) == BYTES
            assert checksum_errors(lab) == 0
        report = whole(run)
        if offloads == "yes":
            assert longest(report) > 3000, "super-frames pass as they are"
        else:
            assert longest(report) > 0 and "segments" in report.stage("packet:l1").counters


def test_ping_arrives_in_both_families_and_as_fragments() -> None:
    with laboratory() as lab:
        hosts(lab)
        with bridge(lab) as run:
            for words in (("10.0.0.2",), ("fd00::2",), ("-s", "8000", "10.0.0.2"), ("-s", "8000", "fd00::2")):
                done = lab.do("left", "ping", "-c", "3", "-i", "0.02", "-W", "5", *words, check=False)
                assert " 0% packet loss" in done.stdout, done.stdout
            assert checksum_errors(lab) == 0
        whole(run)


@pytest.mark.parametrize("offloads", ["yes", "no"])
def test_a_function_may_change_addresses_of_what_is_still_to_be_cut(offloads: str) -> None:
    @ws.function
    def translate(pkt):  # type: ignore[no-untyped-def]
        """Left knows the right host as 10.0.0.9, which right does not know."""
        if pkt.ipv4.dst == 0x0A000009:
            pkt.ipv4.dst = 0x0A000002
            ws.checksum_ipv4(pkt.ipv4)
            ws.checksum_l4(pkt)
        elif pkt.ipv4.src == 0x0A000002:
            pkt.ipv4.src = 0x0A000009
            ws.checksum_ipv4(pkt.ipv4)
            ws.checksum_l4(pkt)
        return ws.FORWARD

    with laboratory() as lab:
        hosts(lab)
        right = lab.ip("right", "link", "show", "r0").split("link/ether ")[1].split()[0]
        lab.ip("left", "neighbour", "add", "10.0.0.9", "lladdr", right, "dev", "l0")
        with bridge(lab, translate, offloads=offloads) as run:
            assert sent_by_tcp(lab, "10.0.0.9", BYTES[:3_000_000], bound="10.0.0.2") == BYTES[:3_000_000]
            assert checksum_errors(lab) == 0
        whole(run)


def test_udp_super_frames_arrive_as_the_datagrams_they_stand_for() -> None:
    with laboratory() as lab:
        hosts(lab)
        with bridge(lab) as run:
            with inside(lab.space("right")):
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            receiver.bind(("10.0.0.2", 6000))
            receiver.settimeout(10)
            with inside(lab.space("left")):
                sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.setsockopt(socket.SOL_UDP, 103, 1000)  # UDP_SEGMENT
            sender.sendto(BYTES[:10_500], ("10.0.0.2", 6000))
            got = [receiver.recv(65536) for _ in range(11)]
            assert got == [BYTES[i : min(i + 1000, 10_500)] for i in range(0, 10_500, 1000)]
            assert checksum_errors(lab) == 0
        whole(run)


def test_big_tcp_of_more_than_64_kilobytes_is_received_whole_and_sent_cut() -> None:
    with laboratory() as lab:
        hosts(lab)
        for end in ("left/l0", "near/l1", "near/r1", "right/r0"):
            space, name = end.split("/")
            for what in ("gso_max_size", "gro_max_size"):
                lab.ip(space, "link", "set", name, what, "180000")
        with bridge(lab) as run:
            assert sent_by_tcp(lab, "fd00::2", BYTES * 4) == BYTES * 4
            assert checksum_errors(lab) == 0
        report = whole(run)
        assert longest(report) > 20_000
        assert not any(s.dropped for s in report.stages), str(report)


def test_a_sum_over_something_that_is_no_ip_is_computed_on_the_way_out() -> None:
    with laboratory() as lab:
        lab.veth("left/l0", "near/l1")
        lab.veth("right/r0", "near/r1")
        for end in ("left/l0", "near/l1", "right/r0", "near/r1"):
            await_running(lab, end)
        sender = raw_socket(lab, "left/l0", headers=True)
        frame = b"\x02" * 12 + b"\x88\xb5" + bytes(range(100))
        # The sum of the last 66 bytes, with what is in the field, goes into bytes 58 and 59.
        total = sum(int.from_bytes(frame[i : i + 2], "big") for i in range(48, 114, 2))
        summed = frame[:58] + (0xFFFF - (total % 0xFFFF or 0xFFFF)).to_bytes(2, "big") + frame[60:]
        header = bytes.fromhex("01 00 0000 0000 3000 0a00")
        for offloads in ("yes", "no"):
            whole_too = offloads == "yes"  # the receiver is told as well, and it is for him to sum
            receiver = raw_socket(lab, "right/r0", receiving=True, headers=whole_too)
            with bridge(lab, offloads=offloads) as run:
                sender.send(header + frame)
                wanted = header + frame if whole_too else summed
                while (got := received(receiver, 1)[0])[-100:-60] != wanted[-100:-60]:
                    pass
                assert got.hex() == wanted.hex()
            whole(run)
