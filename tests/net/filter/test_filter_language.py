"""The filter language: what expressions mean on frames made by hand, how faults are told, and what limits there are."""

import random
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.filter.bpf_text import read_program
from wirespeed.errors import GraphError
from wirespeed.net import filter as pcap_filter
from wirespeed.net.filter import FilterError, Names, interpret
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.check import validate
from wirespeed.net.filter.link_type import LINKS, SUPPORTED, name_of
from wirespeed.net.filter.vocabulary import NUMBERS, RESERVED

MACS = bytes.fromhex("020000000002 020000000001")


def ipv4(source: str, destination: str, protocol: int, payload: bytes, offset: int = 0, options: int = 0) -> bytes:
    total = 20 + options + len(payload)
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    header = struct.pack(">BBHHHBBH", 0x45 + options // 4, 0, total, 1, offset, 64, protocol, 0) + addresses
    return header + bytes(options) + payload


def ipv6(source: str, destination: str, protocol: int, payload: bytes) -> bytes:
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + addresses + payload


def ethernet(kind: int, payload: bytes, *tags: int) -> bytes:
    return MACS + b"".join(struct.pack(">HH", 0x8100, tag) for tag in tags) + struct.pack(">H", kind) + payload


def ports(source: int, destination: int) -> bytes:
    return struct.pack(">HH", source, destination) + bytes(16)


SYN = ethernet(0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, struct.pack(">HHIIBBHHH", 1025, 80, 1, 0, 0x50, 2, 0, 0, 0)))
ACK = ethernet(0x0800, ipv4("10.0.0.2", "10.0.0.1", 6, struct.pack(">HHIIBBHHH", 80, 1025, 1, 0, 0x50, 16, 0, 0, 0)))
DNS = ethernet(0x0800, ipv4("10.0.0.1", "192.168.7.9", 17, ports(1025, 53)))
OPTIONS = ethernet(0x0800, ipv4("10.0.0.1", "10.0.0.2", 17, ports(7, 9), options=8))
FRAGMENT = ethernet(0x0800, ipv4("10.0.0.1", "10.0.0.2", 17, ports(1025, 53), offset=3))
SIX = ethernet(0x86DD, ipv6("2001:db8::1", "2001:db8::2", 6, ports(1025, 80)))
ARP = ethernet(0x0806, bytes.fromhex("0001080006040001020000000001 0a000001 000000000000 0a000002"))
TAGGED = ethernet(0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, ports(1025, 80)), 100)
TWICE = ethernet(0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, ports(1025, 80)), 100, 200)
LABELS = ethernet(0x8847, bytes.fromhex("00010000 00020100") + ipv4("10.0.0.1", "10.0.0.2", 6, ports(1025, 80)))
SESSION = ethernet(0x8864, bytes.fromhex("110000070016 0021") + ipv4("10.0.0.1", "10.0.0.2", 6, ports(1025, 80)))
INNER = bytes(12) + b"\x08\x00" + ipv4("172.16.0.1", "172.16.0.2", 6, ports(1025, 80))
VXLAN = ethernet(
    0x0800,
    ipv4("10.0.0.1", "10.0.0.2", 17, struct.pack(">HHHH", 9, 4789, 0, 0) + b"\x08" + bytes(3) + b"\0\0\7\0" + INNER),
)
GENEVE = ethernet(
    0x0800,
    ipv4(
        "10.0.0.1",
        "10.0.0.2",
        17,
        struct.pack(">HHHHBBH", 9, 6081, 0, 0, 1, 0, 0x6558) + b"\0\0\7\0" + bytes(4) + INNER,
    ),
)
EVERY = {
    "SYN": SYN,
    "ACK": ACK,
    "DNS": DNS,
    "OPTIONS": OPTIONS,
    "FRAGMENT": FRAGMENT,
    "SIX": SIX,
    "ARP": ARP,
    "TAGGED": TAGGED,
    "TWICE": TWICE,
    "LABELS": LABELS,
    "SESSION": SESSION,
    "VXLAN": VXLAN,
    "GENEVE": GENEVE,
}
V4 = "SYN ACK DNS OPTIONS FRAGMENT VXLAN GENEVE"


