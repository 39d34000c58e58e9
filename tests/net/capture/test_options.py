"""Options of pcapng blocks: read, built, and carried along in machine order."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.capture import files
from wirespeed.net.capture import options
from wirespeed.net.capture.options import carry

pairs = st.lists(st.tuples(st.integers(1, 0xFFFF), st.binary(max_size=20)), max_size=6)


def carried(data: bytes, swapped: bool = False, room: int = 4096) -> tuple[bytes, bool]:
    """What ``carry`` makes of a list of options; nothing behind ``room`` is touched."""
    source = np.frombuffer(data + b"?" * 8, np.uint8)
    to = np.full(room + 64, 0xEE, np.uint8)
    size, whole = carry(to.ctypes.data, room, source.ctypes.data, len(data), swapped)
    assert (to[max(size, 0) :][room - size :] == 0xEE).all()
    return to[:size].tobytes(), bool(whole)


@given(pairs)
def test_what_is_built_is_parsed(made):
    assert options.parse(options.build(made)) == made


@given(pairs, st.sampled_from("<>"), st.booleans())
def test_options_of_a_file_are_parsed_in_either_order(made, order, end):
    assert options.parse(files.options(*made, order=order, end=end), order == ">") == made


@given(pairs, st.integers(0, 60))
def test_what_is_cut_short_is_left_out(made, cut):
    data = files.options(*made, end=False)
    data = data[: max(0, len(data) - cut)]
    found = options.parse(data)
    assert found == made[: len(found)]
    at = len(files.options(*made[: len(found)], end=False))
    assert found == made or len(data) - at < 4 + len(made[len(found)][1])


plain = st.lists(st.tuples(st.sampled_from([1, 3, 100]), st.binary(max_size=20)), max_size=6)


@given(plain, st.booleans())
def test_options_are_carried_as_they_are(made, end):
    assert carried(files.options(*made, end=end)) == (options.build(made), True)


@given(plain, st.booleans())
def test_options_of_the_other_order_are_carried_in_machine_order(made, end):
    assert carried(files.options(*made, order=">", end=end), True) == (options.build(made), True)


@pytest.mark.parametrize(
    ("code", "form", "values"),
    [
        (2, "I", (0x01020304,)),
        (4, "Q", (0x0102030405060708,)),
        (5, "Q", (77,)),
        (6, "I", (3,)),
        (7, "BQ", (1, 0x0102030405060708)),
        (7, "BQ", (2, 9)),
        (2988, "I4s", (0xDEAD, b"text")),
        (19373, "I4s", (0xBEEF, b"more")),
    ],
)
def test_integers_in_options_are_turned(code, form, values):
    other, ours = struct.pack(">" + form, *values), struct.pack("<" + form, *values)
    assert carried(files.options((code, other), order=">"), True) == (options.build([(code, ours)]), True)


@pytest.mark.parametrize("pair", [(2, b"abc"), (4, b"abcd"), (7, b"\0abcdefgh"), (7, b"\3abcdefgh"), (2988, b"ab")])
def test_values_of_another_size_or_kind_are_not_turned(pair):
    assert carried(files.options(pair, order=">"), True) == (options.build([pair]), True)


@given(plain, st.integers(0, 80))
def test_options_that_do_not_fit_are_left_out_whole_and_it_is_said(made, room):
    got, whole = carried(files.options(*made), room=room)
    kept = options.parse(got)
    assert kept == made[: len(kept)]
    assert whole == (kept == made)
    rest = made[len(kept) :]
    assert not rest or len(got) + len(options.build(rest[:1])) > room


def test_an_option_longer_than_its_list_is_left_out():
    data = files.option(1, b"good") + struct.pack("<HH", 1, 500) + b"x" * 8
    assert carried(data) == (options.build([(1, b"good")]), False)


def test_comments_are_text_whatever_their_bytes():
    data = files.options((1, "größer".encode()), (2, b"\0\0\0\0"), (1, b"\xff!"), (1, b""))
    assert options.comments(data) == ("größer", "�!", "")
