"""Kernels for the shape of the rules: only the fields that are live are taken from a packet.

Theory of operation
-------------------
What is compiled depends on the live bits alone (:mod:`wirespeed.switch.live`), never on the rules' values: adding rules of
known kinds compiles nothing.  The text of a stage is written with these as constants, a file in the kernel cache, so
that each shape is compiled once on a machine.  A packet whose headers are plain (IPv4 or IPv6 without options or
fragments, with TCP or UDP, and no tag) is taken apart right there; any other goes by way of its whole flow, to the same
key.  A stage is for one shape, told by its digest; for any other it does what the generic one does.
"""

from wirespeed.jit import generated
from wirespeed.jit.kernel import Stage
from wirespeed.switch import stage
from wirespeed.switch.fields import (
    PROTO_SHIFT,
    TCP_FLAGS_SHIFT,
    TTL_FLOOR_SHIFT,
    TTL_SHIFT,
    W_ADDRESSES,
    W_DERIVED,
    W_DST,
    W_DST6,
    W_LABEL,
    W_MPLS,
    W_MPLS2,
    W_PORT,
    W_SHA,
    W_SRC,
    W_SRC6,
    W_TARGET,
    W_THA,
    W_TRANSPORT,
)
from wirespeed.switch.live import OF_FLOW, LiveBits
from wirespeed.switch.worker import entry_size

_HEAD = '''"""A switch's stage for one shape of rules; generated."""

import numpy as np

from wirespeed.core.packet import HASHED, Packet, data
from wirespeed.jit.intrinsics import (
    load_be16, load_be32, load_be64, load_i64, load_u8, load_u64, prefetch, store_i64, store_u64,
)
from wirespeed.jit.kernel import kernel, stage
from wirespeed.switch.cache import WAYS, entry_size, flow_hash
from wirespeed.switch.extract import MAC_BITS, is_whole_tcp, packet_hash
from wirespeed.switch.memory import PORT, Live, PortRecord, Shared
from wirespeed.switch.stage import begin, by_any_rules, check, end, forward, slow_key
from wirespeed.switch.state import State

i64, u64 = np.int64, np.uint64
DIGEST = u64({digest:#x})
K = i64({k})
SIZE = i64(WAYS * {entry})


@kernel
def other_key(s, handle, key, live):
    slow_key(s, handle, key, live)
    return {loads}


@kernel(inline=True)
def key_of(s, ports, seed, p, handle, key, live):
    frame, length, whole = data(p), i64(p.length), i64(p.total)
    port = u64(PortRecord(ports + PORT * i64(p.port & 255)).number)
'''
_TAIL = """    return other_key(s, handle, key, live)


@stage
def switch(state, burst, n):
    s = State(state)
    version, live = begin(s, n)
    if Live(live).digest != DIGEST:
        by_any_rules(s, state, burst, n, version, live)
        return i64(0)
    # What a store through an address may have changed is read again each time; these do not change.
    shared, c = Shared(s.shared), s.cache
    ports, seed, keys, buckets, entries, mask = shared.ports, shared.seed, s.keys, s.buckets, c.entries, c.mask
{seeds}
    for i in range(n):
        handle, key = load_i64(burst + 8 * i), keys + 8 * K * i
        p = Packet(handle)
        {names} = key_of(s, ports, seed, p, handle, key, live)
{stores}
        total = {total}
{hashed}        bucket = entries + i64(total >> u64(32) & mask) * SIZE
        prefetch(bucket)
        store_i64(buckets + 8 * i, bucket)
    if s.check != 0:
        check(s, burst, n, version, live)
    forward(s, state, burst, n, version, live, K)
    end(s)
    return i64(0)
"""
_HASHED = """        if p.flags & HASHED:
            total = flow_hash(p.hash)
"""
_L3_WORDS = (W_ADDRESSES, W_TRANSPORT, W_SRC6, W_SRC6 + 1, W_DST6, W_DST6 + 1, W_SHA, W_THA, W_TARGET, W_TARGET + 1)
_MPLS = (W_MPLS, W_MPLS2)


def source(live: LiveBits) -> str:
    """The text of the module for a shape."""
    words = live.words()
    masks, k = dict(words), len(words)
    loads = ", ".join(f"load_u64(key + {8 * i})" for i in range(k))
    text = _HEAD.format(digest=live.digest(), k=k, entry=entry_size(k), loads=f"({loads},)")
    network = masks.get(W_PORT, 0) >> PROTO_SHIFT or any(masks.get(w) for w in _L3_WORDS) or masks.get(W_DERIVED)
    if network or masks.get(W_LABEL, 0) & 0xFFFFF:
        text += _plain(words, 4) + _plain(words, 6)
    else:
        text += _link(words, any(masks.get(w) for w in _MPLS))
    return text + _TAIL.format(
        seeds="\n".join(f"    m{i} = load_u64(c.seeds + {8 * i})" for i in range(k)),
        names="".join(f"k{i}, " for i in range(k)).strip(),
        stores="\n".join(f"        store_u64(key + {8 * i}, k{i})" for i in range(k)),
        total=" + ".join(f"(k{i} ^ k{i} >> u64(32)) * m{i}" for i in range(k)),
        hashed="" if live.bits & ~OF_FLOW else _HASHED,
    )