@pytest.mark.parametrize(
    ("expression", "matched"),
    [
        ("", " ".join(EVERY)),
        ("ip", V4),
        ("not ip", "SIX ARP TAGGED TWICE LABELS SESSION"),
        ("tcp", "SYN ACK SIX"),
        ("tcp port 80", "SYN ACK SIX"),
        ("tcp dst port 80", "SYN SIX"),
        ("tcp dst port 80 and ip", "SYN"),
        ("port 53", "DNS"),
        ("port 53 or 9", "DNS OPTIONS VXLAN GENEVE"),
        ("port (53 or 9) and src 10.0.0.1", "DNS OPTIONS VXLAN GENEVE"),
        ("udp portrange 50-60", "DNS"),
        ("udp portrange 60-50", "DNS"),
        ("port domain", "DNS"),
        ("host 10.0.0.2 and not tcp", "OPTIONS FRAGMENT ARP VXLAN GENEVE"),
        ("dst host 10.0.0.1", "ACK"),
        ("src or dst host 192.168.7.9", "DNS"),
        ("src and dst net 10.0.0.0/8 and tcp", "SYN ACK"),
        ("net 192.168", "DNS"),
        ("net 192.168.0.0 mask 255.255.0.0", "DNS"),
        ("ip6 and host 2001:db8::2", "SIX"),
        ("net 2001:db8::/32", "SIX"),
        ("host ::1 or 2001:db8::1", "SIX"),
        ("arp host 10.0.0.2", "ARP"),
        ("ether src 02:00:00:00:00:01", " ".join(EVERY)),
        ("ether dst 0200.0000.0003", ""),
        ("ether[12:2] = 0x806", "ARP"),
        ("tcp[tcpflags] & tcp-syn != 0", "SYN"),
        ("tcp[13] & (tcp-syn|tcp-ack) = tcp-ack", "ACK"),
        ("ip[6:2] & 0x1fff != 0", "FRAGMENT"),
        ("udp[0:2] = 7", "OPTIONS"),
        ("ip[ip[0] & 15 + 14] >= 0", V4),
        ("len < 60", "SYN ACK DNS FRAGMENT ARP TAGGED"),
        ("greater 90", "VXLAN GENEVE"),
        ("vlan", "TAGGED TWICE"),
        ("vlan 100 and ip", "TAGGED"),
        ("vlan 100 and vlan 200 and tcp", "TWICE"),
        ("vlan and not vlan", "TAGGED"),
        ("mpls", "LABELS"),
        ("mpls 16 and mpls 32 and host 10.0.0.1", "LABELS"),
        ("mpls 16 and host 10.0.0.1", ""),
        ("pppoes 7 and tcp port 80", "SESSION"),
        ("pppoes and ip host 10.9.9.9", ""),
        ("vxlan 7 and host 172.16.0.1", "VXLAN"),
        ("vxlan 8", ""),
        ("geneve and tcp dst port 80", "GENEVE"),
        ("geneve 7 and ether src 00:00:00:00:00:00", "GENEVE"),
        ("ip proto \\udp", "DNS OPTIONS FRAGMENT VXLAN GENEVE"),
        ("1 + 2 * 3 = 7 and arp", "ARP"),
        ("ip and (port 53 or (tcp and src port 80))", "ACK DNS"),
        ("not (ip or ip6) and not vlan and ether[14] = 0", "ARP LABELS"),
    ],
)
def test_an_expression_matches_the_right_frames(expression: str, matched: str) -> None:
    program = pcap_filter.compile(expression)
    validate(program.instructions)
    assert [name for name, frame in EVERY.items() if interpret(program, frame)] == matched.split()


