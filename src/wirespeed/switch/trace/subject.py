"""What a reference interpreter changes: a flow, the packet that it is of, and a stack; every change in plain numbers.

Tags are given to the packet only before it is seen, as OpenFlow's switches do it: a first tag that is taken away and
written again is one that was changed.  Everything else is done at once.
"""

from typing import Any

from wirespeed.switch.fields import (
    ARP,
    ETH_TYPE_AT,
    FIELDS,
    IP,
    IPV6,
    PROTO_AT,
    RARP,
    TCI_PRESENT,
    TPID2_SHIFT,
    TPID_SHIFT,
    W_ADDRESSES,
    W_DERIVED,
    W_DST,
    W_LABEL,
    W_MPLS,
    W_MPLS2,
    W_SHA,
    W_SRC,
    W_SRC6,
)
from wirespeed.switch.text.subfield import Subfield
from wirespeed.switch.trace.packet import HEADERS, MPLS_TYPES, TCI, Packet, with_word, word
from wirespeed.switch.trace.show import is_there

MOST_LABELS = 3
TAG = 0x8100
TTL, MPLS_TTL = FIELDS["nw_ttl"], FIELDS["mpls_ttl"]


class Subject:
    """A flow that actions change, and its packet.  ``frame`` has its bytes, for what only these say."""

    def __init__(self, flow: int, frame: bytes | None = None) -> None:
        self.flow, self.frame = flow, frame
        self.packet = Packet.of(flow)
        self.stack: list[int] = []
        self.popped = 0  # labels of the frame that have come off
        self._tag_changed = self._had_tag = False

    def save(self) -> tuple[Any, ...]:
        """All of it, as it is now."""
        self.settle()
        return self.flow, self.packet.copy(), self.popped

    def restore(self, saved: tuple[Any, ...]) -> None:
        """As it was then; but for the stack, which copies of a packet share."""
        self.flow, self.packet, self.popped = saved
        self._tag_changed = False

    @property
    def kind(self) -> int:
        """The Ethernet type."""
        return self.flow >> ETH_TYPE_AT & 0xFFFF

    @property
    def in_port(self) -> int:
        """The number of the port that it came in by, as actions see it."""
        return FIELDS["in_port"].get(self.flow)

    def has(self, needs: str) -> bool:
        """Whether it has a header."""
        if needs == "vlan":
            return bool(word(self.flow, W_DST) & TCI_PRESENT)
        return is_there(self.flow, needs)

    def write(self, value: int, mask: int) -> None:
        """Bits of the flow become others, and those of the packet that they stand for."""
        if mask & TCI and not self._tag_changed:
            self._tag_changed, self._had_tag = True, self.has("vlan")
        self.flow = self.flow & ~mask | value & mask
        self.packet.write(value, mask & HEADERS & ~TCI)

    def settle(self) -> None:
        """Give the packet the first tag that the flow has."""
        if not self._tag_changed:
            return
        self._tag_changed = False
        tci, second = word(self.flow, W_DST) & 0xFFFF, word(self.flow, W_SRC) & 0xFFFF
        if tci & TCI_PRESENT and self._had_tag:
            self.packet.write(tci << 64 * W_DST, TCI)
        elif tci & TCI_PRESENT:
            tpids = word(self.flow, W_LABEL)
            tpid = tpids >> TPID_SHIFT & 0xFFFF or TAG
            if second & TCI_PRESENT:  # which went with the first one
                self.packet.push_tag(tpids >> TPID2_SHIFT, second)
            self.packet.push_tag(tpid, tci)
            self._set_tags(tci, second, tpid, tpids >> TPID2_SHIFT)
        elif self._had_tag:
            self.packet.pop_tag()
            if second & TCI_PRESENT:
                self.packet.pop_tag()

    def read_part(self, part: Subfield) -> int:
        """The bits that a range of a field has; those that no flow has are 0."""
        field, found = part.field, 0
        for i in range(part.bits):
            at = part.at + i - field.value_at
            if 0 <= at < field.bits:
                found |= (self.flow >> field.at + at & 1) << i
        return found

    def write_part(self, part: Subfield, value: int) -> None:
        """Write a range of bits of a field; a whole port's number leaves nothing of what was there before."""
        field, bits, mask = part.field, 0, 0
        if field.form == "port" and part.bits == field.reach:
            mask = field.mask
        for i in range(part.bits):
            at = part.at + i - field.value_at
            if 0 <= at < field.bits:
                bits |= (value >> i & 1) << field.at + at
                mask |= 1 << field.at + at
        self.write(bits, mask)

    def set_tag_part(self, value: int, bits: int) -> None:
        """The first tag's number or priority; without a tag there is one then."""
        at = 64 * W_DST
        if self.has("vlan"):
            self.write(value << at, bits << at)
        else:
            self.write((value | TCI_PRESENT) << at, TCI)

    def push_tag(self, tpid: int) -> None:
        """Another tag; a flow knows two, and a third one's predecessor is lost."""
        self.settle()
        first, second = word(self.flow, W_DST) & 0xFFFF, word(self.flow, W_SRC) & 0xFFFF
        tpids = word(self.flow, W_LABEL)
        if first & TCI_PRESENT and second & TCI_PRESENT:
            del self.packet.tags[1:2]
        self.packet.push_tag(tpid, 0)
        self._set_tags(TCI_PRESENT, first, tpid, tpids >> TPID_SHIFT & 0xFFFF)

    def pop_tag(self) -> bool:
        """The first tag goes; False when there is none."""
        self.settle()
        if not self.has("vlan"):
            return False
        self.packet.pop_tag()
        self._set_tags(word(self.flow, W_SRC) & 0xFFFF, 0, word(self.flow, W_LABEL) >> TPID2_SHIFT, 0)
        return True

    def _set_tags(self, first: int, second: int, tpid: int, tpid2: int) -> None:
        flow = self.flow
        flow = with_word(flow, W_DST, word(flow, W_DST) & ~0xFFFF | first)
        flow = with_word(flow, W_SRC, word(flow, W_SRC) & ~0xFFFF | second)
        label = word(flow, W_LABEL) & 0xFFFFFFFF
        self.flow = with_word(flow, W_LABEL, label | tpid << TPID_SHIFT | tpid2 << TPID2_SHIFT)

    def _set_kind(self, kind: int) -> None:
        self.flow = self.flow & ~(0xFFFF << ETH_TYPE_AT) | kind << ETH_TYPE_AT

    def push_label(self, kind: int) -> bool:
        """Another label; False when a flow knows no more."""
        self.settle()
        first, third = word(self.flow, W_MPLS), word(self.flow, W_MPLS2)
        n = third >> 32 & 3
        if self.has("mpls") and n:
            if n >= MOST_LABELS:
                return False
            entry = first & 0xFFFFFEFF
        else:
            entry = self._first_entry()
            self._forget_behind()
            n = first = 0
        self.flow = with_word(self.flow, W_MPLS, (first & 0xFFFFFFFF) << 32 | entry)
        self.flow = with_word(self.flow, W_MPLS2, n + 1 << 32 | first >> 32)
        self._set_kind(kind)
        self.packet.push_label(kind, entry)
        self.popped -= 1
        return True

    def has_unknown_labels(self) -> bool:
        """Whether there are three labels, and the last one is not among them."""
        third = word(self.flow, W_MPLS2)
        return self.has("mpls") and third >> 32 & 3 == MOST_LABELS and not third & 0x100

    def _first_entry(self) -> int:
        """The entry of a first label: the bottom one, with what IP says of class and time to live."""
        label, tc, ttl = 2 if self.kind == IPV6 else 0, 0, 64
        if self.kind in (IP, IPV6):
            tc = FIELDS["nw_tos"].get(self.flow) & 7
            ttl = TTL.get(self.flow) or ttl
        return label << 12 | tc << 9 | 0x100 | ttl

    def _forget_behind(self) -> None:
        """What is behind labels is not seen: no field of IP, ARP or transport."""
        self.flow &= ~(0xFF << PROTO_AT | 0xFF << FIELDS["ip_frag"].at)
        for number in (W_ADDRESSES, W_ADDRESSES + 1, *range(W_SRC6, W_SRC6 + 4), *range(W_SHA, W_SHA + 4)):
            self.flow = with_word(self.flow, number, 0)
        self.flow = with_word(self.flow, W_LABEL, word(self.flow, W_LABEL) & ~0xFFFFFFFF)

    def pop_label(self, kind: int) -> bool:
        """The first label goes, and what is behind the last one is seen; False when there is none."""
        if not self.has("mpls"):
            return False
        self.settle()
        first, third = word(self.flow, W_MPLS), word(self.flow, W_MPLS2)
        left = max((third >> 32 & 3) - 1, 0)
        labels = (first >> 32 | (third & 0xFFFFFFFF) << 32, left << 32) if kind in MPLS_TYPES else (0, 0)
        self.flow = with_word(with_word(self.flow, W_MPLS, labels[0]), W_MPLS2, labels[1])
        self._set_kind(kind)
        self.packet.pop_label(kind)
        self.popped += 1
        if self.frame is not None and kind in (IP, IPV6, ARP, RARP, *MPLS_TYPES):
            from wirespeed.switch.trace.compiled import behind_labels

            hashed = word(self.flow, W_DERIVED) & 0xFFFFFFFF
            self.flow = behind_labels(self.flow, self.frame, self.popped)
            self.flow = with_word(self.flow, W_DERIVED, word(self.flow, W_DERIVED) & ~0xFFFFFFFF | hashed)
        return True

    def step_ttl(self) -> bool:
        """One less to live; False when nothing would be left."""
        ttl = TTL.get(self.flow)
        if ttl <= 1:
            return False
        self.flow += -1 << TTL.at
        self.packet.step_ttl()
        return True

    def step_label_ttl(self) -> bool:
        """The same of the first label."""
        if MPLS_TTL.get(self.flow) <= 1:
            return False
        self.flow += -1 << MPLS_TTL.at
        self.packet.step_label_ttl()
        return True
