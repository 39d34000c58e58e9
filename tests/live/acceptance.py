"""What two hosts must be able to do over any bridge of ours, as they do it over the kernel's: its own stacks say so."""

import contextlib
import random
from typing import Any

from tests.lab import Lab
from tests.live.bridge import Bridge
from tests.live.sockets import frame_socket, ping_pong, receive_frame, send_file

FLOOD = 100_000_000  # bytes
FILE = 8_000_000
JUMBO = 9000
BIG = "185000"  # of IPv6: BIG TCP
TAGS = {
    "untagged": b"",
    "vlan": bytes.fromhex("8100 2065"),
    "qinq": bytes.fromhex("88a8 0064 8100 6003"),
    "qinq of the old kind": bytes.fromhex("8100 0064 8100 0003"),
    "three tags": bytes.fromhex("88a8 0001 8100 0002 8100 0003"),
}
# Shares that a busy machine stays below, for it delays whoever is to empty a queue: what a port mistreats is lost to the last.
RETRANSMITTED = 0.2  # of the segments sent; a queue that overflows loses some, a wrong checksum loses all
LOST = 0.5  # of the datagrams, at a rate that any of these ports bears


class Acceptance:
    """Tests of one bridge; those that change it stand last."""

    def test_hosts_hear_each_other(self, bridge: Bridge) -> None:
        for version in (4, 6):
            done = bridge.ping(version, count=20)
            assert " 0% packet loss" in done.stdout, done.stdout + done.stderr

    def test_pings_of_every_size_come_back_whole(self, bridge: Bridge) -> None:
        for size in (0, 1, 17, 18, 19, 63, 64, 1471, 1472):
            done = bridge.ping(4, "-s", str(size), "-M", "do", count=2)
            assert " 0% packet loss" in done.stdout, f"{size} bytes: {done.stdout}{done.stderr}"

    def test_fragments_arrive_and_are_put_together(self, bridge: Bridge) -> None:
        for version in (4, 6):
            done = bridge.ping(version, "-s", "20000", count=3)
            assert " 0% packet loss" in done.stdout, f"version {version}: {done.stdout}{done.stderr}"

    def test_a_file_arrives_as_it_was_sent(self, bridge: Bridge) -> None:
        sent = random.Random(21).randbytes(FILE)
        for sender, receiver in (("a", "b"), ("b", "a")):
            for version in (4, 6):
                got = send_file(bridge.lab, sender, receiver, bridge.address(receiver, version), sent)
                assert got == sent, f"from {sender}, version {version}: {len(got)} bytes"

    def test_tcp_floods_each_way_without_a_storm(self, bridge: Bridge) -> None:
        for sender, words in (("a", ()), ("b", ("-R",))):
            flood(bridge, sender, *words)

    def test_udp_arrives_each_way(self, bridge: Bridge) -> None:
        for words in ((), ("-R",)):
            ended = bridge.iperf("-u", "-b", "30M", "-n", "4M", "-l", "1400", *words)
            received = ended["sum_received"] if "sum_received" in ended else ended["sum"]
            assert received["packets"] > 2500
            assert received["lost_packets"] <= LOST * received["packets"], received

    def test_small_messages_go_to_and_fro(self, bridge: Bridge) -> None:
        choice = random.Random(22)
        messages = [choice.randbytes(choice.choice([1, 36, 44, 52, 76, 600, 1448, 5000])) for _ in range(300)]
        answers = ping_pong(bridge.lab, bridge.address("b"), messages)
        assert answers == [message[::-1] for message in messages]

    def test_tagged_frames_arrive_byte_for_byte(self, bridge: Bridge) -> None:
        for sender, receiver in (("a", "b"), ("b", "a")):
            to, origin = hardware(bridge.lab, receiver), bytes.fromhex("0200 0000 7a67")
            with frame_socket(bridge.lab, receiver) as there, frame_socket(bridge.lab, sender) as here:
                for name, tags in TAGS.items():
                    for size in (46, 47, 500, 1496 - len(tags)):
                        frame = to + origin + tags + b"\x88\xb5" + random.Random(size).randbytes(size)
                        here.send(frame)
                        assert receive_frame(there, origin) == frame, f"{name}, {size} bytes, {sender} to {receiver}"

    def test_no_checksum_was_wrong(self, bridge: Bridge) -> None:
        for host in ("a", "b"):
            wrong = {name: n for name, n in bridge.counters(host).items() if "CsumError" in name and n}
            assert not wrong, f"host {host}: {wrong}"

    def test_packets_of_more_than_64_kB_arrive_where_interfaces_make_them(self, bridge: Bridge) -> None:
        for space, name in bridge.interfaces():
            with contextlib.suppress(AssertionError):  # a tap makes none
                bridge.lab.ip(space, "link", "set", name, "gso_max_size", BIG, "gro_max_size", BIG)
        sent = random.Random(23).randbytes(FILE)
        for sender, receiver in (("a", "b"), ("b", "a")):
            assert send_file(bridge.lab, sender, receiver, bridge.address(receiver, 6), sent) == sent
        self.test_no_checksum_was_wrong(bridge)

    def test_jumbo_frames_pass_once_every_interface_takes_them(self, bridge: Bridge) -> None:
        bridge.set_mtu(JUMBO)
        for version, headers in ((4, 28), (6, 48)):
            words = ("-s", str(JUMBO - headers), "-M", "do")
            bridge.wait_for(version, *words)  # a port that hears of the change may make its rings anew
            done = bridge.ping(version, *words, count=5)
            assert " 0% packet loss" in done.stdout, f"version {version}: {done.stdout}{done.stderr}"
        flood(bridge, "a")
        flood(bridge, "b", "-R")
        self.test_no_checksum_was_wrong(bridge)

    def test_hosts_hear_each_other_again_after_a_link_was_down(self, bridge: Bridge) -> None:
        for space, name in bridge.interfaces():
            bridge.lab.ip(space, "link", "set", name, "down")
            assert bridge.ping(4, "-W", "0.1", count=1).returncode, f"{space}/{name} is down"
            bridge.lab.ip(space, "link", "set", name, "up")
            bridge.wait_for(4)

    def test_hosts_hear_each_other_again_after_an_interface_was_deleted_and_made_again(self, bridge: Bridge) -> None:
        for host in ("b", "a"):
            bridge.lose_and_make_again(host)
            bridge.wait_for(4)
            flood(bridge, host, *(["-R"] if host == "b" else []))

    def test_the_books_balance_at_the_end(self, bridge: Bridge) -> None:
        if bridge.running is None:
            return
        bridge.running.stop()
        assert bridge.running.wait(30.0), "the run did not end"
        report: Any = bridge.running.report()
        assert report.balanced and report.pool_free == report.pool_size, str(report)
        assert not report.errors, report.errors
        assert report.packets > 1000


def flood(bridge: Bridge, sender: str, *words: str) -> None:
    """Have iperf3 send a lot over TCP; it counts what has arrived when the sender is done, so a little may lack."""
    before = bridge.counters(sender)
    ended = bridge.iperf("-n", f"{FLOOD}", *words)
    after = bridge.counters(sender)
    assert ended["sum_received"]["bytes"] >= FLOOD // 2, ended["sum_received"]
    sent, again = (after[name] - before[name] for name in ("TcpOutSegs", "TcpRetransSegs"))
    assert again <= RETRANSMITTED * sent, f"from {sender}: {again} of {sent} segments were sent again"


def hardware(lab: Lab, host: str) -> bytes:
    """The Ethernet address of a host."""
    words = lab.ip(host, "-o", "link", "show", "eth").split()
    return bytes.fromhex(words[words.index("link/ether") + 1].replace(":", ""))
