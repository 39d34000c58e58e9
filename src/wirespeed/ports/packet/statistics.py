"""The kernel's counters of a packet socket, which it keeps in 32 bits and clears when they are read, summed in full."""

from dataclasses import dataclass

from wirespeed.ports.packet.socket import PacketSocket

READ_S = 1.0  # between two readings; what comes in so long is far below 2^32


@dataclass
class Statistics:
    """Packets that came for the sockets of a port, and those of them that found no free slot."""

    packets: int = 0
    drops: int = 0

    def read(self, packet_socket: PacketSocket) -> None:
        """Add what a socket has counted since it was read last."""
        packets, drops = packet_socket.counts()
        self.packets += packets
        self.drops += drops
