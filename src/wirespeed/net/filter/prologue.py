"""What a filter program does first: find how long headers of varying length are.

Theory of operation
-------------------
Link types such as radiotap have a header before the link's own one, and 802.11's own header has several lengths.  The
program works them out once, at its beginning, and keeps them in words of scratch memory: where the 802.11 header begins
(``prefix``), where its payload begins (``body``).  Only what a primitive has asked for is worked out.

*Source:* IEEE 802.11-2020 section 9.2.4; radiotap.org; the headers of Prism, AVS and PPI captures; pflog(4).
"""

from wirespeed.net.filter import link_type
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.assemble import ordered
from wirespeed.net.filter.block import Block, Condition, Statement, both
from wirespeed.net.filter.layers import PACKET, Layers
from wirespeed.net.filter.vocabulary import WLAN_CONTROL, WLAN_DATA

QOS_BIT = 0x80
FIXED_HEADER, QOS_FIELD = 24, 2
AVS_COOKIE, AVS_COOKIE_MASK, PRISM_LENGTH = 0x80211000, 0xFFFFF000, 144
# Bits of radiotap's first word, which is little-endian and loaded big-endian here.
RADIOTAP_TSFT, RADIOTAP_FLAGS, RADIOTAP_MORE = 0x01000000, 0x02000000, 0x00000080
RADIOTAP_PAD = 0x20  # of its flags: the 802.11 header is padded to a multiple of four
PPI_WLAN = 0x69000000  # DLT_IEEE802_11 as PPI has it, in little endian


def with_prologue(layers: Layers, condition: Condition) -> Condition:
    """A whole filter, with what it must do before it."""
    condition = _Prologue(layers).before(condition)
    if layers.outermost == "PPI":
        condition = both(layers.equal(PACKET, 4, 4, PPI_WLAN), condition)
    return condition


def with_memory_set(entry: Block) -> Block:
    """A program whose words of scratch memory are all stored before they are loaded; returns where it begins now.

    Behind a tunnel's primitive the places are in words that only a packet with that tunnel has stored, and ``or`` leads
    other packets there too.  Linux takes no program that may load what it has not stored, so these begin as 0.
    """
    every = frozenset(range(op.WORDS))
    stored: dict[Block, frozenset[int]] = {entry: frozenset()}
    missing: set[int] = set()
    for block in ordered(entry):
        now = set(stored[block])
        for code, k in block.statements:
            if code in (op.ST, op.STX):
                now.add(k)
            elif code in (op.LD | op.MEM, op.LDX | op.MEM) and k not in now:
                missing.add(k)
        for way in block.ways():
            stored[way] = stored.get(way, every) & now
    if not missing:
        return entry
    return Block([(op.LD | op.IMM, 0), *((op.ST, word) for word in sorted(missing))], yes=entry)


