"""Random expressions of the filter language, most of them right."""

import random

HOSTS = ("10.0.0.1", "192.168.7", "10.0.0.0/8", "172.16.0.0 mask 255.240.0.0", "fe80::1", "2001:db8::/32", "1.2.3.4")
MACS = ("00:11:22:33:44:55", "0011.2233.4455", "a-b-c-d-e-f")
PROTOCOLS = ("ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "ether", "atalk", "iso")
ALONE = (*PROTOCOLS, "esp", "ah", "pim", "aarp", "decnet", "stp", "ipx", "netbeui", "lat", "clnp", "vrrp")
WORDS = (
    "vlan",
    "vlan 7",
    "mpls",
    "mpls 100",
    "pppoes",
    "pppoes 5",
    "pppoed",
    "geneve",
    "geneve 3",
    "llc",
    "llc u",
    "llc rr",
)
INDEXED = ("ip", "ip6", "tcp", "udp", "icmp", "ether", "arp", "icmp6")


def phrase(chance: random.Random, depth: int = 3) -> str:
    """An expression."""
    kind = chance.randrange(10)
    if depth and kind < 4:
        joined = chance.choice((" and ", " or ", " && ", " || ")).join(phrase(chance, depth - 1) for _ in range(2))
        return f"({joined})" if chance.randrange(3) == 0 else joined
    if depth and kind == 4:
        return chance.choice(("not ", "! ", "not not ")) + f"({phrase(chance, depth - 1)})"
    if kind < 7:
        return _qualified(chance)
    if kind == 7:
        return f"{arithmetic(chance, 2)} {chance.choice(('=', '==', '!=', '<', '<=', '>', '>='))} {arithmetic(chance, 2, first=False)}"
    return chance.choice((*ALONE, *WORDS, *WORDS, "broadcast", "multicast", "ip multicast", "less 60", "greater 100"))


def _qualified(chance: random.Random) -> str:
    direction = chance.choice(("", "", "src ", "dst ", "src or dst ", "src and dst "))
    kind = chance.randrange(5)
    if kind == 0:
        first = f"{chance.choice(('', '', 'ip ', 'ip6 ', 'arp '))}{direction}{chance.choice(('host', 'net'))} {chance.choice(HOSTS)}"
        return first + chance.choice(("", "", f" or {chance.choice(HOSTS)}", f" and not {chance.choice(HOSTS)}"))
    if kind == 1:
        first = f"{chance.choice(('', 'tcp ', 'udp '))}{direction}port {chance.choice(('80', '53', '0x16', 'domain', '(1 or 2)'))}"
        return first + chance.choice(("", " or 90", " or (91 or 92)", " and not 93"))
    if kind == 2:
        return (
            f"{chance.choice(('', 'tcp ', 'sctp '))}{direction}portrange {chance.choice(('1-5', '9-3', '22-domain'))}"
        )
    if kind == 3:
        return f"{chance.choice(('ip ', 'ip6 ', '', 'ether '))}proto {chance.choice(('6', '17', '51', '(1 or 2)'))}"
    return f"ether {direction or 'dst '}{chance.choice(('host ', ''))}{chance.choice(MACS)}"


def arithmetic(chance: random.Random, depth: int, first: bool = True) -> str:
    """One side of a relation; ``first``: the first operand of all, which may be bytes of any protocol.

    libpcap loses the test for the protocol of a right operand, and then answers for packets that have no such bytes.
    """
    kind = chance.randrange(6)
    if depth and kind < 3:
        sign = chance.choice(("+", "-", "*", "/", "&", "|", "<<", ">>", "%", "^"))
        right = str(chance.randrange(1, 9)) if sign in ("/", "%", "<<", ">>") else arithmetic(chance, depth - 1, False)
        left = arithmetic(chance, depth - 1, first)
        return f"({left} {sign} {right})" if chance.randrange(3) == 0 else f"{left} {sign} {right}"
    if kind == 3:
        return "len"
    if kind == 4 and not first:
        return str(chance.choice((0, 1, 6, 60, "0x0800", "tcp-syn", "icmp-echo")))
    return f"{chance.choice(INDEXED if first else ('ether',))}[{chance.choice(('0', '6', '12', 'len - 30', 'tcpflags'))}{chance.choice(('', ':2', ':4'))}]"
