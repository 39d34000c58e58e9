"""From the tokens of a filter expression to its tree.

Theory of operation
-------------------
Recursive descent over pcap-filter(7)'s grammar.  ``and`` and ``or`` have one precedence and go from left to right;
``not`` binds tighter.  Behind ``and`` or ``or`` an identifier may stand without qualifiers and then has those of the
primitive before it: ``tcp dst port 80 or 90``.  So an *item*, which may be such an identifier, is another thing than a
*term*, which may not.  A parenthesis may hold a part of an arithmetic expression, identifiers only
(``port (80 or 90)``), or a whole expression; they are tried in that order, over tokens, and nothing else is done
before the tree stands.

*Source:* pcap-filter(7).
"""

from wirespeed.net.filter import syntax as tree
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.lexer import END, IPV4, IPV6, MAC, MAC8, NAME, NUMBER, tokens
from wirespeed.net.filter.syntax import Qualifiers
from wirespeed.net.filter.vocabulary import BARE_KINDS, DIRECTIONS, KINDS, PROTOCOLS
from wirespeed.net.filter.word_parser import FIRST, QUALIFIED, WordParser

IDENTIFIERS = (NAME, IPV4, IPV6, MAC, MAC8)
NOTHING = Qualifiers(given=False)

Told = tuple[tree.Condition, Qualifiers]  # a condition, and what an identifier behind it inherits


def parse(expression: str) -> tree.Condition | None:
    """The tree of an expression, None for an empty one; raises FilterError with the place of a fault."""
    parser = _Parser(expression, tokens(expression))
    if parser.token.kind == END:
        return None
    try:
        condition, _ = parser.expression(NOTHING)
        if parser.token.kind != END:
            raise parser.wanted("'and', 'or' or the end of the expression")
    except FilterError as error:
        raise parser.best(error) from None
    return condition


class _Parser(WordParser):
    """The conditions, and how they are joined."""

    def expression(self, inherited: Qualifiers) -> Told:
        """A term, and items behind it."""
        first, qualifiers = self._term(inherited)
        return self._chain(first, qualifiers)

    def _chain(self, first: tree.Condition, qualifiers: Qualifiers) -> Told:
        """The items behind a first one."""
        rest: list[tuple[str, tree.Condition]] = []
        while self.token.among("and", "or"):
            word = self.take().text
            item, qualifiers, _ = self._item(qualifiers)
            rest.append((word, item))
        if not rest:
            return first, qualifiers
        return tree.Chain(first.start, rest[-1][1].end, first, tuple(rest)), qualifiers

    def _identifiers(self, first: tree.Condition, qualifiers: Qualifiers) -> tree.Condition:
        """The identifiers behind a first one."""
        rest: list[tuple[str, tree.Condition]] = []
        while self.token.among("and", "or"):
            word = self.take().text
            rest.append((word, self._identifier(qualifiers)))
        return tree.Chain(first.start, rest[-1][1].end, first, tuple(rest)) if rest else first

    def _item(self, inherited: Qualifiers) -> tuple[tree.Condition, Qualifiers, bool]:
        """What may stand behind ``and``, ``or`` or ``not``; the last of the three is True for an identifier."""
        if self.token.among("not"):
            with self.deeper():
                start = self.take().start
                operand, qualifiers, is_identifier = self._item(inherited)
            return tree.Not(start, operand.end, operand), qualifiers, is_identifier
        relation = self.relation()
        if relation:
            return relation, NOTHING, False
        if self.token.kind in (*IDENTIFIERS, NUMBER):
            return self._plain_identifier(inherited), inherited, True
        if self.token.among("("):
            with self.deeper():
                self.take()
                inner, qualifiers, is_identifier = self._item(inherited)
                if is_identifier:
                    inner = self._identifiers(inner, inherited)
                else:
                    inner, _ = self._chain(inner, qualifiers)
                self.take(")")
            return inner, inherited, is_identifier
        term, qualifiers = self._term(inherited)
        return term, qualifiers, False

    def _identifier(self, inherited: Qualifiers) -> tree.Condition:
        """What may stand behind qualifiers: an identifier, or several in parentheses."""
        if self.token.among("not"):
            with self.deeper():
                start = self.take().start
                operand = self._identifier(inherited)
            return tree.Not(start, operand.end, operand)
        if self.token.among("("):
            with self.deeper():
                self.take()
                inner = self._identifiers(self._identifier(inherited), inherited)
                self.take(")")
            return inner
        return self._plain_identifier(inherited)

    def _plain_identifier(self, qualifiers: Qualifiers) -> tree.Identifier:
        """One address, name or number, and the prefix or mask of a network."""
        token = self.token
        if token.kind not in (*IDENTIFIERS, NUMBER):
            raise self.wanted("an address, a name or a number")
        if not qualifiers.given:
            raise self.error(
                f"{token} needs a word before it that says what it is, such as 'host' or 'port'{self._hint()}"
            )
        self.take()
        prefix = mask = None
        if token.kind in (IPV4, IPV6) and self.token.among("/"):
            self.take()
            if self.token.kind != NUMBER:
                raise self.wanted("the length of a prefix")
            prefix = self.take().value
        elif token.kind == IPV4 and self.token.among("mask"):
            self.take()
            if self.token.kind != IPV4:
                raise self.wanted("an IPv4 address as the mask")
            mask = self.take()
        return tree.Identifier(token.start, self.end, qualifiers, token, prefix, mask)

    def _term(self, inherited: Qualifiers) -> Told:
        """What may stand first: a primitive with its qualifiers, or an expression in parentheses."""
        if self.token.among("not"):
            with self.deeper():
                start = self.take().start
                operand, qualifiers = self._term(inherited)
            return tree.Not(start, operand.end, operand), qualifiers
        relation = self.relation()
        if relation:
            return relation, NOTHING
        if self.token.among("("):
            with self.deeper():
                self.take()
                inner, _ = self.expression(inherited)
                self.take(")")
            return inner, inherited
        return self._primitive()

    def _primitive(self) -> Told:
        protocol = self.take() if self.token.among(*PROTOCOLS) else None
        name = PROTOCOLS[protocol.text] if protocol else None
        if self.word in (QUALIFIED if protocol else FIRST):
            return self.word_primitive(protocol, name), NOTHING
        if self.token.among(*DIRECTIONS, *KINDS, *BARE_KINDS):
            qualifiers = self._qualifiers(name)
            return self._identifier(qualifiers), qualifiers
        if protocol and name:
            return tree.Abbreviation(protocol.start, protocol.end, name), NOTHING
        raise self.wanted("a primitive such as 'host ADDRESS', 'port NUMBER' or 'tcp'")

    def _qualifiers(self, protocol: str | None) -> Qualifiers:
        """The direction and kind that are ahead."""
        direction = kind = None
        if self.token.among(*DIRECTIONS):
            direction = DIRECTIONS[self.take().text]
            if direction in ("src", "dst") and self.token.among("and", "or"):
                word = self.take().text
                self.take("dst" if direction == "src" else "src")
                direction = f"src {word} dst"
            if self.token.among(*KINDS):
                kind = self.take().text
        else:
            kind = self.take().text
        return Qualifiers(protocol, direction, kind)
