"""A rule's or bucket's actions as 64-bit words, which :mod:`wirespeed.switch.translate` interprets.

Theory of operation
-------------------
An action is one word, ``code | words << 16 | argument << 32``, and as many more words as its code has; ``words`` counts
all of it, so that a reader can step over it.  A program ends with END.  A place is ``word | shift << 8 | bits << 16``:
up to 64 bits of a flow; a field of 128 bits is two actions.  Needs are numbers of :data:`NEEDS`: an action whose
header is not in the flow does nothing.
"""

from collections.abc import Iterable, Iterator

from wirespeed.switch.fields import NEEDS as NEEDED

END = 0
OUTPUT = 1  # argument: port number; word: most bytes, or 0
OUTPUT_FIELD = 2  # argument: place of the port number; word: most bytes, or 0
CONTROLLER = 3  # argument: most bytes; word: number of what else is to be told
SET = 4  # argument: word | needs << 8; words: value and mask, in place
MOVE = 5  # argument: place of the source; word: place of the destination | needs << 32 | needs of the source << 40
PUSH_VLAN = 6  # argument: its type
POP_VLAN = 7
SET_VLAN_VID = 8  # argument: the number; a tag is pushed where there is none
SET_VLAN_PCP = 9  # argument: the priority; the same
PUSH_MPLS = 10  # argument: its type
POP_MPLS = 11  # argument: the type of what is behind
DEC_TTL = 12
DEC_MPLS_TTL = 13
GOTO = 14  # argument: table
RESUBMIT = 15  # argument: port number to look up with, IN_PORT for the one it has; word: table, 255 for the same
WRITE_ACTIONS = 16  # the words behind it are actions for the action set
CLEAR_ACTIONS = 17
WRITE_METADATA = 18  # words: value and mask
METER = 19  # argument: its place among the meters
GROUP = 20  # argument: its place among the groups
PUSH_FIELD = 21  # argument: place; the packet's stack
POP_FIELD = 22  # argument: place; word: needs
EXIT = 23
CLONE = 24  # the words behind it are actions for a copy
SET_MPLS_TTL = 25  # argument: the value

NAMES = {number: name for name, number in sorted(globals().items()) if isinstance(number, int)}
NEEDS = tuple(NEEDED)
NEEDS_NUMBER = {name: number for number, name in enumerate(NEEDS)}


def head(code: int, words: int = 1, argument: int = 0) -> int:
    """The first word of an action of so many words."""
    return code | words << 16 | argument << 32


def place(word: int, shift: int, bits: int) -> int:
    """Up to 64 bits of a flow, for an argument."""
    return word | shift << 8 | bits << 16


def steps(program: Iterable[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(code, argument, further words) of each action of a program, up to its end."""
    words = list(program)
    at = 0
    while at < len(words) and words[at] & 0xFFFF != END:
        length = words[at] >> 16 & 0xFFFF
        yield words[at] & 0xFFFF, words[at] >> 32, tuple(words[at + 1 : at + length])
        at += length
