"""A place in the tokens of a filter expression, and the errors that name such places."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.lexer import NAME, NUMBER, Token

DEEPEST = 100  # parts within each other, so that no expression exhausts the stack
DIFFERENCES = ("len-", "length-")


class Cursor:
    """The token that is next, and those behind it."""

    def __init__(self, expression: str, all_tokens: Sequence[Token]) -> None:
        self.text = expression
        self._tokens = all_tokens
        self._at = 0
        self._depth = 0
        self._farthest: FilterError | None = None

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    @property
    def end(self) -> int:
        """Where the token that was taken last ends."""
        return self._tokens[self._at - 1].end if self._at else 0

    def ahead(self, steps: int) -> Token:
        return self._tokens[min(self._at + steps, len(self._tokens) - 1)]

    def take(self, *texts: str) -> Token:
        """The next token, which must be one of these words or signs when any are given."""
        token = self.token
        if texts and not token.among(*texts):
            raise self.wanted(" or ".join(repr(text) for text in texts))
        self._at += 1
        return token

    def take_number(self) -> Token:
        """A number, which may stand in parentheses."""
        if self.token.among("("):
            with self.deeper():
                self.take("(")
                token = self.take_number()
                self.take(")")
            return token
        if self.token.kind != NUMBER:
            raise self.wanted("a number")
        return self.take()

    def error(self, what: str, token: Token | None = None) -> FilterError:
        at = token or self.token
        return FilterError(what, self.text, at.start, max(at.end - at.start, 1))

    def wanted(self, what: str) -> FilterError:
        return self.error(f"wanted {what}, got {self.token}{self._hint()}")

    def _hint(self) -> str:
        """What to write instead of two things that are read otherwise than they look."""
        before = self._tokens[self._at - 1] if self._at else self.token
        for token in (self.token, before):
            if token.kind == NAME and token.text.startswith(DIFFERENCES):
                return f"; {token.text} is one name: write a difference with spaces, {token.text.replace('-', ' - ')}"
        if self.token.among(":") and before.end == self.token.start:
            return "; a port stands apart, as in 'host 10.0.0.1 and port 80', and an IPv6 address has '::' or 8 groups"
        return ""

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One more part within another."""
        if self._depth == DEEPEST:
            raise self.error(f"more than {DEEPEST} parts within each other")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Try a rule: an error within it takes the cursor back to where it was, and is kept."""
        at = self._at
        try:
            yield
        except FilterError as error:
            self._at = at
            if self._farthest is None or (error.position or 0) > (self._farthest.position or 0):
                self._farthest = error

    def best(self, error: FilterError) -> FilterError:
        """The error to show: the one of an attempt if that had come farther."""
        kept = self._farthest
        return kept if kept and (kept.position or 0) > (error.position or 0) else error
