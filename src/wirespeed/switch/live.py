"""Which bits of a flow matter: the union of what all rules match and all actions read.

Masks are counted, not bits: rules have few different ones.  The union grows at once, before the rule that needs it is
there; it shrinks when asked to, for each change of it empties every cache.
"""

import hashlib
from collections import Counter

from wirespeed.switch.fields import FIELDS, FRAG_ANY, FRAG_SHIFT, HEADER_WORDS, IN_PORT_AT, W_DERIVED, W_PORT, WORDS
from wirespeed.switch.memory import LIVE_WORDS, Live, LiveWord

_PACKET = ((1 << 64 * HEADER_WORDS) - 1) | ((1 << 64) - 1) << 64 * W_DERIVED  # words that a packet brings
_PORTS = FIELDS["tcp_src"].mask | FIELDS["tcp_dst"].mask
_FRAGMENT = FRAG_ANY << 64 * W_PORT + FRAG_SHIFT
ALWAYS = 0xFFFFFFFF << IN_PORT_AT
HASH_BITS = 0xFFFFFFFF << 64 * W_DERIVED
_NAMES = ("in_port", "dl_type", "nw_proto", "nw_src", "nw_dst", "tcp_src", "tcp_dst", "ipv6_src", "ipv6_dst")
OF_FLOW = sum(FIELDS[name].mask for name in _NAMES)
"""Bits that are the same for all packets of a flow, so that a port's flow hash chooses among them."""


def with_fragments(bits: int) -> int:
    """A fragment's ports are not looked at, so who looks at ports looks at whether it is one."""
    return bits | _FRAGMENT if bits & _PORTS else bits


class LiveBits:
    """The bits that matter, counted by the masks that want them."""

    def __init__(self) -> None:
        self._wanted: Counter[int] = Counter()
        self.bits = ALWAYS
        self.shape = 0

    def add(self, bits: int) -> bool:
        """Count a mask; whether more bits matter now."""
        self._wanted[bits] += 1
        more = self.bits | with_fragments(bits & _PACKET)
        if more == self.bits:
            return False
        self.bits = more
        self.shape += 1
        return True

    def remove(self, bits: int) -> None:
        """Take a mask back."""
        self._wanted[bits] -= 1
        if not self._wanted[bits]:
            del self._wanted[bits]

    def shrink(self) -> bool:
        """Let go of bits that nobody wants any more; whether there were any."""
        bits = ALWAYS
        for mask in self._wanted:
            bits |= with_fragments(mask & _PACKET)
        if bits == self.bits:
            return False
        self.bits = bits
        self.shape += 1
        return True

    def words(self) -> list[tuple[int, int]]:
        """(word, mask) of a key, in order."""
        found = [(i, self.bits >> 64 * i & 0xFFFFFFFFFFFFFFFF) for i in range(WORDS)]
        return [(i, mask) for i, mask in found if mask]

    def digest(self) -> int:
        """64 bits that stand for the words and masks."""
        return int.from_bytes(hashlib.sha256(self.bits.to_bytes(8 * WORDS, "little")).digest()[:8], "little")

    def record(self) -> bytes:
        """The bytes of a :data:`~wirespeed.switch.memory.Live`."""
        content = bytearray(Live.size)
        live = Live(content)
        words = self.words()
        live.shape, live.k, live.digest = self.shape, len(words), self.digest()
        live.hashed = 1 if self.bits & HASH_BITS else 0
        live.by_port_hash = 0 if self.bits & ~OF_FLOW else 1
        for i, (word, mask) in enumerate(words):
            one = LiveWord(content, LIVE_WORDS + LiveWord.size * i)
            one.word, one.mask = word, mask
        return bytes(content)
