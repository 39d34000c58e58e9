"""Words, numbers, addresses and operators of a filter expression.

Theory of operation
-------------------
The longest match wins; of two that are equally long the more special one does: a word of the language before a hardware
address, that before a number, an IPv4 address, an IPv6 address and, last, a name.  So ``len-5`` is a name and
``len - 5`` a difference, and ``001122334455`` is a hardware address and no number.  A backslash takes the meaning of
the language from a word: ``ether proto \\ip``.

*Source:* pcap-filter(7).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.literal import ipv6, is_ipv6_form, number
from wirespeed.net.filter.vocabulary import NUMBERS, RESERVED

WORD, NUMBER, IPV4, IPV6, MAC, MAC8, NAME, SIGN, END = range(9)
CALLED = {
    NUMBER: "the number",
    IPV4: "the IPv4 address",
    IPV6: "the IPv6 address",
    MAC: "the hardware address",
    MAC8: "the hardware address",
    NAME: "the name",
}

_B, _B2 = "[0-9A-Fa-f]{1,2}", "[0-9A-Fa-f]{4}"
_N = "(?:0[xX][0-9A-Fa-f]+|[0-9]+)"
_SPACE = re.compile(r"[ \r\n\t]+")
_WORD = re.compile("|".join(sorted((re.escape(w) for w in {*RESERVED, *NUMBERS}), key=len, reverse=True)))
_SIGN = re.compile(r"&&|\|\||>=|<=|!=|==|<<|>>|[-+*/%:\[\]!<>()&|^=]")
_MAC8 = re.compile(rf"\${_B}")
_MACS = tuple(
    re.compile(form)
    for form in (
        *(rf"{_B}(?:{sign}{_B}){{5}}" for sign in (":", "-", r"\.")),
        rf"{_B2}(?:\.{_B2}){{2}}",
        "[0-9A-Fa-f]{12}",
    )
)
_NUMBER = re.compile(_N)
_IPV4 = re.compile(rf"{_N}(?:\.{_N}){{1,3}}")
_IPV6 = re.compile(r"[0-9A-Fa-f:][0-9A-Fa-f:.xX]*")
_BROKEN = re.compile(rf"{_B}:+(?:{_B}:+)+")  # what is refused, whatever stands behind it;
_ADDRESS = re.compile(r"[0-9A-Za-z:.]+")  # and all of what was meant to be an address
_MAC_BYTES = 6
_NAME = re.compile(r"[A-Za-z0-9](?:[-_.A-Za-z0-9]*[.A-Za-z0-9])?")
_ESCAPED = re.compile(r"\\[^ !()\n\t]+")
_SAME = {"&&": "and", "||": "or", "!": "not", "==": "="}


@dataclass(frozen=True)
class Token:
    """One word, literal or operator; ``value`` of a number is that number, in its 32 bits."""

    kind: int
    text: str
    start: int
    end: int
    value: int = 0

    def __str__(self) -> str:
        if self.kind == END:
            return "the end of the expression"
        return f"{CALLED[self.kind]} {self.text!r}" if self.kind in CALLED else repr(self.text)

    def among(self, *texts: str) -> bool:
        """True for one of these words or operators; a name that was escaped is none of them."""
        return self.kind in (WORD, SIGN) and self.text in texts


def tokens(expression: str) -> list[Token]:
    """All tokens of an expression, and one END behind them; raises FilterError at what is none."""
    return [*_scan(expression), Token(END, "", len(expression), len(expression))]


def _scan(expression: str) -> Iterator[Token]:
    at = 0
    while at < len(expression):
        space = _SPACE.match(expression, at)
        if space:
            at = space.end()
            continue
        token = _longest(expression, at)
        yield token
        at = token.end


def _longest(expression: str, at: int) -> Token:
    """The token at a place."""
    kind, end = -1, at
    candidates = ((WORD, _WORD), (SIGN, _SIGN), (MAC8, _MAC8), *((MAC, form) for form in _MACS), (NUMBER, _NUMBER))
    for candidate, form in (*candidates, (IPV4, _IPV4)):
        found = form.match(expression, at)
        if found and found.end() > end:
            kind, end = candidate, found.end()
    stretch = _IPV6.match(expression, at)
    if stretch:
        for stop in range(min(stretch.end(), at + 64), end, -1):
            if is_ipv6_form(expression[at:stop]):
                kind, end = IPV6, stop
                break
    broken = _BROKEN.match(expression, at)
    if broken and broken.end() > end:
        raise _no_address(expression, at)
    name = _NAME.match(expression, at)
    if name and name.end() > end:
        kind, end = NAME, name.end()
    escaped = _ESCAPED.match(expression, at)
    if escaped:
        return Token(NAME, escaped.group()[1:], at, escaped.end())
    if kind < 0:
        raise FilterError(f"the character {expression[at]!r} has no meaning here", expression, at)
    return _token(kind, expression, at, end)


def _no_address(expression: str, at: int) -> FilterError:
    """The error at what has colons but is neither a hardware address nor one of IPv6."""
    found = _ADDRESS.match(expression, at)
    assert found
    text = found.group()
    six, eight = "six bytes such as 00:11:22:33:44:55", "eight groups, or fewer and '::' once, such as 2001:db8::1"
    if "::" in text or text.count(":") > _MAC_BYTES:
        what = f"invalid IPv6 address {text!r}; write {eight}"
    elif text.count(":") == _MAC_BYTES:
        what = f"invalid address {text!r}; a hardware address is {six}, one of IPv6 {eight}"
    else:
        what = f"invalid hardware address {text!r}; write {six}"
    return FilterError(what, expression, at, len(text))


def _token(kind: int, expression: str, at: int, end: int) -> Token:
    """A token of a kind, its literal checked."""
    text = expression[at:end]
    try:
        if kind == WORD:
            if text in NUMBERS:
                return Token(NUMBER, text, at, end, NUMBERS[text])
            return Token(WORD, text, at, end)
        if kind == SIGN:
            same = _SAME.get(text, text)
            return Token(WORD if same.isalpha() else SIGN, same, at, end)
        if kind == NUMBER:
            return Token(NUMBER, text, at, end, number(text))
        if kind == IPV6:
            ipv6(text)
    except FilterError as error:
        raise error.at(expression, at, end) from None
    return Token(kind, text, at, end)
