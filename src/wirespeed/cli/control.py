"""What the commands for a running switch have in common: which one it is, and texts given as words, files or input."""

import os
import sys
from typing import TYPE_CHECKING, Any

from wirespeed.cli.parser import Parser
from wirespeed.errors import GraphError, PortError

if TYPE_CHECKING:
    from wirespeed.switch.control.line import Client

DEFAULT_NAME = "switch"


def configure(parser: Parser, commands: dict[str, str]) -> None:
    """The first word, what is to be done, and the switch that it is done to."""
    width = max(map(len, commands))
    listed = "\n".join(f"  {name:{width}}  {what}" for name, what in commands.items())
    parser.epilog = f"commands:\n{listed}\n{parser.epilog or ''}"
    parser.formatter_class = Parser.Verbatim
    parser.add_argument("what", choices=tuple(commands), metavar="COMMAND", help=", ".join(commands))
    name(parser)


def name(parser: Parser) -> None:
    """The option that names a switch."""
    parser.add_argument(
        "--name", metavar="SWITCH", default=DEFAULT_NAME,
        help="the running switch, by the --name it was started with, or its control socket's path (switch)",
    )  # fmt: skip


def connect(arguments: Any) -> "Client":
    """A connection to the switch that is named."""
    from wirespeed.switch.control.address import path_of
    from wirespeed.switch.control.line import Client

    return Client(path_of(arguments.name))


def given(word: str) -> tuple[str, str]:
    """(where from, content) of a word: ``-`` is standard input, a file's name its content, anything else the text itself."""
    if word == "-":
        return "standard input", sys.stdin.read()
    if not os.path.isfile(word):
        if "=" not in word and (os.path.exists(word) or os.path.sep in word):
            raise GraphError(f"{word}: there is no such file")
        return "", word
    try:
        with open(word, encoding="utf-8") as file:
            return word, file.read()
    except UnicodeDecodeError:
        raise PortError(f"{word}: that is no text") from None


def given_all(words: list[str]) -> tuple[str, str]:
    """The same of several words, one behind the other."""
    parts = [given(word) for word in words]
    return (parts[0][0] if len(parts) == 1 else "") or "line", "\n".join(text for _, text in parts)


def times(n: int, what: str) -> str:
    """A number of things: ``1 rule``, ``2 rules``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def no_words(arguments: Any, most: int, wanted: str) -> None:
    """Refuse more words than a command takes."""
    if len(arguments.words) > most:
        raise GraphError(f"{arguments.what}: got {arguments.words[most]!r}, wanted {wanted}")