@pytest.mark.parametrize(
    ("expression", "what", "pointed"),
    [
        ("tcp port 80 or or", "got 'or'", "or"),
        ("host", "got the end of the expression", ""),
        ("vlan 4096", "VLAN tag 4096 is greater than the maximum 4095", "vlan 4096"),
        ("tcp and port nosuchservice", "unknown port 'nosuchservice'", "nosuchservice"),
        ("ip proto 256 and tcp", "protocol number 256 is greater than the maximum 255", "256"),
        ("net 10.0.0.1/8", "non-network bits set in '10.0.0.1/8'", "10.0.0.1/8"),
        ("ip[0:3] = 1", "the size of bytes must be 1, 2 or 4, got 3", "3"),
        ("port 80 and (tcp", "wanted ')', got the end", ""),
        ("tcp ;", "the character ';' has no meaning here", ";"),
        ("len / 0 = 1", "division by zero", "len / 0 = 1"),
        ("08 = 1", "a digit that is not octal", "08"),
        ("len = 4294967296", "overflows 32 bits", "4294967296"),
        ("ether host 00:11:22:33:44", "invalid hardware address '00:11:22:33:44'; write six", "00:11:22:33:44"),
        ("ether host ab:cd:ef:0g:00:00", "invalid hardware address 'ab:cd:ef:0g:00:00'", "ab:cd:ef:0g:00:00"),
        ("ether host 1:2:3:4:5:6:7", "a hardware address is six bytes such as", "1:2:3:4:5:6:7"),
        ("host 1::2::3", "invalid IPv6 address '1::2::3'; write eight groups, or fewer and '::' once", "1::2::3"),
        ("net 1:2:3:4:5:6:7:8:9/64", "invalid IPv6 address '1:2:3:4:5:6:7:8:9'", "1:2:3:4:5:6:7:8:9"),
        ("host 10.0.0.1:80", "a port stands apart, as in 'host 10.0.0.1 and port 80'", ":"),
        ("len-20 > 5", "one name: write a difference with spaces, len - 20", "len-20"),
        ("host 10.0.0.1 and length-20 > 5", "write a difference with spaces, length - 20", ">"),
        ("tcp and len-20 > 5", "write a difference with spaces, len - 20", "len-20"),
        ("ip broadcast", "needs the network's mask", "ip broadcast"),
        ("inbound", "told by the kernel only", "inbound"),
        ("wlan type mgt", "'type' is not supported on link type EN10MB", "wlan type mgt"),
        ("80", "wanted an operator or a relation", ""),
        ("tcp port 80 and 1.2.3.4", "an IPv4 address", "1.2.3.4"),
    ],
)
def test_a_fault_is_told_with_its_place(expression: str, what: str, pointed: str) -> None:
    with pytest.raises(FilterError) as caught:
        pcap_filter.compile(expression)
    text, shown, carets = str(caught.value).split("\n")
    assert what in text
    assert shown == "  " + expression
    assert caught.value.position is not None
    at = carets.index("^")
    assert at == caught.value.position + 2
    assert expression.startswith(pointed, caught.value.position)
    assert carets.strip() == "^" * max(1, len(pointed))
    assert isinstance(caught.value, GraphError) and isinstance(caught.value, ValueError)


def test_a_fault_in_the_second_line_shows_that_line() -> None:
    with pytest.raises(FilterError) as caught:
        pcap_filter.compile("tcp and\n\tport oops and udp")
    assert str(caught.value).split("\n")[1:] == ["   port oops and udp", "        ^^^^"]


def test_a_fault_in_a_long_line_is_shown_with_what_stands_around_it() -> None:
    many = " or ".join(f"10.0.0.{n}" for n in range(200))
    for before, behind in ((" and ", " or " + many), (" and ", ""), ("", " or host " + many)):
        expression = (f"host {many}" if before else "") + before + "port oops" + behind
        with pytest.raises(FilterError, match="unknown port 'oops'") as caught:
            pcap_filter.compile(expression)
        _, shown, carets = str(caught.value).split("\n")
        at = carets.index("^")
        assert shown[at:].startswith("oops") and carets[at:] == "^^^^"
        assert shown.strip(" .") in expression and len(shown) <= 2 + 60 + 6
        assert (shown.startswith("  ..."), shown.endswith("...")) == (bool(before), bool(behind))
    with pytest.raises(FilterError, match="rejects all packets") as caught:
        pcap_filter.compile(f"1 = 2 and (host {many})")
    assert len(str(caught.value)) < 200


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(FilterError, match="got None, wanted an expression such as 'tcp port 80'"):
        pcap_filter.compile(None)  # type: ignore[arg-type]


