"""Feature bits by their names: those of virtio, of its network device, and of the vhost-user protocol.

*Source:* virtio 1.2, sections 6 and 5.1.3; QEMU, docs/interop/vhost-user.rst, "Protocol features".
"""

from collections.abc import Iterable
from enum import IntEnum


class Feature(IntEnum):
    """Numbers of the bits that driver and device negotiate."""

    CSUM = 0  # the driver may leave checksums to the device,
    GUEST_CSUM = 1  # and the device to the driver
    MTU = 3
    MAC = 5
    GUEST_TSO4 = 7
    GUEST_TSO6 = 8
    GUEST_ECN = 9
    GUEST_UFO = 10
    HOST_TSO4 = 11
    HOST_TSO6 = 12
    HOST_ECN = 13
    HOST_UFO = 14
    MRG_RXBUF = 15  # a received packet may lie in several buffers
    STATUS = 16
    CTRL_VQ = 17
    CTRL_RX = 18
    CTRL_VLAN = 19
    GUEST_ANNOUNCE = 21
    MQ = 22
    CTRL_MAC_ADDR = 23
    NOTIFY_ON_EMPTY = 24  # of drivers before virtio 1
    LOG_ALL = 26  # vhost: writes into the guest's memory are logged
    ANY_LAYOUT = 27  # the header need not be a descriptor of its own
    INDIRECT_DESC = 28
    EVENT_IDX = 29
    PROTOCOL_FEATURES = 30  # vhost-user: there are protocol features
    VERSION_1 = 32
    ACCESS_PLATFORM = 33
    RING_PACKED = 34
    IN_ORDER = 35
    ORDER_PLATFORM = 36
    NOTIFICATION_DATA = 38
    RING_RESET = 40
    GUEST_USO4 = 54
    GUEST_USO6 = 55
    HOST_USO = 56
    HASH_REPORT = 57
    SPEED_DUPLEX = 63


class ProtocolFeature(IntEnum):
    """Numbers of the bits that the two ends of a vhost-user socket negotiate."""

    MQ = 0
    LOG_SHMFD = 1
    RARP = 2
    REPLY_ACK = 3
    NET_MTU = 4
    BACKEND_REQ = 5
    CROSS_ENDIAN = 6
    CRYPTO_SESSION = 7
    PAGEFAULT = 8
    CONFIG = 9
    BACKEND_SEND_FD = 10
    HOST_NOTIFIER = 11
    INFLIGHT_SHMFD = 12
    RESET_DEVICE = 13
    INBAND_NOTIFICATIONS = 14
    CONFIGURE_MEM_SLOTS = 15
    STATUS = 16


def bits(features: Iterable[int]) -> int:
    """The word in which these features are set."""
    word = 0
    for number in features:
        word |= 1 << number
    return word


def has(word: int, feature: int) -> bool:
    """Whether a feature is set."""
    return bool(word >> feature & 1)


def names(word: int, kind: type[IntEnum] = Feature) -> list[str]:
    """The features of a word by name, those that have none here as ``bit 41``."""
    known = {member.value: member.name for member in kind}
    return [known.get(n, f"bit {n}") for n in range(word.bit_length()) if word >> n & 1]
