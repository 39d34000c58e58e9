"""How words, numbers and lists of the command line are read."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.cli.parser import Parser, cores, did_you_mean, listed, seconds, whole
from wirespeed.errors import GraphError


def parser() -> Parser:
    made = Parser("wirespeed try", "a parser")
    made.add_argument("words", nargs="*")
    made.add_argument("--json", action="store_true")
    made.add_argument("--burst", type=whole(1, 256))
    return made


def refusal(*argv: str) -> str:
    with pytest.raises(GraphError) as caught:
        parser().parse_intermixed_args(list(argv))
    return str(caught.value)


def test_options_may_stand_between_words() -> None:
    read = parser().parse_intermixed_args(["a", "--burst", "8", "b", "--json", "c"])
    assert (read.words, read.burst, read.json) == (["a", "b", "c"], 8, True)


def test_an_unknown_option_is_told_with_the_one_that_was_meant() -> None:
    assert refusal("--jsno") == "there is no option '--jsno'; did you mean '--json'?; see wirespeed try --help"
    assert refusal("--brust=8") == "there is no option '--brust'; did you mean '--burst'?; see wirespeed try --help"


def test_an_option_is_never_taken_for_another_that_begins_so() -> None:
    assert refusal("--js").startswith("there is no option '--js'")


def test_a_word_too_many_is_named() -> None:
    made = Parser("wirespeed try", "a parser")
    with pytest.raises(GraphError, match="got 'x', wanted no further word"):
        made.parse_intermixed_args(["x"])


@pytest.mark.parametrize("text", ["0", "257", "-1", "8.5", "1e2", "", "x", "٣٤٥"])
def test_a_number_out_of_range_is_told_with_its_range(text: str) -> None:
    message = refusal("--burst", text)
    assert f"option --burst: got {text!r}, wanted a whole number from 1 to 256" in message


@given(st.integers(1, 256))
def test_every_whole_number_in_range_is_taken(number: int) -> None:
    assert whole(1, 256)(str(number)) == number


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("0.5", 0.5), ("250ms", 0.25), ("2min", 120.0), ("1e1", 10.0)])
def test_seconds_take_a_number_or_a_unit(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "", "soon", "nan", "inf", "1 apple"])
def test_seconds_refuse_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="wanted a time of more than 0"):
        seconds(text)


@given(st.lists(st.integers(0, 100), min_size=1, unique=True))
def test_cores_listed_one_by_one_come_back_in_their_order(numbers: list[int]) -> None:
    assert cores(",".join(map(str, numbers))) == numbers


@given(st.integers(0, 100), st.integers(0, 50))
def test_a_range_of_cores_has_both_ends(first: int, more: int) -> None:
    assert cores(f"{first}-{first + more}") == list(range(first, first + more + 1))


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,,1", "0-1-2", "0 1", "0,1,0", "0-2,1"])
def test_cores_refuse_what_names_none_or_one_twice(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="got "):
        cores(text)


def test_a_huge_range_of_cores_is_not_counted_out() -> None:
    assert len(cores("0-99999999999999")) < 10_000


def test_a_word_that_is_close_to_nothing_gets_no_guess() -> None:
    assert did_you_mean("zebra", ["pcap", "null"]) == ""
    assert did_you_mean("pcpa", ["pcap", "null"]) == "; did you mean 'pcap'?"


@pytest.mark.parametrize(("words", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), ("abc", "a, b and c")])
def test_a_list_reads_as_in_a_sentence(words: list[str], text: str) -> None:
    assert listed(words) == text
