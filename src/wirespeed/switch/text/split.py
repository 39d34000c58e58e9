"""Splitting text at commas and blanks that are not inside of parentheses or quotes."""

import re

from wirespeed.errors import GraphError

_MARK = re.compile(r'[(),\s"]')
_HEAD = re.compile(r"[^:=(]*")
MOST_DEPTH = 64


def split(text: str) -> list[str]:
    """The items of a list."""
    if "(" not in text and '"' not in text:
        if ")" in text:
            raise GraphError(f"a closing parenthesis without an opening one in {text!r}")
        return text.replace(",", " ").split()
    items, depth, first, quoted = [], 0, 0, False
    for mark in _MARK.finditer(text):
        what, at = mark.group(), mark.start()
        if what == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif what == "(":
            depth += 1
            if depth > MOST_DEPTH:
                raise GraphError(f"more than {MOST_DEPTH} parentheses inside one another")
        elif what == ")":
            depth -= 1
            if depth < 0:
                raise GraphError(f"a closing parenthesis without an opening one in {text!r}")
        elif depth == 0:
            if first < at:
                items.append(text[first:at])
            first = at + 1
    if depth or quoted:
        raise GraphError(f"{text!r} has {'a quote' if quoted else 'a parenthesis'} that does not end")
    if first < len(text):
        items.append(text[first:])
    return items


def name_and_argument(text: str) -> tuple[str, str, str]:
    """(name, what is between, argument) of ``name:argument``, ``name=argument`` or ``name(argument)``."""
    found = _HEAD.match(text)
    end = found.end() if found is not None else 0
    name, between, argument = text[:end], text[end : end + 1], text[end + 1 :]
    if between == "(":
        if not argument.endswith(")"):
            raise GraphError(f"{text!r}: nothing may follow the closing parenthesis")
        argument = argument[:-1]
    return name, between, argument