def test_what_differs_from_libpcap_is_as_the_table_in_the_documents_says() -> None:
    def frame(destination: str, payload: bytes = ports(1, 2)) -> bytes:
        return ethernet(0x0800, ipv4("10.0.0.1", destination, 17, payload))

    def matches(expression: str, frame: bytes) -> bool:
        return bool(interpret(pcap_filter.compile(expression), frame))

    assert [matches("ip multicast", frame(a)) for a in ("224.0.0.1", "239.255.255.255", "240.0.0.1")] == [1, 1, 0]
    assert not matches("ip multicast", frame("255.255.255.255"))
    assert matches("host 10.0.0.1 or 1 = 1", b"") and not matches("host 10.0.0.1", b"")
    assert not matches("tcp[0:2] > 0 or ip", frame("10.0.0.2")[:20])
    assert matches("ip[0] + udp[0:2] = 0x46", frame("10.0.0.2")) and not matches(
        "ip[0] + tcp[0:2] = 0x46", frame("10.0.0.2")
    )
    assert not matches("ip[0] / (ip[1] & 0) = 1", frame("10.0.0.2"))
    assert matches("host ((1.2.3.4 or 10.0.0.2) or 1.2.3.5)", frame("10.0.0.2"))
    snp = MACS + bytes.fromhex("0026 fefe03 83 1b0100 ef 0100") + bytes(20)
    assert matches("isis proto 15", snp) and not matches("isis proto 16", snp)
    for refused in ("isis proto 32", "ip6 proto 256", "ip protochain 256", "iso proto 256", "ether proto 65536"):
        with pytest.raises(FilterError, match="greater than the maximum"):
            pcap_filter.compile(refused)
    with pytest.raises(FilterError, match="rejects all packets"):
        pcap_filter.compile("tcp[0:2] - udp[0:2] = 0")


def test_thousands_of_hosts_compile_and_match_theirs_only() -> None:
    program = pcap_filter.compile(" or ".join(f"host 10.1.{n >> 8}.{n & 255}" for n in range(4000)))
    addresses = ("10.1.0.0", "10.1.15.159", "10.1.15.160", "10.2.0.0")
    matched = [a for a in addresses if interpret(program, ethernet(0x0800, ipv4("1.1.1.1", a, 6, b"")))]
    assert matched == ["10.1.0.0", "10.1.15.159"]


def test_an_expression_that_no_packet_matches_is_refused_unless_it_may() -> None:
    with pytest.raises(FilterError, match="rejects all packets"):
        pcap_filter.compile("1 = 2")
    with pytest.raises(FilterError, match="rejects all packets"):
        pcap_filter.compile("ip6", link=LINKS["IPV4"])
    assert str(pcap_filter.compile("1 = 2", allow_never=True)) == "(000) ret      #0"


def test_an_unknown_link_type_is_refused_by_its_number_and_known_ones_are_listed() -> None:
    with pytest.raises(FilterError, match="no link type 98; they know NULL, EN10MB"):
        pcap_filter.compile("tcp", link=98)


def test_a_link_type_known_by_number_only_gives_its_bytes_and_nothing_else() -> None:
    assert pcap_filter.compile("link[0] = 1 or len > 5", link=220)
    with pytest.raises(FilterError, match="link type 220"):
        pcap_filter.compile("tcp", link=220)


@pytest.mark.parametrize("link", sorted(SUPPORTED))
def test_each_link_type_compiles_bytes_and_says_what_it_cannot(link: int) -> None:
    assert pcap_filter.compile("link[2] = 3", link=link)
    for expression in ("tcp port 80", "host 10.0.0.1", "ether host 1:2:3:4:5:6", "vlan", "mpls", "llc", "multicast"):
        try:
            validate(pcap_filter.compile(expression, link=link, allow_never=True).instructions)
        except FilterError as error:
            assert name_of(link) in error.what


def test_a_program_can_be_listed_packed_and_counted() -> None:
    program = pcap_filter.compile("ip", snaplen=96)
    lines = [
        "(000) ldh      [12]",
        "(001) jeq      #0x800           jt 2\tjf 3",
        "(002) ret      #96",
        "(003) ret      #0",
    ]
    assert str(program).splitlines() in (
        lines,
        [*lines[:1], "(001) jeq      #0x800           jt 3\tjf 2", "(002) ret      #0", "(003) ret      #96"],
    )
    assert len(program) == 4 and len(program.to_bytes()) == 32
    assert program.to_bytes()[:8] == struct.pack("=HBBI", 0x28, 0, 0, 12)
    assert (program.link, program.snaplen, program.loops, program.ancillary) == (1, 96, False, False)


