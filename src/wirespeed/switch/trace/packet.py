"""A packet as far as ops change it: header bits, tags, labels; what ports are given can be compared by it.

The header bits are those of a flow's words.  What is behind labels that come off is not known here, neither is it asked
for: two packets that begin as one and go through the same changes are equal.
"""

from typing import Self

from wirespeed.switch.fields import (
    ETH_TYPE_AT,
    FIELDS,
    HEADER_WORDS,
    MPLS,
    MPLS_MULTICAST,
    TCI_PRESENT,
    TPID2_SHIFT,
    TPID_SHIFT,
    W_DST,
    W_LABEL,
    W_MPLS,
    W_MPLS2,
    W_SRC,
    WORDS,
)

ONES = (1 << 64) - 1
TCI = 0xFFFF << 64 * W_DST
TCI2 = 0xFFFF << 64 * W_SRC
TPIDS = (ONES ^ 0xFFFFFFFF) << 64 * W_LABEL
LABELS = ONES << 64 * W_MPLS | ONES << 64 * W_MPLS2
OPERATION = FIELDS["arp_op"].mask
HEADERS = (1 << 64 * HEADER_WORDS) - (1 << 64) | OPERATION  # of the first word, else the port and the types, only this
PLAIN = HEADERS & ~(TCI | TCI2 | TPIDS | LABELS)
TTL = FIELDS["nw_ttl"]
MPLS_TYPES = (MPLS, MPLS_MULTICAST)

Seen = tuple[int, tuple[tuple[int, int], ...], tuple[int, ...], int]


def word(flow: int, number: int) -> int:
    """A word of a flow."""
    return flow >> 64 * number & ONES


def with_word(flow: int, number: int, value: int) -> int:
    """A flow with another word."""
    return flow & ~(ONES << 64 * number) | (value & ONES) << 64 * number


class Packet:
    """A packet that is changed.  ``tags`` are (type, control information), ``labels`` entries, the first one first."""

    def __init__(self, bits: int, tags: list[tuple[int, int]], labels: list[int], kind: int) -> None:
        self.bits, self.tags, self.labels, self.kind = bits, tags, labels, kind

    @classmethod
    def of(cls, flow: int) -> Self:
        """The packet that a flow is of."""
        tpids = word(flow, W_LABEL)
        tags = [
            (tpids >> shift & 0xFFFF, tci & ~TCI_PRESENT)
            for shift, tci in ((TPID_SHIFT, word(flow, W_DST) & 0xFFFF), (TPID2_SHIFT, word(flow, W_SRC) & 0xFFFF))
            if tci & TCI_PRESENT
        ]
        first, third = word(flow, W_MPLS), word(flow, W_MPLS2)
        labels = [first & 0xFFFFFFFF, first >> 32, third & 0xFFFFFFFF][: third >> 32 & 3]
        return cls(flow & PLAIN, tags, labels, flow >> ETH_TYPE_AT & 0xFFFF)

    def copy(self) -> "Packet":
        """Another one like it."""
        return Packet(self.bits, list(self.tags), list(self.labels), self.kind)

    def seen(self) -> Seen:
        """What can be compared."""
        return self.bits, tuple(self.tags), tuple(self.labels), self.kind

    def write(self, value: int, mask: int) -> None:
        """Header bits become others, in their places in a flow; those of a tag or a label that is not there do not."""
        plain = mask & PLAIN
        self.bits = self.bits & ~plain | value & plain
        if mask & TCI and self.tags:
            tpid, tci = self.tags[0]
            bits = mask >> 64 * W_DST & 0xFFFF & ~TCI_PRESENT
            self.tags[0] = tpid, tci & ~bits | value >> 64 * W_DST & bits
        for number, at in ((0, 64 * W_MPLS), (1, 64 * W_MPLS + 32), (2, 64 * W_MPLS2)):
            bits = mask >> at & 0xFFFFFFFF
            if number < len(self.labels):
                self.labels[number] = self.labels[number] & ~bits | value >> at & bits

    def push_tag(self, tpid: int, tci: int) -> None:
        """Another tag before the first."""
        self.tags.insert(0, (tpid, tci & 0xFFFF & ~TCI_PRESENT))

    def pop_tag(self) -> None:
        """The first tag goes."""
        del self.tags[:1]

    def push_label(self, kind: int, entry: int) -> None:
        """Another label before the first."""
        self.labels.insert(0, entry)
        self.kind = kind

    def pop_label(self, kind: int) -> None:
        """The first label goes; when no label is said to be behind it, all that are known go."""
        del self.labels[:1]
        if kind not in MPLS_TYPES:
            self.labels.clear()
        self.kind = kind

    def step_ttl(self) -> None:
        """One less to live."""
        self.bits = self.bits & ~TTL.mask | (TTL.get(self.bits) - 1 & 0xFF) << TTL.at

    def step_label_ttl(self) -> None:
        """The same of the first label."""
        if self.labels:
            first = self.labels[0]
            self.labels[0] = first & ~0xFF | first - 1 & 0xFF


assert HEADERS < 1 << 64 * WORDS
