"""Rules, groups and meters of files, put into a switch before it runs."""

from typing import Any

from wirespeed.cli.control import given


def load(switch: Any, arguments: Any) -> dict[str, int]:
    """Put what ``--meters``, ``--groups`` and ``--flows`` name into a switch, in this order; how many of each."""
    from wirespeed.switch.control.request import Desk

    desk, found = Desk(switch), {}
    for kind in ("meters", "groups", "flows"):
        word = getattr(arguments, kind)
        if word is not None:
            where, text = given(word)
            found[kind] = desk.do({"command": f"{kind[:-1]} add", "text": text, "where": where})["n"]
    return found
