"""How the command line's words are read: argparse, with our one style of error and a guess at what was meant."""

import argparse
import difflib
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from wirespeed.errors import GraphError


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'pcap'?`` for a word that is close to a known one, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors instead of printing a usage and leaving."""

    Verbatim = argparse.RawDescriptionHelpFormatter

    def __init__(self, name: str, summary: str, *, usage: str | None = None, epilog: str | None = None) -> None:
        super().__init__(name, usage, summary, epilog, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found as our error, with the option that was meant if there is one that is close."""
        unknown = message.partition("unrecognized arguments: ")[2].split()
        if unknown and unknown[0].startswith("-"):
            word = unknown[0].partition("=")[0]
            message = f"there is no option {word!r}{did_you_mean(word, self._option_string_actions)}"
        elif unknown:
            message = f"got {unknown[0]!r}, wanted no further word"
        raise GraphError(f"{message.replace('argument --', 'option --', 1)}; see {self.prog} --help")


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A reader of whole numbers between bounds, for ``add_argument(type=...)``."""
    wanted = f"a whole number from {least} to {most}" if most is not None else f"a whole number of {least} or more"

    def read(text: str) -> int:
        number = int(text) if text.lstrip("-").isdecimal() else None
        if number is None or number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"got {text!r}, wanted {wanted}")
        return number

    return read


def seconds(text: str) -> float:
    """A time in seconds, more than none: ``3``, ``0.5``; or with a unit: ``250ms``, ``2min``."""
    from wirespeed.ports.options import Wanted, duration

    try:
        return int(duration(1)(text)) / 1e9
    except Wanted:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, wanted a time of more than 0 such as 3, 0.5 or 250ms"
        ) from None


def cores(text: str) -> list[int]:
    """Numbers of processor cores, as taskset takes them: ``0``, ``0-3``, ``0,2,4-5``."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise argparse.ArgumentTypeError(f"got {text!r}, wanted core numbers such as 0, 0-3 or 0,2,4-5")
        found += range(int(first), min(int(last or first), int(first) + 4096) + 1)
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"got {text!r}, which names a core twice; name each once")
    return found


def listed(values: Any) -> str:
    """Several words in a sentence: ``a, b and c``."""
    words = [str(v) for v in values]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
