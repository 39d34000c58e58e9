"""The keys that kernels for one shape take from packets are those that the generic one takes, whatever the packets are."""

import random

import numpy as np
import pytest

from tests.conftest import TORTURE
from tests.driver import free, take
from tests.switch.wild_frames import damaged_frames, whole_frames
from wirespeed.core.arena import Arena
from wirespeed.core.chain import copy_in
from wirespeed.core.packet import HEADROOM, PARTIAL, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import drain
from wirespeed.jit import generated, libc
from wirespeed.jit.kernel import kernel
from wirespeed.switch import specialise, stage
from wirespeed.switch.fields import FIELDS, HEADER_WORDS, W_DERIVED, WORDS
from wirespeed.switch.live import HASH_BITS, OF_FLOW, LiveBits, with_fragments
from wirespeed.switch.memory import MOST_PORTS, PORT, PortRecord, Shared
from wirespeed.switch.state import State

i64 = np.int64
N = 20_000 if TORTURE else 1_500
TTL_FLOOR = 15 << 64 * W_DERIVED + 32
EVERYTHING = (1 << 64 * HEADER_WORDS) - 1 | HASH_BITS | TTL_FLOOR | TTL_FLOOR << 4


def bits_of(*names: str) -> int:
    return sum(FIELDS[name].mask for name in names)


def random_bits(seed: int) -> int:
    rng = random.Random(seed)
    return EVERYTHING & rng.getrandbits(64 * WORDS) & rng.getrandbits(64 * WORDS)


SHAPES = {
    "nothing": 0,
    "links": bits_of("dl_dst", "dl_src", "dl_type", "vlan_tci"),
    "labels": bits_of("dl_dst", "mpls_label", "mpls_bos") | 0xFFFFFFFF << 64 * 9 + 32,
    "flow": OF_FLOW,
    "ports": bits_of("tcp_src", "tcp_dst", "tcp_flags", "nw_proto"),
    "hash": bits_of("nw_ttl", "nw_tos", "nw_ecn") | HASH_BITS | TTL_FLOOR,
    "everything": EVERYTHING,
    "random": random_bits(3),
}

_PROBE = '''

@kernel
def probe(state, handle, key, live):
    """The key that the stage makes."""
    s = State(state)
    shared = Shared(s.shared)
    found = key_of(s, shared.ports, shared.seed, Packet(handle), handle, key, live)
    for j in range(len(found)):
        store_u64(key + 8 * j, found[j])
'''


@kernel
def plain(state, handle, key, live):
    """The key of the generic stage."""
    stage.slow_key(State(state), handle, key, live)


class Bed:
    """What both need of a switch: its ports, a seed, a flow to work on, and packets."""

    def __init__(self) -> None:
        self.arena = Arena(1 << 20)
        self.state = self.arena.alloc(State.size)
        state = State.at(self.state)
        state.shared, state.flow = self.arena.alloc(Shared.size), self.arena.alloc(8 * WORDS)
        shared = Shared.at(state.shared)
        shared.ports, shared.seed = self.arena.alloc(PORT * (MOST_PORTS + 1)), 77
        for place in range(4):
            PortRecord.at(shared.ports + PORT * place).number = 100 + place
        self.live = self.arena.alloc(4096)
        self.keys = np.zeros((2, WORDS), np.uint64)

    def shape(self, bits: int):
        """The kernel for a shape, and how many words its keys have."""
        live = LiveBits()
        live.add(bits)
        record = live.record()
        libc.copy_in(self.live, record)
        text = specialise.source(live) + _PROBE
        return generated.load(text, "probe", stage.__file__, "switches").probe, len(live.words())

    def both(self, probe, k: int, handle: int) -> tuple[list[int], list[int]]:
        self.keys[:] = 0xAA
        mine, theirs = (i64(row.ctypes.data) for row in self.keys)
        probe(i64(self.state), i64(handle), mine, i64(self.live))
        plain(i64(self.state), i64(handle), theirs, i64(self.live))
        return self.keys[0, :k].tolist(), self.keys[1, :k].tolist()


