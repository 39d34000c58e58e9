"""Hardware addresses of 802.11 frames, which has up to four of them in roles that depend on the frame.

*Source:* IEEE 802.11-2020 sections 9.2.4 and 9.3, table 9-60.
"""

from collections.abc import Callable

from wirespeed.net.filter.block import Condition, both, either
from wirespeed.net.filter.layers import HEADER, Layers
from wirespeed.net.filter.vocabulary import (
    WLAN_CONTROL,
    WLAN_DATA,
    WLAN_DIRECTION_MASK,
    WLAN_SUBTYPE_MASK,
    WLAN_TYPE_MASK,
)

TO_DS, FROM_DS = 0x01, 0x02
DATA_BIT, CONTROL_BIT = WLAN_DATA, WLAN_CONTROL  # type 2 has the one bit, type 1 the other, management none
CTS, ACK = 0xC0, 0xD0
ADDRESS1, ADDRESS2, ADDRESS3, ADDRESS4 = 4, 10, 16, 24


def destination(layers: Layers, at: Callable[[int], Condition]) -> Condition:
    """A test of the receiver's address, which is the first one, or the third on the way to a distribution system."""
    to_ds = _depending(layers, 1, TO_DS, at(ADDRESS1), at(ADDRESS3))
    return _not_control(layers, _depending(layers, 0, DATA_BIT, at(ADDRESS1), to_ds))


def source(layers: Layers, at: Callable[[int], Condition]) -> Condition:
    """A test of the sender's address: the second, the third from a distribution system, the fourth within one."""
    to_ds = _depending(layers, 1, TO_DS, at(ADDRESS3), at(ADDRESS4))
    from_ds = _depending(layers, 1, FROM_DS, at(ADDRESS2), to_ds)
    return _not_control(layers, _depending(layers, 0, DATA_BIT, at(ADDRESS2), from_ds))


def _depending(layers: Layers, byte: int, bit: int, clear: Condition, set_: Condition) -> Condition:
    """One condition where a bit of the frame control is clear, another where it is set."""
    is_clear = layers.has_bits(HEADER, byte, 1, bit, positive=False)
    is_set = layers.has_bits(HEADER, byte, 1, bit)
    return either(both(is_clear, clear), both(is_set, set_))


def _not_control(layers: Layers, condition: Condition) -> Condition:
    return both(layers.has_bits(HEADER, 0, 1, CONTROL_BIT, positive=False), condition)


def wlan_host(layers: Layers, address: bytes, direction: str | None) -> Condition:
    """A hardware address in one of its roles."""

    def at(offset: int) -> Condition:
        return layers.bytes_equal(HEADER, offset, address)

    def not_of(value: int, mask: int) -> Condition:
        return layers.unequal(HEADER, 0, 1, value, mask)

    match direction:
        case "src":
            return source(layers, at)
        case "dst":
            return destination(layers, at)
        case "src and dst":
            return both(source(layers, at), destination(layers, at))
        case "addr1":
            return at(ADDRESS1)
        case "addr2" | "ta":
            # Clear-to-send and acknowledgement frames have one address only.
            not_short = both(not_of(CTS, WLAN_SUBTYPE_MASK), not_of(ACK, WLAN_SUBTYPE_MASK))
            present = either(not_of(WLAN_CONTROL, WLAN_TYPE_MASK), not_short)
            if direction == "ta":
                present = both(layers.has_bits(HEADER, 0, 1, DATA_BIT), present)
            return both(present, at(ADDRESS2))
        case "addr3":
            return both(not_of(WLAN_CONTROL, WLAN_TYPE_MASK), at(ADDRESS3))
        case "addr4":
            four = layers.equal(HEADER, 1, 1, TO_DS | FROM_DS, WLAN_DIRECTION_MASK)
            return both(four, at(ADDRESS4))
        case "ra":
            return both(layers.has_bits(HEADER, 0, 1, DATA_BIT), at(ADDRESS1))
    return either(source(layers, at), destination(layers, at))