def _give(words: list[tuple[int, int]], values: dict[int, str], indent: str) -> str:
    """The statement that returns a key, of words that are known and zeros."""
    given = [f"({values[word]}) & u64({mask:#x})" if word in values else "u64(0)" for word, mask in words]
    return f"{indent}return ({', '.join(given)},)\n"


def _link(words: list[tuple[int, int]], labels: bool) -> str:
    """Frames without tags, where only the link layer's fields matter."""
    test = "p.link == 1 and length >= 14"
    text = f"    if {test}:\n        kind = load_be16(frame + 12)\n"
    test = "kind >= 0x600 and kind != 0x8100 and kind != 0x88A8"
    if labels:
        test += " and kind != 0x8847 and kind != 0x8848"
    text += f"        if {test}:\n"
    values = {
        W_PORT: "port | u64(kind) << u64(32)",
        W_DST: "load_be64(frame) & MAC_BITS",
        W_SRC: "load_be64(frame + 6) & MAC_BITS",
    }
    return text + _give(words, values, " " * 12)


def _plain(words: list[tuple[int, int]], version: int) -> str:
    """Frames of plain IP with TCP or UDP in them."""
    masks = dict(words)
    at = 34 if version == 4 else 54
    if version == 4:
        test = "load_be32(frame + 12) >> 8 == 0x080045 and load_be16(frame + 20) & 0x3FFF == 0"
        total, proto = "i64(load_be16(frame + 16)) + 14", "load_u8(frame + 23)"
        ttl, tos = "load_u8(frame + 22)", "load_u8(frame + 15)"
        kind = 0x0800
    else:
        test = "load_be32(frame + 12) >> 12 == 0x86DD6"
        total, proto = "i64(load_be16(frame + 18)) + 54", "load_u8(frame + 20)"
        ttl, tos = "load_u8(frame + 21)", "(load_be16(frame + 14) >> 4) & 0xFF"
        kind = 0x86DD
    text = f"    if p.link == 1 and length >= {at + 8} and {test}:\n"
    text += f"        size, proto = {total}, {proto}\n"
    text += "        if size <= whole and size <= 0xFFFF and "
    text += f"((proto == 17 and size >= {at + 8}) or (proto == 6 and is_whole_tcp(frame, {at}, min(size, length)))):\n"
    values = {
        W_PORT: f"port | u64({kind << 32:#x}) | u64(proto) << u64({PROTO_SHIFT})",
        W_DST: "load_be64(frame) & MAC_BITS",
        W_SRC: "load_be64(frame + 6) & MAC_BITS",
        W_TRANSPORT: _transport(masks.get(W_TRANSPORT, 0), at, ttl, tos),
    }
    if version == 4:
        values[W_ADDRESSES] = "load_be64(frame + 26)"
    else:
        values |= {
            W_SRC6: "load_be64(frame + 30)", W_SRC6 + 1: "load_be64(frame + 22)",
            W_DST6: "load_be64(frame + 46)", W_DST6 + 1: "load_be64(frame + 38)",
            W_LABEL: "u64(load_be32(frame + 14) & 0xFFFFF)",
        }  # fmt: skip
    derived = masks.get(W_DERIVED, 0)
    if derived:
        parts = [f"u64(min(i64({ttl}), i64(15))) << u64({TTL_FLOOR_SHIFT})"] * bool(derived >> TTL_FLOOR_SHIFT)
        parts += ["u64(packet_hash(frame, length, seed))"] * bool(derived & 0xFFFFFFFF)
        values[W_DERIVED] = " | ".join(parts)
    return text + _give(words, values, " " * 12)


def _transport(mask: int, at: int, ttl: str, tos: str) -> str:
    parts = []
    if mask >> 32:
        parts.append(f"u64(load_be32(frame + {at})) << u64(32)")
    if mask >> TCP_FLAGS_SHIFT & 0xFFFF:
        parts.append(f"(u64(load_be16(frame + {at + 12}) & 0xFFF) << u64({TCP_FLAGS_SHIFT}) if proto == 6 else u64(0))")
    if mask >> TTL_SHIFT & 0xFF:
        parts.append(f"u64({ttl}) << u64({TTL_SHIFT})")
    if mask & 0xFF:
        parts.append(f"u64({tos})")
    return " | ".join(parts) or "u64(0)"


def stage_for(live: LiveBits) -> Stage:
    """The stage for a shape; compiled, or found in the cache, when its address is asked for."""
    made: Stage = generated.load(source(live), "switch", stage.__file__, "switches").switch
    return made
