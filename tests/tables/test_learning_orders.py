"""Every interleaving of finding an address with its place changing hands, stale reads included.

The step machines follow wirespeed.tables.mac_lines access for access: one place of one line, whose holders change under
the lock, and a search for the address that has it first and last.
"""

from dataclasses import dataclass

import pytest

from tests.core.interleave import ACQUIRE, RELAXED, RELEASE, Violation, again, explore, load, store

OURS, THEIRS, NOBODY = "ours", "theirs", None


@dataclass(frozen=True)
class Orders:
    """The orders in tables/mac_lines.py; a test weakens one at a time."""

    removal: str = RELAXED  # of the key that a removal clears: K2 comes behind it
    value: str = RELEASE  # K2
    key: str = RELEASE  # K0
    look: str = RELAXED  # at the key in the search
    first: str = ACQUIRE  # K3
    second: str = ACQUIRE  # K1
    stamps: bool = True  # whether a place's values differ from one holder to the next


ONCE = [(THEIRS, 2), (OURS, 3)]
TWICE = [(THEIRS, 2), (OURS, 3), (THEIRS, 2), (OURS, 3)]


def hand_over(o, holders=ONCE):
    """The place is taken from us, given to somebody else at a port, taken from him and given to us at another one."""

    def program():
        for stamp, (holder, port) in enumerate(holders, 1):
            yield store("key", NOBODY, o.removal)
            yield store("value", (port, stamp if o.stamps else 0), o.value)
            yield store("key", holder, o.key)

    return program


def search(o):
    """The port that a search finds, or None."""

    def program():
        if (yield load("key", o.look)) != OURS:
            return None
        value = yield load("value", o.first)
        if (yield load("key", o.second)) != OURS:
            yield again(3)
        if (yield load("value", RELAXED)) != value:
            yield again(4)
        return value[0]

    return program


def found(o, holders=ONCE):
    """All that a search can find."""
    results = set()
    explore(
        {"learner": hand_over(o, holders), "finder": search(o)},
        {"key": OURS, "value": (1, 0)},
        lambda returned: results.add(returned[1]),
    )
    return results


def test_a_search_finds_one_of_the_ports_at_which_the_address_was_or_none():
    assert found(Orders()) == {None, 1, 3}


def test_two_searches_and_a_move_find_only_ports_of_the_address():
    def move():
        yield store("value", (4, 0), RELEASE)
        yield from hand_over(Orders())()

    def check(returned):
        assert {returned[1], returned[2]} <= {None, 1, 3, 4}

    explore(
        {"learner": move, "one": search(Orders()), "other": search(Orders())}, {"key": OURS, "value": (1, 0)}, check
    )


@pytest.mark.parametrize(
    "weak",
    [Orders(value=RELAXED), Orders(key=RELAXED), Orders(first=RELAXED), Orders(second=RELAXED)],
    ids=lambda o: ",".join(f for f in ("value", "key", "first", "second") if getattr(o, f) == RELAXED),
)
def test_without_one_of_its_orders_a_search_may_find_a_port_of_another_address(weak):
    assert 2 in found(weak)


def test_without_the_second_look_at_the_value_a_search_may_find_a_port_of_another_address():
    def program():
        if (yield load("key", RELAXED)) != OURS:
            return None
        value = yield load("value", ACQUIRE)
        if (yield load("key", ACQUIRE)) != OURS:
            yield again(3)
        return value[0]

    def check(returned):
        assert returned[1] != 2

    with pytest.raises(Violation, match="returned"):
        explore({"learner": hand_over(Orders()), "finder": program}, {"key": OURS, "value": (1, 0)}, check)


def test_stamps_tell_the_values_of_successive_holders_apart():
    assert found(Orders(), TWICE) == {None, 1, 3}
    assert 2 in found(Orders(stamps=False), TWICE)