@pytest.fixture(scope="module")
def bed():
    made = Bed()
    yield made
    made.arena.close()


@pytest.mark.parametrize("name", SHAPES)
def test_keys_of_all_sorts_of_packets_are_those_of_the_generic_kernel(bed: Bed, name: str) -> None:
    probe, k = bed.shape(SHAPES[name])
    rng = random.Random(name)
    frames = [*whole_frames(), *damaged_frames(len(name), N)]
    frames += [frame[:n] for frame in rng.sample(frames, 60) for n in range(0, len(frame), 7)]
    big = [_long(frame, n) for frame in whole_frames()[::9] for n in (65535, 65536, 66000)]
    # Buffers of several sizes: most packets in one piece, or all in small ones.
    for room, chosen in ((2048, frames), (20, frames), (64, frames[::2]), (2048, big)):
        with PacketPool(4096, HEADROOM + room) as pool:
            cache = i64(pool.cache(arena=bed.arena))
            for frame in chosen:
                for flags in (0, PARTIAL) if len(frame) > 60_000 else (0,):
                    handle = int(take(cache, i64(len(frame))))
                    assert handle
                    content = np.frombuffer(frame or b"\0", np.uint8)
                    copy_in(i64(handle), i64(0), i64(len(frame)), i64(content.ctypes.data))
                    p = Packet.at(handle)
                    p.port, p.flags = rng.randrange(4), p.flags | flags
                    p.link = 1 if rng.random() < 0.97 else rng.choice((0, 101, 113))
                    mine, theirs = bed.both(probe, k, handle)
                    assert mine == theirs, (frame[:100].hex(), len(frame), room, p.link)
                    burst = np.array([handle], np.int64)
                    free(cache, i64(burst.ctypes.data), i64(1))
            drain(cache)
            pool.close_cache(int(cache))


def _long(frame: bytes, size: int) -> bytes:
    """A frame of so many bytes whose IP header says that all of it, or as much as it can say, is its own."""
    made = bytearray(frame.ljust(size, b"\0"))
    if made[12:14] == b"\x08\0":
        made[16:18] = min(size - 14, 65535).to_bytes(2)
    elif made[12:14] == b"\x86\xdd":
        made[18:20] = min(size - 54, 65535).to_bytes(2)
    return bytes(made)


def test_bits_that_matter_are_counted_and_let_go_of_when_asked() -> None:
    live, model = LiveBits(), []
    rng = random.Random(1)
    always = live.bits
    for _ in range(300):
        if model and rng.random() < 0.5:
            live.remove(model.pop(rng.randrange(len(model))))
        else:
            model.append(rng.choice([random_bits(i) & rng.getrandbits(2560) for i in range(5)]))
            before = live.shape
            assert live.add(model[-1]) == (live.shape != before)
        wanted = always
        for one in model:
            wanted |= with_fragments(one)
        assert live.bits & wanted == wanted
        if rng.random() < 0.1:
            live.shrink()
            assert live.bits == wanted
            assert not live.shrink()


def test_a_shape_is_told_by_all_of_its_bits() -> None:
    digests = set()
    for name, bits in SHAPES.items():
        live = LiveBits()
        live.add(bits)
        digests.add(live.digest())
        words = live.words()
        assert [word for word, _ in words] == sorted({word for word, _ in words}), name
        assert sum(mask << 64 * word for word, mask in words) == live.bits
    assert len(digests) == len(SHAPES)


def test_words_that_no_packet_brings_are_in_no_key() -> None:
    live = LiveBits()
    assert not live.add(bits_of("metadata", "reg0", "xxreg3", "pkt_mark", "tun_id"))
    assert live.words() == [(0, 0xFFFFFFFF)]
