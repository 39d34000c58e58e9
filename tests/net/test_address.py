"""Addresses as text and integers."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.net import address


@given(st.integers(0, 2**48 - 1))
def test_a_mac_address_comes_back_from_its_text(value: int) -> None:
    text = address.mac_text(value)
    assert address.mac(text) == value
    assert address.mac(text.upper().replace(":", "-")) == value
    assert address.mac(text.replace(":", "")) == value
    digits = text.replace(":", "")
    assert address.mac(f"{digits[:4]}.{digits[4:8]}.{digits[8:]}") == value


def test_single_digits_of_a_mac_address_may_stand_alone() -> None:
    assert address.mac("0:1b:2:0:0:f") == 0x001B0200000F


NO_MAC = [
    "", "02:00:00:00:00", "02:00:00:00:00:01:02", "02-00:00:00:00:01", "g2:00:00:00:00:01", "0200.0000.00",
    "02:00:00:00:00:001", " 02:00:00:00:00:01", "2.0.0.0",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_MAC)
def test_what_is_no_mac_address_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        address.mac(text)
    assert repr(text) in str(raised.value)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_comes_back_from_its_text(value: ipaddress.IPv4Address) -> None:
    assert address.ipv4(str(value)) == int(value)
    assert address.ipv4_text(int(value)) == str(value)


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_comes_back_from_its_halves(value: ipaddress.IPv6Address) -> None:
    high, low = address.ipv6_halves(str(value))
    assert high << 64 | low == address.ipv6(str(value)) == int(value)
    assert address.ipv6_text(high, low) == str(value)


def test_group_and_local_are_bits_of_the_first_octet() -> None:
    assert address.mac("01:00:5e:00:00:01") & address.GROUP
    assert address.BROADCAST & address.GROUP
    assert address.mac("02:00:00:00:00:01") & address.LOCAL
    assert not address.mac("00:1b:21:00:00:01") & (address.GROUP | address.LOCAL)


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.256", "::1", "010.0.0.1"])
def test_what_is_no_ipv4_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        address.ipv4(text)
