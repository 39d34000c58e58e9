"""What a user chose for a packet port, as its parts read it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The options of a port; see :class:`wirespeed.ports.packet.port.PacketPort` for what each means."""

    name: str
    netns: str | None
    direction: str
    promiscuous: bool
    all_multicast: bool
    offloads: bool
    fanout: str
    snaplen: int
    slots: int | None
    slot: int | None
    buffer: int
    bypass: bool
    hardware_time: bool
