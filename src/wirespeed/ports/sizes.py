"""The sizes of a generator's frames, and the pattern in which they come.

IMIX, the mix of sizes that stands for Internet traffic in its simple form, is 7 : 4 : 1 frames of 64, 594 and 1518.
"""

from collections.abc import Sequence
from typing import Any

from wirespeed.ports import options
from wirespeed.ports.options import Wanted

IMIX, IMIX_WEIGHTS = (64, 594, 1518), (7, 4, 1)
LARGEST = 1 << 20
LONGEST_PATTERN = 4096


def sizes(value: Any) -> tuple[int, ...]:
    """Parse ``64``, ``64,594``, a list of sizes, or ``imix``."""
    if value == "imix":
        return IMIX
    return _numbers(value, options.size(1, LARGEST), f"sizes from 1 to {LARGEST} with commas, or imix", "64,594")


def weights(value: Any) -> tuple[int, ...]:
    """Parse ``7,4,1`` or a list."""
    parse = options.count(1, LONGEST_PATTERN)
    found = _numbers(value, parse, "whole numbers above 0 with commas", "7,4,1")
    if sum(found) > LONGEST_PATTERN:
        raise Wanted(f"weights of at most {LONGEST_PATTERN} together", "7,4,1")
    return found


def _numbers(value: Any, parse: options.Parser, wanted: str, example: str) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    try:
        numbers = tuple(parse(part) for part in parts)
    except Wanted:
        numbers = ()
    if not 1 <= len(numbers) <= LONGEST_PATTERN:
        raise Wanted(wanted, example)
    return numbers


def spread(weights: Sequence[int]) -> list[int]:
    """Indices, as many of each as its weight, as evenly mixed as they go (the smooth weighted round robin of nginx)."""
    credit = [0] * len(weights)
    pattern = []
    for _ in range(sum(weights)):
        credit = [c + w for c, w in zip(credit, weights, strict=True)]
        best = max(range(len(weights)), key=lambda i: (credit[i], -i))
        credit[best] -= sum(weights)
        pattern.append(best)
    return pattern
