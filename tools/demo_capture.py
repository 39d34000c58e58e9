"""Makes ``src/wirespeed/data/demo.pcap``: one minute behind the router of a small office, the same bytes each time.

``python -m tools.demo_capture`` writes it again.  Everything is drawn from one seed; no real traffic is in it.  The
addresses are those kept for documentation (RFC 5737, RFC 3849) and private use, the names those of RFC 2606.
"""

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from scapy.contrib.mpls import MPLS
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.dns import DNS, DNSQR, DNSRR
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

TARGET = Path(__file__).resolve().parent.parent / "src" / "wirespeed" / "data" / "demo.pcap"
SEED = 20250704
START = 1_751_616_000  # 2025-07-04 08:00:00 UTC
MINUTE = 60_000_000  # in microseconds
ROUTER = "02:00:5e:00:00:01"
CLIENTS = 24
NAMES = ("example.com", "www.example.org", "mail.example.net", "cdn.example.com", "time.example.org")

Timed = tuple[int, Packet]  # microseconds from the start, frame


class Office:
    """The office's hosts, and the random numbers that its traffic is drawn from."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def bytes(self, n: int) -> bytes:
        """Payload that looks encrypted."""
        return self.random.randbytes(n)

    def moment(self) -> int:
        """A time in the first fifty seconds."""
        return self.random.randrange(50 * MINUTE // 60)

    def pause(self, about: int) -> int:
        """Some microseconds around ``about``."""
        return self.random.randrange(about // 2, about * 3 // 2)

    def pair(self, six: bool = False) -> tuple[Packet, Packet]:
        """Headers of a client's packets to a server and back, the clients of one half of the office in VLAN 10."""
        client, server = self.random.randrange(1, CLIENTS + 1), self.random.randrange(1, 60)
        mac = f"02:00:5e:10:00:{client:02x}"
        out, back = Ether(src=mac, dst=ROUTER), Ether(src=ROUTER, dst=mac)
        if client % 2:
            out, back = out / Dot1Q(vlan=10), back / Dot1Q(vlan=10)
        if six:
            here, there = f"2001:db8:1::{client:x}", f"2001:db8:f::{server:x}"
            return out / IPv6(src=here, dst=there, hlim=64), back / IPv6(src=there, dst=here, hlim=55)
        here, there, ttl = f"192.168.1.{client}", f"203.0.113.{server}", self.random.choice((48, 52, 57, 113, 244))
        number = self.random.randrange(65536)
        return out / IP(src=here, dst=there, ttl=64, id=number), back / IP(src=there, dst=here, ttl=ttl, id=number)

    def port(self) -> int:
        """A port of a client's own."""
        return self.random.randrange(32768, 61000)


def sealed(office: Office, n: int) -> bytes:
    """A TLS record of ``n`` bytes of application data (RFC 8446 section 5.2)."""
    return struct.pack(">BHH", 23, 0x0303, n - 5) + office.bytes(n - 5)


def connection(
    office: Office, port: int, request: bytes, segment: Callable[[int], bytes], answer: int, six: bool
) -> Iterator[Timed]:
    """A TCP connection from handshake to end: a request, and an answer in segments, every second acknowledged."""
    (out, back), mine, now = office.pair(six), office.port(), office.moment()
    seq, ack = office.random.randrange(1 << 32), office.random.randrange(1 << 32)

    def client(flags: str, data: bytes = b"") -> Timed:
        options = [("MSS", 1440 if six else 1460), ("SAckOK", b""), ("WScale", 7)] if flags == "S" else []
        head = TCP(
            sport=mine, dport=port, seq=seq, ack=0 if flags == "S" else ack, flags=flags, window=502, options=options
        )
        return now, out / head / Raw(data) if data else out / head

    def server(flags: str, data: bytes = b"") -> Timed:
        head = TCP(sport=port, dport=mine, seq=ack, ack=seq, flags=flags, window=235)
        return now, back / head / Raw(data) if data else back / head

    def after(about: int) -> None:
        nonlocal now
        now += office.pause(about)

    yield client("S")
    after(12_000)
    seq = (seq + 1) % (1 << 32)
    yield server("SA")
    ack = (ack + 1) % (1 << 32)
    after(100)
    yield client("A")
    yield client("PA", request)
    seq = (seq + len(request)) % (1 << 32)
    after(15_000)
    yield server("A")
    for number, at in enumerate(range(0, answer, 1200)):
        data = segment(min(1200, answer - at))
        yield server("PA", data)
        ack = (ack + len(data)) % (1 << 32)
        after(300)
        if number % 2:
            yield client("A")
    yield client("FA")
    seq = (seq + 1) % (1 << 32)
    after(12_000)
    yield server("FA")
    ack = (ack + 1) % (1 << 32)
    after(100)
    yield client("A")


