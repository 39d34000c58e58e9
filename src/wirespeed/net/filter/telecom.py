"""The primitives of SunATM captures (vpi, vci and named channels) and of SS7 captures (MTP2 and MTP3).

*Source:* pcap-filter(7); ITU-T Q.703 (MTP2), Q.704 (MTP3), Q.2931 (signalling messages), I.361 and I.610 (ATM channels).
"""

from wirespeed.net.filter import link_type
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.arithmetic import RELATIONS
from wirespeed.net.filter.block import Condition, any_of, both
from wirespeed.net.filter.error import LinkError
from wirespeed.net.filter.kind import ATM_TYPE_MASK, limited
from wirespeed.net.filter.layers import HEADER, PACKET, Layers
from wirespeed.net.filter.syntax import Comparison
from wirespeed.net.filter.tunnel import lane
from wirespeed.net.filter.vocabulary import ATM_FIELDS, ATM_TYPES, MTP2_TYPES

WORDS = (*ATM_TYPES, *MTP2_TYPES)

VPI_AT, VCI_AT, MESSAGE_AT = 1, 2, 4 + 5
CHANNELS = {"metac": 1, "bcc": 2, "oamf4sc": 3, "oamf4ec": 4, "sc": 5, "ilmic": 16}  # VCIs of path 0
LANE = 0x01
SETUP, CALL_PROCEED, CONNECT, CONNECT_ACK, RELEASE, RELEASE_DONE = 0x05, 0x02, 0x07, 0x0F, 0x4D, 0x5A
# The channel on which messages that open and close a connection go, and these messages.
MESSAGES = {
    "connectmsg": ("sc", (RELEASE_DONE, RELEASE, CONNECT_ACK, CONNECT, SETUP, CALL_PROCEED)),
    "metaconnect": ("metac", (RELEASE_DONE, RELEASE, CONNECT, SETUP, CALL_PROCEED)),
}

LENGTH_MASK, HIGH_LENGTH_MASK = 0x3F, 0xFF80
STATUS_MOST, HIGH_STATUS_MOST = 2, 0x0100  # a longer signal unit is a message
HIGH = 3  # high speed links have three bytes more before these fields
SERVICE_MOST, CODE_MOST, SELECTION_MOST = 0xFF, 0x3FFF, 0x0F


def named_type(layers: Layers, word: str) -> Condition:
    """A word that stands alone: a channel or message of ATM, a signal unit of MTP2."""
    return _atm_type(layers, word) if word in ATM_TYPES else _signal_unit(layers, word)


def field(layers: Layers, node: Comparison) -> Condition:
    """A field that has a relation to a value, or one of some values."""
    one = _atm_field if node.word in ATM_FIELDS else _mtp3_field
    operation, positive = RELATIONS[node.sign]
    return any_of(*(one(layers, node.word, value, operation, positive) for value in node.values))


def _atm_type(layers: Layers, word: str) -> Condition:
    _need_atm(layers, word)
    if word == "lane":
        return lane(layers, layers.equal(HEADER, 0, 1, LANE, ATM_TYPE_MASK))
    if word in MESSAGES:
        channel, messages = MESSAGES[word]
        return both(_atm_type(layers, channel), any_of(*(layers.equal(HEADER, MESSAGE_AT, 1, m) for m in messages)))
    channels = (3, 4) if word in ("oam", "oamf4") else (CHANNELS[word],)
    return both(layers.equal(HEADER, VPI_AT, 1, 0), any_of(*(layers.equal(HEADER, VCI_AT, 2, c) for c in channels)))


def _atm_field(layers: Layers, word: str, value: int, operation: int, positive: bool) -> Condition:
    _need_atm(layers, word)
    if word == "vpi":
        limited(value, 0xFF, "VPI")
        return layers.compare(HEADER, VPI_AT, 1, operation, value, positive=positive)
    limited(value, 0xFFFF, "VCI")
    return layers.compare(HEADER, VCI_AT, 2, operation, value, positive=positive)


def _need_atm(layers: Layers, word: str) -> None:
    if layers.link != "SUNATM":
        raise LinkError(f"'{word}' is supported on link type SUNATM only, not on {layers.link}")


def _places(layers: Layers, word: str) -> dict[str, int]:
    if layers.link not in link_type.SS7:
        raise LinkError(f"'{word}' is supported on SS7 link types only, not on {layers.link}")
    return link_type.SS7[layers.link]


def _signal_unit(layers: Layers, word: str) -> Condition:
    """A signal unit by its length: none of a fill-in unit, one or two bytes of a status unit, more of a message."""
    places = _places(layers, word)
    high = word.startswith("h")
    at, size = (places["hli"], 2) if high else (places["li"], 1)
    mask, status = (HIGH_LENGTH_MASK, HIGH_STATUS_MOST) if high else (LENGTH_MASK, STATUS_MOST)

    def length(operation: int, value: int, positive: bool = True) -> Condition:
        return layers.compare(PACKET, at, size, operation, value, mask, positive)

    if word.endswith("fisu"):
        return length(op.JEQ, 0)
    if word.endswith("lssu"):
        return both(length(op.JGT, 0), length(op.JGT, status, positive=False))
    return length(op.JGT, status)


def _mtp3_field(layers: Layers, word: str, value: int, operation: int, positive: bool) -> Condition:
    """A field of the routing label, whose bits are in little-endian order."""
    places = _places(layers, word)
    name = word[-3:]
    at = places[name] + (HIGH if len(word) > 3 else 0)
    if name == "sio":
        limited(value, SERVICE_MOST, word)
        return layers.compare(PACKET, at, 1, operation, value, positive=positive)
    if name == "sls":
        limited(value, SELECTION_MOST, word)
        return layers.compare(PACKET, at, 1, operation, value << 4, SELECTION_MOST << 4, positive)
    limited(value, CODE_MOST, word)
    size, shift = (4, 14) if name == "opc" else (2, 0)

    def as_loaded(code: int) -> int:
        return int.from_bytes((code << shift).to_bytes(size, "little"))

    return layers.compare(PACKET, at, size, operation, as_loaded(value), as_loaded(CODE_MOST), positive)