def test_a_listing_read_back_is_the_same_program() -> None:
    for expression in (
        "tcp port 80",
        "ip[len - 20] / 3 % 4 ^ 5 | -len = 7 << ip[0]",
        "ip6 protochain 6",
        "wlan src 1:2:3:4:5:6 or ip",
    ):
        program = pcap_filter.compile(expression, link=LINKS["IEEE802_11_RADIO"] if "wlan" in expression else 1)
        assert read_program(str(program).splitlines()) == program.instructions


def test_arithmetic_has_the_precedence_that_the_language_has() -> None:
    def value(text: str) -> bool:
        return bool(interpret(pcap_filter.compile(f"{text}", allow_never=True), SYN))

    assert value("2 + 3 * 4 = 14") and value("(2 + 3) * 4 = 20")
    assert value("1 << 2 + 1 = 8") and value("6 & 3 | 8 = 10") and value("-1 = 0xffffffff")
    # What follows % and ^ is taken in first, and both bind tighter than what stands before them.
    assert value("10 % 4 + 3 = 3") and value("2 * 7 % 4 = 6") and value("1 | 4 ^ 4 = 1")
    assert value("7 / 2 = 3") and value("1 - 2 = 0xffffffff") and value("0x10 >> 4 = 1")


def test_a_load_beyond_the_captured_bytes_is_no_match_even_under_not() -> None:
    program = pcap_filter.compile("not tcp port 80")
    assert interpret(program, DNS) and not interpret(program, DNS[:20], len(DNS))


def test_lengths_are_those_on_the_wire() -> None:
    program = pcap_filter.compile("greater 1000")
    assert interpret(program, SYN, 1500) and not interpret(program, SYN)


def test_a_chain_of_headers_is_followed_to_its_end_and_ends_with_the_packet() -> None:
    program = pcap_filter.compile("ip6 protochain 17")
    assert program.loops
    hop = bytes((51, 0)) + bytes(6)  # then an authentication header of 16 bytes, then destination options, then UDP
    inner = hop + bytes((60, 2)) + bytes(14) + bytes((17, 1)) + bytes(14) + ports(1, 2)
    assert interpret(program, ethernet(0x86DD, ipv6("::1", "::2", 0, inner)))
    assert not interpret(program, ethernet(0x86DD, ipv6("::1", "::2", 0, inner[:20])))
    with pytest.raises(FilterError, match="or back"):
        validate(program.instructions)
    validate(program.instructions, loops=True)
    # The length that would lead libpcap's program to the same header again and again.
    assert not interpret(program, ethernet(0x86DD, ipv6("::1", "::2", 51, bytes((51, 8)) + bytes(60))))


def test_in_the_kernel_the_first_tag_stands_beside_the_packet() -> None:
    program = pcap_filter.compile("vlan 100 and tcp port 80", in_kernel=True)
    assert program.ancillary and program.in_kernel
    beside = {op.AD_VLAN_TAG_PRESENT: 1, op.AD_VLAN_TAG: 0x2064}
    none = {op.AD_VLAN_TAG_PRESENT: 0, op.AD_VLAN_TAG: 0}
    assert interpret(program, SYN, None, beside)
    assert not interpret(program, SYN, None, {**beside, op.AD_VLAN_TAG: 0x2065})
    assert interpret(program, TAGGED, None, none) and not interpret(program, SYN, None, none)
    outbound = pcap_filter.compile("outbound and ifindex 3", in_kernel=True)
    assert interpret(outbound, SYN, None, {op.AD_PKTTYPE: 4, op.AD_IFINDEX: 3})
    assert not interpret(outbound, SYN, None, {op.AD_PKTTYPE: 0, op.AD_IFINDEX: 3})


