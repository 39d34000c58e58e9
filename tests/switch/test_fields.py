"""The declaration of a flow's fields."""

import itertools

from wirespeed.switch.fields import FIELDS, HEADER_WORDS, NAMES, WORDS

# Fields that no packet has together, or of which one is a part of the other.
SHARED = (
    {"in_port", "in_port_oxm"},
    {"vlan_tci", "dl_vlan", "dl_vlan_pcp", "vlan_vid", "vlan_pcp"},
    {"nw_src", "arp_spa"},
    {"nw_dst", "arp_tpa"},
    {"nw_proto", "arp_op"},
    {"nw_tos", "ip_dscp"},
    {"arp_sha", "nd_sll"},
    {"arp_tha", "nd_tll"},
    {"tcp_src", "udp_src", "sctp_src", "icmp_type", "icmpv6_type"},
    {"tcp_dst", "udp_dst", "sctp_dst", "icmp_code", "icmpv6_code"},
)


def test_fields_that_a_packet_has_together_have_bits_of_their_own() -> None:
    for one, other in itertools.combinations(FIELDS.values(), 2):
        if "reg" in one.name and "reg" in other.name:
            continue
        if not any({one.name, other.name} <= shared for shared in SHARED):
            assert not one.mask & other.mask, (one.name, other.name)


def test_registers_are_halves_of_wider_ones() -> None:
    for n in range(8):
        assert FIELDS[f"xreg{n}"].mask == FIELDS[f"reg{2 * n}"].mask | FIELDS[f"reg{2 * n + 1}"].mask
        assert FIELDS[f"reg{2 * n}"].at == FIELDS[f"xreg{n}"].at + 32
    for n in range(4):
        assert FIELDS[f"xxreg{n}"].mask == FIELDS[f"xreg{2 * n}"].mask | FIELDS[f"xreg{2 * n + 1}"].mask
        assert FIELDS[f"xreg{2 * n}"].at == FIELDS[f"xxreg{n}"].at + 64


def test_a_field_is_in_one_word_or_in_whole_ones() -> None:
    for field in FIELDS.values():
        assert field.at + field.bits <= 64 * WORDS
        assert field.at % 64 == 0 if field.bits > 64 else field.shift + field.bits <= 64, field.name


def test_what_stands_for_bytes_of_the_packet_comes_first() -> None:
    metadata = {"metadata", "pkt_mark", "tun_id"}
    for field in FIELDS.values():
        assert (field.word >= HEADER_WORDS) == (field.name in metadata or "reg" in field.name), field.name


def test_a_field_has_the_value_of_its_bits() -> None:
    assert FIELDS["tcp_dst"].get(80 << FIELDS["tcp_dst"].at) == 80
    assert FIELDS["ipv6_src"].get(1 << FIELDS["ipv6_src"].at + 127) == 1 << 127


def test_every_name_is_of_one_field() -> None:
    assert NAMES["eth_src"] is NAMES["nxm_of_eth_src"] is NAMES["dl_src"] is FIELDS["dl_src"]
    assert NAMES["ipv4_dst"] is NAMES["oxm_of_ipv4_dst"] is FIELDS["nw_dst"]
    assert len(NAMES) == len({*NAMES})
