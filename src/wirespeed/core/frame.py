"""A packet outside the data path: bytes, and what is known about them, as one small Python value.

Ports that hand packets to a Python program (``memory:``) make these of what came out of a graph, and take these,
plain bytes, or anything with ``__bytes__``, such as a scapy packet.  scapy itself is imported only when asked for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from wirespeed.errors import GraphError

ETHERNET = 1  # LINKTYPE_ETHERNET, https://www.tcpdump.org/linktypes.html


@dataclass(frozen=True, slots=True, repr=False)
class Packet:
    """The bytes of one packet; ``bytes(packet)`` and ``len(packet)`` are those and how many.

    ``time`` is in nanoseconds since 1970 (0: not known), ``port`` the number of the port it came in by, ``wire`` its
    length on the wire, which is more than ``length`` where a capture cut it (0 stands for the length), ``link`` the
    link type of its first header (LINKTYPE_*), ``mark`` the word that functions may set.
    """

    data: bytes
    time: int = 0
    port: int = 0
    wire: int = 0
    link: int = ETHERNET
    mark: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", bytes(self.data))
        object.__setattr__(self, "wire", self.wire or len(self.data))

    @property
    def length(self) -> int:
        """How many bytes there are."""
        return len(self.data)

    def __bytes__(self) -> bytes:
        return self.data

    def __len__(self) -> int:
        return len(self.data)

    def to_scapy(self) -> Any:
        """A scapy packet of these bytes, by the link type, with its time and length on the wire.  Needs scapy."""
        import scapy.layers.all  # noqa: F401  (binds the link types)
        from scapy.config import conf
        from scapy.utils import EDecimal

        layer = conf.l2types.num2layer.get(self.link, conf.raw_layer)
        made = layer(self.data)
        made.time = EDecimal(self.time) / EDecimal(10**9)
        made.wirelen = self.wire
        return made

    @classmethod
    def from_scapy(cls, made: Any) -> "Packet":
        """The bytes that a scapy packet builds, with its time where it was captured and its link type."""
        import scapy.layers.all  # noqa: F401
        from scapy.config import conf

        # The time of a packet that was built and not dissected is that of its making, and says nothing.
        time = int(Decimal(str(made.time)) * 10**9) if made.original else 0
        link = conf.l2types.layer2num.get(type(made), ETHERNET)
        return cls(bytes(made), time, wire=getattr(made, "wirelen", None) or 0, link=link)

    def __repr__(self) -> str:
        shown = self.data[:16].hex(" ")
        more = " ..." if len(self.data) > 16 else ""
        return f"<Packet {len(self.data)} bytes, time {self.time}, port {self.port}: {shown}{more}>"


def as_packets(frames: Iterable[Any], time: int = 0) -> list[Packet]:
    """Packets of bytes-likes, :class:`Packet` and whatever has ``__bytes__``; ``time`` is for those that have none."""
    return [_as_packet(frame, time) for frame in frames]


def _as_packet(frame: Any, time: int) -> Packet:
    if isinstance(frame, Packet):
        return frame
    if isinstance(frame, bytes | bytearray | memoryview):
        return Packet(bytes(frame), time)
    if hasattr(frame, "__bytes__"):
        return Packet(bytes(frame), time)
    raise GraphError(f"got {type(frame).__name__}, wanted bytes, a Packet or something with __bytes__ for a frame")
