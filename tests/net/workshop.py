"""A pool with a cache for tests of what is done to single packets: frames into packets of any shape, and out again."""

import itertools
from typing import Any

import numpy as np

from tests.core.test_packet import chain
from tests.driver import free, take
from wirespeed.core.chain import copy_in
from wirespeed.core.packet import HEADROOM, PARTIAL, Packet, copy_out
from wirespeed.core.packet_pool import PacketPool
from wirespeed.net.offload import describe
from wirespeed.net.virtio_net import VirtioNetHeader

ROOM = 4096  # handles that fit behind :attr:`Workshop.out`


class Workshop:
    """Packets of frames, and frames of packets; at its end the pool must be whole."""

    def __init__(self, size: int = 4096, room: int = HEADROOM + 2048) -> None:
        self.pool = PacketPool(size, room)
        self.cache = self.pool.cache()
        self.out = np.zeros(ROOM, np.int64)

    def packet(self, frame: bytes, cuts: tuple[int, ...] = (), link: int = 1) -> int:
        """A packet of these bytes; its segments begin at the start and at each offset of ``cuts``."""
        places = sorted({0, *(c for c in cuts if 0 < c < len(frame))}) + [len(frame)]
        first = 0
        for begin, end in itertools.pairwise(places):
            piece = np.frombuffer(frame[begin:end] or b"\0", np.uint8)
            handle = int(take(self.cache, end - begin))
            assert handle, "the pool is empty"
            copy_in(handle, 0, end - begin, piece.ctypes.data)
            if first:
                assert chain(first, handle)
            else:
                first = handle
        p = Packet.at(first)
        p.link, p.wire = link, len(frame)
        return first

    def partial(
        self, frame: bytes, start: int, place: int, size: int = 0, kind: int = 0, cuts: tuple[int, ...] = ()
    ) -> int:
        """A packet that :func:`describe` was told of: its sum begins at ``start``, its field is ``place`` behind it."""
        handle = self.packet(frame, cuts)
        assert self.described(handle, flags=1, csum_start=start, csum_offset=place, gso_size=size, gso_type=kind)
        assert Packet.at(handle).flags & PARTIAL
        return handle

    def described(self, handle: int, length: int = 10, **fields: int) -> bool:
        """What :func:`describe` says of a header with these fields."""
        buffer = bytearray(VirtioNetHeader.size)
        header = VirtioNetHeader(buffer)
        for name, value in fields.items():
            setattr(header, name, value)
        memory = np.frombuffer(buffer, np.uint8)
        return bool(describe(handle, memory.ctypes.data, length))

    def bytes(self, handle: int) -> bytes:
        """The bytes of a packet."""
        total = Packet.at(handle).total
        data = np.zeros(total + 1, np.uint8)
        assert copy_out(handle, 0, total, data.ctypes.data) == total
        return data[:-1].tobytes()

    def frames(self, n: int) -> list[bytes]:
        """The bytes of the first ``n`` packets at ``out``, which are freed."""
        found = [self.bytes(int(handle)) for handle in self.out[:n]]
        self.free(*self.out[:n])
        return found

    def free(self, *handles: Any) -> None:
        """Free packets."""
        kept = np.array(handles, np.int64)
        free(self.cache, kept.ctypes.data, len(kept))

    def whole(self) -> bool:
        """Whether every packet is back."""
        return bool(self.pool.whole)

    def close(self) -> None:
        """Every packet must be back."""
        whole = self.whole()
        self.pool.close()
        assert whole, "packets are missing"