class _Prologue:
    """Blocks one behind another, of which the last goes on to the filter."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._first = self._last = Block()

    def before(self, condition: Condition) -> Condition:
        layers = self._layers
        wlan = layers.outermost in link_type.WLANS
        body = layers.body is not None and layers.body.used
        if wlan and layers.prefix and (body or layers.prefix.used):
            self._prefix()
        if wlan and body:
            self._wlan_body()
        if layers.outermost == "PFLOG" and body:
            self._pflog_body()
        if layers.tag_cell:
            self._add((op.LD | op.IMM, 0), (op.ST, layers.number(layers.tag_cell)))
        if self._first is self._last and not self._first.statements:
            return condition
        self._last.yes = condition.entry
        return Condition(self._first, condition.yes, condition.no, condition.always)

    def _add(self, *statements: Statement) -> None:
        self._last.statements.extend(statements)

    def _branch(self, operation: int, k: int) -> tuple[Block, Block]:
        """The last block ends with a test; what follows are two new blocks, for yes and for no."""
        self._last.test = (op.JMP | operation | op.K, k)
        self._last.yes, self._last.no = Block(), Block()
        return self._last.yes, self._last.no

    def _join(self, *blocks: Block) -> None:
        """Some blocks go on to a new one, which is the last from now on."""
        self._last = Block()
        for block in blocks:
            block.yes = self._last

    def _prefix(self) -> None:
        """How long what stands before the 802.11 header is: into its word, and X."""
        layers = self._layers
        assert layers.prefix
        if layers.outermost == "PRISM_HEADER":
            # The same link type is used for AVS headers, which begin with a cookie and tell their length.
            self._add((op.LD | op.ABS | op.W, 0), (op.ALU | op.AND | op.K, AVS_COOKIE_MASK))
            avs, prism = self._branch(op.JEQ, AVS_COOKIE)
            avs.statements.append((op.LD | op.ABS | op.W, 4))
            prism.statements.append((op.LD | op.IMM, PRISM_LENGTH))
            self._join(avs, prism)
        elif layers.outermost == "IEEE802_11_RADIO_AVS":
            self._add((op.LD | op.ABS | op.W, 4))
        else:
            # Radiotap and PPI have a little-endian length in their third and fourth byte.
            self._add((op.LD | op.ABS | op.B, 3), (op.ALU | op.LSH | op.K, 8), (op.MISC | op.TAX, 0))
            self._add((op.LD | op.ABS | op.B, 2), (op.ALU | op.OR | op.X, 0))
        self._add((op.ST, layers.number(layers.prefix)), (op.MISC | op.TAX, 0))

    def _wlan_body(self) -> None:
        """Where the payload of a data frame begins: into its word. X is where the 802.11 header begins."""
        layers = self._layers
        assert layers.body
        word = layers.number(layers.body)
        if layers.prefix is None:
            self._add((op.LDX | op.IMM, 0))
        self._add((op.MISC | op.TXA, 0), (op.ALU | op.ADD | op.K, FIXED_HEADER), (op.ST, word))
        self._add((op.LD | op.IND | op.B, 0))
        leave: list[Block] = []
        data, other = self._branch(op.JSET, WLAN_DATA)
        leave.append(other)
        self._last = data
        reserved, data = self._branch(op.JSET, WLAN_CONTROL)
        leave.append(reserved)
        self._last = data
        qos, plain = self._branch(op.JSET, QOS_BIT)
        qos.statements += [(op.LD | op.MEM, word), (op.ALU | op.ADD | op.K, QOS_FIELD), (op.ST, word)]
        if layers.outermost == "IEEE802_11_RADIO":
            self._join(qos, plain)
            leave += self._radiotap_padding(word)
        else:
            leave += [qos, plain]
        self._join(*leave)

    def _radiotap_padding(self, word: int) -> list[Block]:
        """Round the header's length up where radiotap says so; returns the blocks from which to go on."""
        leave: list[Block] = []
        self._add((op.LD | op.ABS | op.W, 4))
        present, absent = self._branch(op.JSET, RADIOTAP_FLAGS)
        leave.append(absent)
        self._last = present
        more, plain = self._branch(op.JSET, RADIOTAP_MORE)
        leave.append(more)
        self._last = plain
        stamped, unstamped = self._branch(op.JSET, RADIOTAP_TSFT)
        # The flags stand behind the first word, and behind the 64-bit time stamp if that is there.
        stamped.statements.append((op.LD | op.ABS | op.B, 16))
        unstamped.statements.append((op.LD | op.ABS | op.B, 8))
        self._join(stamped, unstamped)
        padded, unpadded = self._branch(op.JSET, RADIOTAP_PAD)
        padded.statements += [(op.LD | op.MEM, word), (op.ALU | op.ADD | op.K, 3)]
        padded.statements += [(op.ALU | op.AND | op.K, 0xFFFFFFFC), (op.ST, word)]
        return [*leave, padded, unpadded]

    def _pflog_body(self) -> None:
        """PF's header has its own length in its first byte, without the padding to a multiple of four."""
        body = self._layers.body
        assert body
        self._add((op.LD | op.ABS | op.B, 0), (op.ALU | op.ADD | op.K, 3), (op.ALU | op.AND | op.K, 0xFFFFFFFC))
        self._add((op.ST, self._layers.number(body)))
