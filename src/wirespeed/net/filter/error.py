"""The error of a filter expression: what is wrong, and where in the expression it stands."""

from typing import Self

from wirespeed.errors import GraphError

INDENT = "  "
WINDOW = 60  # characters that are shown of a line that is longer,
BEFORE = 20  # so many of them from before the fault
CUT = "..."


class FilterError(GraphError):
    """A filter expression that cannot be compiled.

    ``position`` and ``length`` are the place in ``expression``, in characters; ``position`` is None while the place is
    not known yet.  The text shows the line of the expression, or what of it is near, with carets below that place.
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


class LinkError(FilterError):
    """What packets of one link type do not have; the same expression may be right for another one."""


def _shown(expression: str, position: int, length: int) -> str:
    """The line of an expression in which a place is, or of a long line what stands around it, and carets below it."""
    begin = expression.rfind("\n", 0, position) + 1
    end = expression.find("\n", position)
    end = end if end >= 0 else len(expression)
    first, behind = begin, end
    if end - begin > WINDOW:
        first = max(begin, min(position - BEFORE, end - WINDOW))
        behind = min(end, first + WINDOW)
    # A tab or an escape sequence would move the carets away from what they point at.
    plain = "".join(c if c.isprintable() else " " for c in expression[first:behind])
    left, right = CUT * (first > begin), CUT * (behind < end)
    carets = "^" * max(1, min(length, behind - position))
    return f"\n{INDENT}{left}{plain}{right}\n{INDENT}{' ' * (len(left) + position - first)}{carets}"
