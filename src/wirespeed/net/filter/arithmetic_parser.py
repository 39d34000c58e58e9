"""The arithmetic of a filter expression: numbers, bytes of the packet, operators, and relations between them.

Theory of operation
-------------------
Precedence climbing.  ``%`` and ``^`` have no precedence of their own: whatever follows them is taken in first, and they
bind tighter than what stands before them (``a % b + c`` is ``a % (b + c)``, ``a * b % c`` is ``a * (b % c)``).  That is
an oddity of the language as libpcap has it, and kept, since one expression must mean the same everywhere.

*Source:* pcap-filter(7).
"""

from wirespeed.net.filter import syntax as tree
from wirespeed.net.filter.cursor import Cursor
from wirespeed.net.filter.lexer import NUMBER
from wirespeed.net.filter.vocabulary import PROTOCOLS

PRECEDENCE = {"|": 3, "&": 4, "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "minus": 8}
LOOSE = ("%", "^")
OPERATORS = (*LOOSE, "|", "&", "<<", ">>", "+", "-", "*", "/")
RELATIONS = (">", ">=", "=", "<=", "<", "!=")
MOST = 100  # operators of one side of a relation, so that its tree is no deeper


class ArithmeticParser(Cursor):
    """The rules of arithmetic, over a cursor."""

    _operators = 0

    def relation(self) -> tree.Relation | None:
        """A relation, or None (and nothing taken) when what is ahead is none."""
        token = self.token
        is_bytes = token.among(*PROTOCOLS) and self.ahead(1).among("[")
        if is_bytes or token.among("len", "length", "-"):
            return self._relation()
        if token.kind == NUMBER or token.among("("):
            with self.attempt():
                return self._relation()
        return None

    def _relation(self) -> tree.Relation:
        left = self._arithmetic()
        if not self.token.among(*RELATIONS):
            raise self.wanted("an operator or a relation")
        sign = self.take().text
        right = self._arithmetic()
        return tree.Relation(left.start, right.end, sign, left, right)

    def _arithmetic(self) -> tree.Arithmetic:
        self._operators = 0
        return self._behind(None)

    def _behind(self, before: str | None) -> tree.Arithmetic:
        """All that binds tighter than the operator before it."""
        with self.deeper():
            left = self._operand()
            while self.token.among(*OPERATORS) and _binds(before, self.token.text):
                sign = self.take()
                self._operators += 1
                if self._operators > MOST:
                    raise self.error(f"more than {MOST} operators in one arithmetic expression", sign)
                right = self._behind(sign.text)
                left = tree.Binary(left.start, right.end, sign.text, left, right)
            return left

    def _operand(self) -> tree.Arithmetic:
        token = self.token
        if token.kind == NUMBER:
            self.take()
            return tree.Number(token.start, token.end, token.value)
        if token.among("len", "length"):
            self.take()
            return tree.Length(token.start, token.end)
        if token.among("-"):
            self.take()
            operand = self._behind("minus")
            return tree.Negative(token.start, operand.end, operand)
        if token.among("("):
            self.take()
            inner = self._behind(None)
            self.take(")")
            return inner
        if token.among(*PROTOCOLS) and self.ahead(1).among("["):
            return self._bytes()
        raise self.wanted("a number, 'len' or bytes such as ip[0:2]")

    def _bytes(self) -> tree.Bytes:
        """``protocol[index:size]``."""
        protocol = self.take()
        self.take("[")
        index = self._behind(None)
        size = 1
        if self.token.among(":"):
            self.take()
            if self.token.kind != NUMBER:
                raise self.wanted("a size of 1, 2 or 4")
            if self.token.value not in (1, 2, 4):
                raise self.error(f"the size of bytes must be 1, 2 or 4, got {self.token.value}")
            size = self.take().value
        self.take("]")
        return tree.Bytes(protocol.start, self.end, PROTOCOLS[protocol.text], index, size)


def _binds(before: str | None, sign: str) -> bool:
    """True if an operator takes what stands between it and the operator before it."""
    if before is None or before in LOOSE or sign in LOOSE:
        return True
    return PRECEDENCE[sign] > PRECEDENCE[before]
