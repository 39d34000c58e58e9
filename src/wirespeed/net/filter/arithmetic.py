"""Code for the arithmetic of a filter expression, and for relations between two sides.

Theory of operation
-------------------
Constants are worked out while compiling, in 32 bits.  What remains is left in the accumulator; of two sides
that are no constants the one that is worked out first waits in a word of scratch memory.  Bytes of a protocol
(``tcp[13]``) mean that protocol's packets only: its tests come before the relation, all of them joined by "and".

*Source:* pcap-filter(7).
"""

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter import syntax as tree
from wirespeed.net.filter.block import Condition, Statement, all_of, both, constant, test
from wirespeed.net.filter.error import FilterError, LinkError
from wirespeed.net.filter.kind import is_kind
from wirespeed.net.filter.layers import BEHIND4, BEHIND6, HEADER, PACKET, PAYLOAD, Cell, Layers
from wirespeed.net.filter.port import FRAGMENT_OFFSET
from wirespeed.net.filter.protocol import abbreviation

OPERATIONS = {
    "+": op.ADD,
    "-": op.SUB,
    "*": op.MUL,
    "/": op.DIV,
    "%": op.MOD,
    "&": op.AND,
    "|": op.OR,
    "^": op.XOR,
    "<<": op.LSH,
    ">>": op.RSH,
}
COMMUTATIVE = ("+", "*", "&", "|", "^")
# The jump that a relation is, and whether it is for "yes"; and the same with the sides exchanged.
RELATIONS = {
    ">": (op.JGT, True),
    ">=": (op.JGE, True),
    "=": (op.JEQ, True),
    "<=": (op.JGT, False),
    "<": (op.JGE, False),
    "!=": (op.JEQ, False),
}
EXCHANGED = {">": "<", ">=": "<=", "=": "=", "<=": ">=", "<": ">", "!=": "!="}
HOLDS = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    "!=": lambda a, b: a != b,
}
RADIO = ("IEEE802_11_RADIO_AVS", "IEEE802_11_RADIO", "PRISM_HEADER")
NETWORKS = ("ip", "arp", "rarp", "atalk", "decnet", "sca", "lat", "moprc", "mopdl", "ip6")
TRANSPORTS = ("sctp", "tcp", "udp", "icmp", "igmp", "igrp", "pim", "vrrp", "carp")


