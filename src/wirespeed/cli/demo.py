"""``wirespeed demo``"""

from typing import Any

from wirespeed.cli import session
from wirespeed.cli.parser import Parser


def configure(parser: Parser) -> None:
    session.configure(parser)


def main(arguments: Any) -> int:
    return 0
