"""The primitives of a filter expression that begin with a word of their own: ``vlan 5``, ``less 64``, ``llc ui``."""

from wirespeed.net.filter import syntax as tree
from wirespeed.net.filter.arithmetic_parser import RELATIONS, ArithmeticParser
from wirespeed.net.filter.lexer import NAME, NUMBER, Token
from wirespeed.net.filter.vocabulary import ATM_FIELDS, ATM_TYPES, MTP2_TYPES, MTP3_FIELDS, WORDS

ALONE = ("inbound", "outbound", "pppoed", *ATM_TYPES, *MTP2_TYPES)
NUMBER_WANTED = ("less", "greater", "ifindex", "rulenum", "subrulenum")
NUMBER_ALLOWED = ("vlan", "mpls", "pppoes", "geneve", "vxlan")
NAME_WANTED = ("ifname", "ruleset", "action")
EITHER_WANTED = ("reason", "dir")
BYTE_SIGNS = ("&", "|", "<", ">", "=")
QUALIFIED = ("broadcast", "multicast", "type", "subtype", "dir")  # a protocol may stand before these
FIELDS = (*ATM_FIELDS, *MTP3_FIELDS)
FIRST = (*ALONE, *NUMBER_WANTED, *NUMBER_ALLOWED, *NAME_WANTED, *EITHER_WANTED, *QUALIFIED, *FIELDS, "byte", "llc")


class WordParser(ArithmeticParser):
    """The rules of those primitives."""

    @property
    def word(self) -> str:
        """The word ahead in its usual form, empty when a name or sign is ahead."""
        return WORDS.get(self.token.text, "") if self.token.among(*WORDS) else ""

    def word_primitive(self, protocol: Token | None, name: str | None) -> tree.Condition:
        """The primitive whose word is ahead; ``protocol`` is a word that stood before it, ``name`` what it means."""
        start = (protocol or self.token).start
        word = self.word
        if word in FIELDS:
            return self._field(word)
        self.take()
        arguments: tuple[Token, ...] = ()
        if word in NUMBER_WANTED:
            arguments = (self._plain_number(),)
        elif word in NUMBER_ALLOWED and (self.token.kind == NUMBER or self.token.among("(")):
            arguments = (self.take_number(),)
        elif word in NAME_WANTED:
            arguments = (self._name(numbers=False),)
        elif word in EITHER_WANTED:
            arguments = (self._name(numbers=True),)
        elif word == "byte":
            arguments = (self._plain_number(), self.take(*BYTE_SIGNS), self._plain_number())
        elif word == "type":
            arguments = (self._name(numbers=True),)
            if self.word == "subtype":
                self.take()
                arguments += (self._name(numbers=True),)
        elif word == "subtype":
            arguments = (self._name(numbers=False),)
        elif word == "llc" and (self.token.kind == NAME or self.word == "rulenum"):
            arguments = (self.take(),)
        return tree.Word(start, self.end, word, name, arguments)

    def _field(self, word: str) -> tree.Comparison:
        """A field of ATM or MTP3 and what it is compared with."""
        start = self.take().start
        sign, values = "=", []
        if self.token.among(*RELATIONS):
            sign = self.take().text
            values.append(self._plain_number().value)
        elif self.token.among("("):
            self.take()
            values.append(self._plain_number().value)
            while self.token.among("or"):
                self.take()
                values.append(self._plain_number().value)
            self.take(")")
        else:
            values.append(self._plain_number().value)
        return tree.Comparison(start, self.end, word, sign, tuple(values))

    def _plain_number(self) -> Token:
        if self.token.kind != NUMBER:
            raise self.wanted("a number")
        return self.take()

    def _name(self, numbers: bool) -> Token:
        if self.token.kind == NAME or (numbers and self.token.kind == NUMBER):
            return self.take()
        raise self.wanted("a name or a number" if numbers else "a name")