def test_hundreds_of_hosts_compile_and_match_theirs_only() -> None:
    hosts = " or ".join(f"10.1.{n >> 8}.{n & 255}" for n in range(500))
    program = pcap_filter.compile(f"src host {hosts}")
    matched = [
        n
        for n in range(490, 510)
        if interpret(program, ethernet(0x0800, ipv4(f"10.1.{n >> 8}.{n & 255}", "1.1.1.1", 6, b"")))
    ]
    assert matched == list(range(490, 500))
    with pytest.raises(FilterError, match="of which the kernel takes 4096"):
        pcap_filter.compile(f"host {hosts}", in_kernel=True)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5000 + "tcp" + ")" * 5000,
        "not " * 5000 + "tcp",
        "len = " + "1 % " * 5000 + "1",
        "len = " + "-" * 5000 + "1",
        "len = " + "len + " * 5000 + "1",
    ],
    ids=("parentheses", "not", "%", "-", "+"),
)
def test_nesting_has_a_limit_that_is_told(expression: str) -> None:
    with pytest.raises(FilterError, match="more than 100"):
        pcap_filter.compile(expression)


def test_scratch_memory_that_is_used_up_is_told() -> None:
    with pytest.raises(FilterError, match="scratch memory"):
        pcap_filter.compile(" and ".join(["vxlan"] * 6))


def test_long_sums_need_no_scratch_memory_for_each_term() -> None:
    words = " + ".join(f"ip[{n}:2]" for n in range(0, 20, 2))
    right = " + ".join(f"(ip[{n}:2] + 0)" for n in range(18, -2, -2))
    assert interpret(pcap_filter.compile(f"{words} = {right}"), SYN)
    assert not interpret(pcap_filter.compile(f"{words} = 1 + {right}"), SYN)


def test_words_that_hold_a_place_are_not_used_for_anything_else() -> None:
    inner = bytes.fromhex("aaaa03000000 86dd") + ipv6("::1", "::2", 58, bytes(12) + b"\x12\x34" + bytes(4))
    frame = bytes.fromhex("0000080000000000") + b"\x08" + bytes(23) + inner
    link = LINKS["IEEE802_11_RADIO"]
    for sums in ("ether[6:2] & ether[12] - len", "(len - 1) * (len - 2) & 0", "((len & 0) / (len / (len / len)))"):
        text = f"icmp6[12:2] - 0x1234 ^ (len & 0) = {sums}"
        assert interpret(pcap_filter.compile(text, link=link), frame), text
        assert interpret(pcap_filter.compile(f"{text} and icmp6 and {text}", link=link), frame), text
    beside = {op.AD_VLAN_TAG_PRESENT: 1, op.AD_VLAN_TAG: 7}
    program = pcap_filter.compile(
        "len / (len / (len - 1)) > 0 and vlan and len / (len / (len - 1)) > 0 and ip", in_kernel=True
    )
    assert interpret(program, SYN, None, beside)


def test_names_come_from_where_they_are_given() -> None:
    class Mine(Names):
        def host(self, name: str) -> tuple[list[int], list[int]]:
            return ([0x0A000001], []) if name == "web" else ([], [])

        def hardware(self, name: str) -> bytes | None:
            return bytes.fromhex("020000000001") if name == "web" else None

    program = pcap_filter.compile("src host web", names=Mine())
    assert interpret(program, SYN) and not interpret(program, ACK)
    assert not interpret(pcap_filter.compile("gateway web", names=Mine()), SYN)
    with pytest.raises(FilterError, match="unknown host 'db'"):
        pcap_filter.compile("host db", names=Mine())


WORDS = st.sampled_from(
    [
        *sorted(RESERVED),
        *sorted(NUMBERS)[:12],
        *"()[]!<>=+-*/%&|^:",
        "&&",
        "||",
        "<<",
        "1",
        "80",
        "10.0.0.1",
        "10.0/16",
        "::1",
    ]
    + ["1:2:3:4:5:6", "$7", "lo", "2-3", "\\tcp", "0x1f", "\x00", "é", "4294967295"]
)


@given(st.lists(WORDS, max_size=12).map(" ".join), st.sampled_from(sorted(SUPPORTED)), st.booleans())
def test_any_words_become_a_valid_program_or_a_fault_with_a_place(text: str, link: int, in_kernel: bool) -> None:
    try:
        program = pcap_filter.compile(text, link=link, in_kernel=in_kernel, allow_never=True, netmask=0xFFFFFF00)
    except FilterError as error:
        assert error.position is not None and 0 <= error.position <= len(text)
        return
    validate(program.instructions, loops=True)
    chance = random.Random(text)
    for size in (0, 1, 14, 60, 200):
        assert interpret(program, chance.randbytes(size)) in (0, program.snaplen)