def web(office: Office) -> Iterator[Timed]:
    """Connections over TLS and, fewer, in the clear."""
    for number in range(105):
        size, six = office.random.choice((90, 500, 1400, 2800)), number % 8 == 0
        if number % 4:
            yield from connection(office, 443, sealed(office, 250), lambda n: sealed(office, n), size, six)
        else:
            get = f"GET /{number} HTTP/1.1\r\nHost: {NAMES[number % 5]}\r\nAccept: */*\r\n\r\n".encode()
            page = (
                f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n\r\n".encode()
                + b"hello, " * 400
            )
            parts = iter(page[at : at + 1200] for at in range(0, len(page), 1200))
            yield from connection(office, 80, get, lambda n, parts=parts: next(parts)[:n], size, six)


def names(office: Office) -> Iterator[Timed]:
    """Questions to a DNS server and their answers."""
    for number in range(420):
        out, back = office.pair(number % 9 == 0)
        now, mine, name = office.moment(), office.port(), NAMES[number % 5]
        asked = DNSQR(qname=name, qtype="AAAA" if number % 3 == 0 else "A")
        data = "2001:db8:f::7" if number % 3 == 0 else "203.0.113.7"
        answer = DNSRR(rrname=name, type=asked.qtype, ttl=300, rdata=data)
        yield now, out / UDP(sport=mine, dport=53) / DNS(id=number, rd=1, qd=asked)
        yield (
            now + office.pause(9_000),
            back / UDP(sport=53, dport=mine) / DNS(id=number, qr=1, rd=1, ra=1, qd=asked, an=answer),
        )


def calls(office: Office) -> Iterator[Timed]:
    """Telephones in VLAN 20: 20 ms of speech a packet, marked as urgent."""
    for call in range(3):
        begin, ssrc = office.moment() // 2, office.random.randrange(1 << 32)
        path = Ether(src=f"02:00:5e:20:00:{call:02x}", dst=ROUTER) / Dot1Q(vlan=20, prio=5)
        path = path / IP(src=f"192.168.20.{call + 1}", dst="198.51.100.20", tos=0xB8, ttl=64, flags="DF")
        for number in range(200):
            rtp = struct.pack(">BBHII", 0x80, 0, number, 160 * number, ssrc) + office.bytes(40)
            yield begin + 20_000 * number, path / UDP(sport=16384 + 2 * call, dport=16384 + 2 * call) / Raw(rtp)


def datagrams(office: Office) -> Iterator[Timed]:
    """QUIC-like UDP, and bursts of a game's small packets."""
    for number in range(60):
        (out, back), mine, now = office.pair(number % 10 == 0), office.port(), office.moment()
        size, port, count = (1200, 443, 3) if number % 2 else (office.random.randrange(18, 60), 27015, 25)
        for turn in range(count):
            now += office.pause(16_000)
            yield now, out / UDP(sport=mine, dport=port) / Raw(office.bytes(size if turn == 0 else 33))
            yield now + 8_000, back / UDP(sport=port, dport=mine) / Raw(office.bytes(size))


def probes(office: Office) -> Iterator[Timed]:
    """Pings, and traceroutes: packets that have few hops left to live, and the routers' answers."""
    for number in range(90):
        six = number % 5 == 0
        (out, back), now = office.pair(six), office.moment()
        ask, reply = (
            (ICMPv6EchoRequest, ICMPv6EchoReply)
            if six
            else (lambda **k: ICMP(type=8, **k), lambda **k: ICMP(type=0, **k))
        )
        yield now, out / ask(id=number, seq=1) / Raw(bytes(range(48)))
        yield now + office.pause(12_000), back / reply(id=number, seq=1) / Raw(bytes(range(48)))
    for _ in range(8):
        (out, _), now, mine = office.pair(), office.moment(), office.port()
        for hop in range(1, 11):
            for attempt in range(3):
                frame = out.copy()
                frame[IP].ttl = hop
                frame = frame / UDP(sport=mine, dport=33434 + 3 * hop + attempt) / Raw(bytes(range(64, 96)))
                yield now + 4_000 * hop + 900 * attempt, frame
                answer = Ether(src=ROUTER, dst=frame.src) / IP(src=f"198.51.100.{hop}", dst=frame[IP].src, ttl=64 - hop)
                yield now + 6_000 * hop + 900 * attempt, answer / ICMP(type=11) / Raw(bytes(frame[IP])[:28])