class Arithmetic:
    """The code of both sides of one relation."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._checks: list[Condition] = []

    def relation(self, node: tree.Relation) -> Condition:
        """The condition that a relation holds."""
        left, right, sign = folded(node.left), folded(node.right), node.sign
        if isinstance(left, tree.Number) and isinstance(right, tree.Number):
            return constant(HOLDS[sign](left.value, right.value))
        if isinstance(left, tree.Number):
            left, right, sign = right, left, EXCHANGED[sign]
        # The right side's protocols are asked for first, as libpcap does.
        code_right = [] if isinstance(right, tree.Number) else self._code(right)
        right_checks, self._checks = self._checks, []
        operation, positive = RELATIONS[sign]
        if isinstance(right, tree.Number):
            found = self._against(left, right.value, operation, positive)
        else:
            kept = Cell()
            statements = [*code_right, (op.ST, self._layers.number(kept)), *self._code(left)]
            statements.append((op.LDX | op.MEM, self._layers.number(kept)))
            self._layers.release(kept)
            found = test(statements, operation, None, positive)
        checks = [*right_checks, *self._checks]
        return both(all_of(*checks), found) if checks else found

    def _against(self, left: tree.Arithmetic, value: int, operation: int, positive: bool) -> Condition:
        """The left side against a constant; some bits of it against none is one instruction."""
        if value == 0 and operation == op.JEQ and isinstance(left, tree.Binary) and left.sign == "&":
            if isinstance(left.right, tree.Number):
                return test(self._code(left.left), op.JSET, left.right.value, not positive)
        return test(self._code(left), operation, value, positive)

    def _code(self, node: tree.Arithmetic) -> list[Statement]:
        """A becomes the value of a folded node; X may change."""
        match node:
            case tree.Number():
                return [(op.LD | op.IMM, node.value)]
            case tree.Length():
                return [(op.LD | op.W | op.LEN, 0)]
            case tree.Negative():
                return [*self._code(node.operand), (op.ALU | op.NEG, 0)]
            case tree.Bytes():
                return self._bytes(node)
            case tree.Binary():
                return self._binary(node)

    def _binary(self, node: tree.Binary) -> list[Statement]:
        operation = op.ALU | OPERATIONS[node.sign]
        if isinstance(node.right, tree.Number):
            return [*self._code(node.left), (operation | op.K, node.right.value)]
        # The side that needs more words goes first, so that only one word waits for it; X becomes the right side.
        kept = Cell()
        if _need(node.left) >= _need(node.right):
            left = self._code(node.left)
            word = self._layers.number(kept)
            right = self._code(node.right)
            statements = [*left, (op.ST, word), *right, (op.MISC | op.TAX, 0), (op.LD | op.MEM, word)]
        else:
            right = self._code(node.right)
            word = self._layers.number(kept)
            statements = [*right, (op.ST, word), *self._code(node.left), (op.LDX | op.MEM, word)]
        self._layers.release(kept)
        return [*statements, (operation | op.X, 0)]

    def _bytes(self, node: tree.Bytes) -> list[Statement]:
        """A becomes bytes of a protocol's header."""
        where, check = self._protocol(node.protocol)
        index = node.index
        load = op.LD | op.SIZES[node.size]
        if isinstance(index, tree.Number):
            statements = self._layers.load(where, index.value, node.size)
        else:
            code = self._code(index)
            start, base = self._layers.start(where)
            if not start:
                statements = [*code, (op.MISC | op.TAX, 0), (load | op.IND, base)]
            else:
                kept = Cell()
                word = self._layers.number(kept)
                self._layers.release(kept)
                statements = [*code, (op.ST, word), *start, (op.LD | op.MEM, word), (op.ALU | op.ADD | op.X, 0)]
                statements += [(op.MISC | op.TAX, 0), (load | op.IND, base)]
        if check is not None:
            self._checks.append(check)
        return statements

    def _protocol(self, word: str) -> tuple[int, Condition | None]:
        """From where the bytes of a protocol count, and the test that a packet has it."""
        layers = self._layers
        if word == "radio":
            if layers.link not in RADIO:
                raise LinkError(f"'radio' is not supported on link type {layers.link}; it has no radio information")
            return PACKET, None
        if word == "link":
            return HEADER, None
        if word in NETWORKS:
            return PAYLOAD, abbreviation(layers, word)
        if word in TRANSPORTS:
            carried = both(is_kind(layers, et.IP), layers.equal(PAYLOAD, 9, 1, et.IP_PROTOCOLS[word]))
            return BEHIND4, both(carried, layers.has_bits(PAYLOAD, 6, 2, FRAGMENT_OFFSET, positive=False))
        if word == "icmp6":
            return BEHIND6, both(is_kind(layers, et.IPV6), layers.equal(PAYLOAD, 6, 1, et.IP_PROTOCOLS[word]))
        raise FilterError(f"'{word}' has no bytes that can be indexed")


def _need(node: tree.Arithmetic) -> int:
    """How many words of scratch memory the code of a folded node uses at most, of two operands that need as many."""
    match node:
        case tree.Binary():
            if isinstance(node.right, tree.Number):
                return _need(node.left)
            left, right = _need(node.left), _need(node.right)
            return max(left, right, min(left, right) + 1)
        case tree.Negative():
            return _need(node.operand)
        case tree.Bytes():
            return max(_need(node.index), 1)
    return 0


def folded(node: tree.Arithmetic) -> tree.Arithmetic:
    """A node with its constants worked out, and constants to the right where that is the same."""
    match node:
        case tree.Negative():
            operand = folded(node.operand)
            if isinstance(operand, tree.Number):
                return tree.Number(node.start, node.end, -operand.value & op.MASK)
            return tree.Negative(node.start, node.end, operand)
        case tree.Bytes():
            return tree.Bytes(node.start, node.end, node.protocol, folded(node.index), node.size)
        case tree.Binary():
            left, right = folded(node.left), folded(node.right)
            if isinstance(right, tree.Number):
                _refuse_constant(node.sign, right.value)
                if isinstance(left, tree.Number):
                    return tree.Number(node.start, node.end, worked_out(node.sign, left.value, right.value))
            elif isinstance(left, tree.Number) and node.sign in COMMUTATIVE:
                left, right = right, left
            return tree.Binary(node.start, node.end, node.sign, left, right)
    return node


def worked_out(sign: str, left: int, right: int) -> int:
    """An operation on constants, in 32 bits."""
    match sign:
        case "+":
            value = left + right
        case "-":
            value = left - right
        case "*":
            value = left * right
        case "/":
            value = left // right
        case "%":
            value = left % right
        case "&":
            value = left & right
        case "|":
            value = left | right
        case "^":
            value = left ^ right
        case "<<":
            value = left << right
        case _:
            value = left >> right
    return value & op.MASK


def _refuse_constant(sign: str, right: int) -> None:
    if sign in ("/", "%") and right == 0:
        raise FilterError("division by zero" if sign == "/" else "modulus by zero")
    if sign in ("<<", ">>") and right > 31:
        raise FilterError(f"shift by {right}, which is more than 31 bits")
