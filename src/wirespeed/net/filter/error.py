"""The error of a filter expression: what is wrong, and where in the expression it stands."""

from typing import Self

from wirespeed.errors import GraphError

INDENT = "  "


class FilterError(GraphError):
    """A filter expression that cannot be compiled.

    ``position`` and ``length`` are the place in ``expression``, in characters; ``position`` is None while the place is
    not known yet.  The text shows the line of the expression with carets below that place.
    """

    def __init__(self, what: str, expression: str | None = None, position: int | None = None, length: int = 1) -> None:
        self.what = what
        self.expression = expression
        self.position = position
        self.length = length
        super().__init__(
            what if expression is None or position is None else what + _shown(expression, position, length)
        )

    def at(self, expression: str, start: int, end: int) -> Self:
        """The same error with its place, unless it has one already."""
        return self if self.position is not None else type(self)(self.what, expression, start, max(end - start, 1))


def _shown(expression: str, position: int, length: int) -> str:
    """The line of an expression in which a place is, and carets below that place."""
    begin = expression.rfind("\n", 0, position) + 1
    end = expression.find("\n", position)
    line = expression[begin : end if end >= 0 else len(expression)]
    carets = "^" * max(1, min(length, len(line) - (position - begin)))
    # A tab or an escape sequence would move the carets away from what they point at.
    plain = "".join(c if c.isprintable() else " " for c in line)
    return f"\n{INDENT}{plain}\n{INDENT}{' ' * (position - begin)}{carets}"