def neighbours(office: Office) -> Iterator[Timed]:
    """What stays in one network segment: ARP, neighbour discovery, DHCP, and multicast that lives for one hop."""
    everybody = "ff:ff:ff:ff:ff:ff"
    for number in range(150):
        now, client = office.moment(), office.random.randrange(1, CLIENTS + 1)
        mac, here = f"02:00:5e:10:00:{client:02x}", f"192.168.1.{client}"
        if number % 3:
            yield (
                now,
                Ether(src=mac, dst=everybody) / ARP(op=1, hwsrc=mac, psrc=here, pdst="192.168.1.254") / Raw(bytes(18)),
            )
            answer = ARP(op=2, hwsrc=ROUTER, psrc="192.168.1.254", hwdst=mac, pdst=here)
            yield now + office.pause(400), Ether(src=ROUTER, dst=mac) / answer / Raw(bytes(18))
        else:
            ask = IPv6(src=f"fe80::{client:x}", dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt="fe80::1")
            yield now, Ether(src=mac, dst="33:33:ff:00:00:01") / ask / ICMPv6NDOptSrcLLAddr(lladdr=mac)
            tell = IPv6(src="fe80::1", dst=f"fe80::{client:x}", hlim=255) / ICMPv6ND_NA(tgt="fe80::1", R=1)
            yield now + office.pause(400), Ether(src=ROUTER, dst=mac) / tell / ICMPv6NDOptDstLLAddr(lladdr=ROUTER)
    for tick in range(12):
        now = 5_000_000 * tick + 1_234
        router = Ether(src=ROUTER, dst="01:00:5e:00:00:05") / IP(
            src="192.168.1.254", dst="224.0.0.5", ttl=1, tos=0xC0, proto=89
        )
        yield now, router / Raw(b"\x02\x01\x00\x2c" + bytes(40))  # an OSPF hello
        member = Ether(src="02:00:5e:10:00:03", dst="01:00:5e:00:00:fb") / IP(
            src="192.168.1.3", dst="224.0.0.251", ttl=1, proto=2
        )
        yield now + 7_000, member / Raw(b"\x16\x00\x09\x04\xe0\x00\x00\xfb")  # an IGMP report
        advert = IPv6(src="fe80::1", dst="ff02::1", hlim=255) / ICMPv6ND_RA()
        yield now + 9_000, Ether(src=ROUTER, dst="33:33:00:00:00:01") / advert
        search = IP(src="192.168.1.9", dst="239.255.255.250", ttl=1) / UDP(sport=50_000, dport=1900)
        yield (
            now + 11_000,
            Ether(src="02:00:5e:10:00:09", dst="01:00:5e:7f:ff:fa") / search / Raw(b"M-SEARCH * HTTP/1.1\r\n\r\n"),
        )
    ask = IP(src="0.0.0.0", dst="255.255.255.255", ttl=128) / UDP(sport=68, dport=67)
    for client in (5, 11, 19):
        mac = bytes((2, 0, 0x5E, 0x10, 0, client))
        dhcp = BOOTP(chaddr=mac, xid=client) / DHCP(options=[("message-type", "discover"), "end"])
        yield office.moment(), Ether(src=mac.hex(":"), dst=everybody) / ask / dhcp


def oddities(office: Office) -> Iterator[Timed]:
    """The less usual: tunnels, stacked tags, labels, fragments, options, SCTP."""
    branch = Ether(src="02:00:5e:30:00:01", dst=ROUTER)
    inner = (
        Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b")
        / IP(src="10.1.0.1", dst="10.1.0.2")
        / UDP(sport=7, dport=7)
    )
    outer = IP(src="198.51.100.1", dst="203.0.113.1", ttl=60)
    for _ in range(12):
        data = Raw(office.bytes(office.random.randrange(20, 200)))
        kinds: list[Packet] = [
            branch / outer / UDP(sport=49_152, dport=4789) / VXLAN(vni=42) / inner / data,
            branch / outer / GRE() / inner[IP] / data,
            branch / Dot1AD(vlan=100) / Dot1Q(vlan=10) / outer / UDP(sport=1_000, dport=2_000) / data,
            branch
            / MPLS(label=16, ttl=62, s=0)
            / MPLS(label=17, ttl=62, s=1)
            / outer
            / UDP(sport=1_000, dport=2_001)
            / data,
            branch / outer / SCTP(sport=36_412, dport=36_412, tag=9) / SCTPChunkData(data=bytes(data)),
            branch / IP(src="192.168.1.8", dst="203.0.113.8", options=[b"\x94\x04\x00\x00"]) / ICMP() / data,
            branch
            / IPv6(src="2001:db8:1::8", dst="2001:db8:f::8")
            / IPv6ExtHdrHopByHop()
            / UDP(sport=546, dport=547)
            / data,
            branch / IPv6(src="2001:db8:f::8", dst="2001:db8:1::8") / ICMPv6DestUnreach() / Raw(bytes(48)),
        ]
        for frame in kinds:
            yield office.moment(), frame
    for number in range(8):
        now = office.moment()
        whole = (
            IP(src="192.168.1.12", dst="203.0.113.53", id=number + 1)
            / UDP(sport=2049, dport=2049)
            / Raw(office.bytes(2400))
        )
        for place, piece in enumerate(fragment(whole, 1208)):
            yield now + 30 * place, branch / piece


def frames() -> list[tuple[int, bytes]]:
    """All of it in the order of time: microseconds since 1970, and the frame."""
    office = Office(SEED)
    made = [f for part in (web, names, calls, datagrams, probes, neighbours, oddities) for f in part(office)]
    return sorted((START * 1_000_000 + time, bytes(frame).ljust(60, b"\0")) for time, frame in made)


def capture() -> bytes:
    """The file: pcap with microseconds (the format of tcpdump's manual), Ethernet."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)]
    for time, frame in frames():
        parts += [struct.pack("<IIII", *divmod(time, 1_000_000), len(frame), len(frame)), frame]
    return b"".join(parts)


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(capture())
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes, {len(frames()):,} packets")
