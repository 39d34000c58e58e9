"""Our side of the filters' bench: frames in memory, and the loop of ``bench/peers/bpf_loop.c`` over compiled filters."""

import random
import struct

import numpy as np

from wirespeed.jit.bpf import call_filter
from wirespeed.jit.intrinsics import cycles, load_i64
from wirespeed.jit.kernel import kernel

i64 = np.int64
FRAMES = 4096
SEED = 7
ETHERNET = bytes.fromhex("020000000002020000000001")
IPV4, IPV6, ARP, TAG = 0x0800, 0x86DD, 0x0806, 0x8100


@kernel
def loop(code, places, n):
    """Cycles of judging ``n`` frames, and how many match."""
    found = i64(0)
    start = cycles()
    for i in range(n):
        size = load_i64(places + 16 * i + 8)
        found += i64(call_filter(code, load_i64(places + 16 * i), size, size) != 0)
    return cycles() - start, found


class Frames:
    """Frames end to end in memory; ``places`` is the address of their addresses and sizes."""

    def __init__(self, frames: list[bytes]) -> None:
        self._data = np.frombuffer(b"".join(frames), np.uint8)
        sizes = np.array([len(frame) for frame in frames], np.int64)
        self._places = np.stack([self._data.ctypes.data + np.cumsum(sizes) - sizes, sizes], axis=1)
        self.places = int(self._places.ctypes.data)
        self.n = len(frames)

    def measure(self, code: int) -> tuple[int, int]:
        """Cycles of one pass, and how many frames match."""
        took, found = loop(code, self.places, self.n)
        return int(took), int(found)


def udp64() -> Frames:
    """Frames of 64 bytes, UDP over IPv4, of many flows."""
    chance = random.Random(SEED)
    return Frames([_frame(chance, 0.0, 0.0, 17, 64) for _ in range(FRAMES)])


def mixed() -> Frames:
    """Frames of several sizes and protocols: mostly TCP, much of it of the web, some UDP, IPv6, tagged ones and ARP."""
    chance = random.Random(SEED)
    made = []
    for _ in range(FRAMES):
        if chance.random() < 0.02:
            made.append(ETHERNET + struct.pack("!H", ARP) + bytes(46))
            continue
        protocol = 6 if chance.random() < 0.7 else 17
        made.append(_frame(chance, 0.1, 0.2, protocol, chance.choice((64, 64, 64, 594, 1518))))
    return Frames(made)


def _frame(chance: random.Random, tagged: float, sixth: float, protocol: int, size: int) -> bytes:
    """One frame: with a tag or of IPv6 with these probabilities."""
    tag = struct.pack("!HH", TAG, chance.randrange(1, 4095)) if chance.random() < tagged else b""
    ports = struct.pack(
        "!HH", chance.choice((80, 443, 53, chance.randrange(1024, 65536))), chance.randrange(1024, 65536)
    )
    if chance.random() < 0.5:
        ports = ports[2:] + ports[:2]
    rest = ports + (struct.pack("!IIBBHHH", 1, 1, 0x50, 0x10, 512, 0, 0) if protocol == 6 else bytes(4))
    if chance.random() < sixth:
        addresses = bytes([0x20, 1, 0xD, 0xB8, *chance.randbytes(12)]) * 2
        header = struct.pack("!IHBB", 6 << 28, len(rest), protocol, 64) + addresses
        whole = ETHERNET + tag + struct.pack("!H", IPV6) + header + rest
    else:
        hosts = bytes([10, 0, 0, chance.randrange(4), 192, 168, chance.randrange(4), chance.randrange(256)])
        header = struct.pack("!BBHHHBBH", 0x45, 0, size - 14, 0, 0, 64, protocol, 0) + hosts
        whole = ETHERNET + tag + struct.pack("!H", IPV4) + header + rest
    return whole.ljust(size, b"\0")
