"""Options of ports: what each parser takes, exactly, and the one sentence it answers to anything else."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.ports import options
from wirespeed.ports.options import Option, Rate, Wanted

PREFIX = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
decimals = st.decimals("0", "1000000", places=6)


@pytest.mark.parametrize(
    "word, value, unit",
    [
        ("1.5Mpps", 1_500_000, "pps"),
        ("0.5pps", Fraction(1, 2), "pps"),
        ("100 pps", 100, "pps"),
        ("10mbps", 10_000_000, "bps"),
        ("10Mbps", 10_000_000, "bps"),
        ("1e3kpps", 1_000_000, "pps"),
        ("2.5GBPS", 2_500_000_000, "bps"),
        (".1pps", Fraction(1, 10), "pps"),
        ("1_000pps", 1000, "pps"),
    ],
)
def test_rates_have_a_unit_and_are_exact(word, value, unit):
    assert options.rate(word) == Rate(Fraction(value), unit)


@given(st.decimals("0.000001", "1000", places=6), st.sampled_from(list(PREFIX)), st.sampled_from(["pps", "bps"]))
def test_a_rate_is_the_decimal_that_was_written(number, prefix, unit):
    assert options.rate(f"{number}{prefix}{unit}") == Rate(Fraction(number) * PREFIX[prefix], unit)


def test_a_rate_may_be_a_pair():
    assert options.rate((0.1, "pps")) == options.rate((np.float64(0.1), "pps")) == Rate(Fraction(1, 10), "pps")
    assert options.rate(Rate(Fraction(3), "bps")) == Rate(Fraction(3), "bps")


@pytest.mark.parametrize("word", ["1.5Mpps", "0.5pps", "10Gbps", "999pps", "1kpps", "2Tbps"])
def test_a_rate_shows_as_a_user_would_write_it(word):
    assert str(options.rate(word)) == word


NO_RATES = [
    "10 apples",
    "10",
    "pps",
    "-1pps",
    "0pps",
    "1e999999999pps",
    "nanpps",
    "1pps1",
    5,
    None,
    "1e99pps",
    (1, "x"),
]


@pytest.mark.parametrize("wrong", NO_RATES)
def test_what_is_no_rate_is_refused(wrong):
    with pytest.raises(Wanted):
        options.rate(wrong)


def test_the_error_says_what_was_got_what_was_wanted_and_what_to_try():
    declared = {"rate": Option("rate", None, "how fast", options.rate)}
    with pytest.raises(GraphError) as error:
        options.read("pcap", declared, {"rate": "10 apples"})
    assert str(error.value) == "pcap option rate: got '10 apples', wanted a number with pps or bps; try rate=1.5Mpps"


def test_an_error_does_not_repeat_a_novel():
    declared = {"rate": Option("rate", None, "how fast", options.rate)}
    with pytest.raises(GraphError) as error:
        options.read("pcap", declared, {"rate": "x" * 10_000})
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "word, value",
    [("1000", 1000), ("1e6", 10**6), ("1M", 10**6), ("1.5k", 1500), ("2G", 2 * 10**9), (7, 7), (np.uint8(7), 7)],
)
def test_counts_are_whole_numbers_with_prefixes(word, value):
    assert options.count()(word) == value


@pytest.mark.parametrize("wrong", ["1.5", "-1", "ten", "1e-3", "1KiB", -1, 1.5, True, None, "", "1e999999999", b"1"])
def test_what_is_no_count_is_refused(wrong):
    with pytest.raises(Wanted, match="a whole number of 0 or more"):
        options.count()(wrong)


@given(st.integers(-5, 20), st.integers(0, 10), st.integers(0, 10))
def test_counts_keep_to_their_bounds(number, least, span):
    parse = options.count(least, least + span)
    if least <= number <= least + span:
        assert parse(number) == number
    else:
        with pytest.raises(Wanted, match=f"from {least} to {least + span}"):
            parse(number)


@pytest.mark.parametrize(
    "word, value",
    [
        ("1500", 1500), (1500, 1500), ("64kB", 64_000), ("64KiB", 65_536), ("100MB", 10**8), ("100M", 10**8),
        ("2GB", 2 * 10**9), ("1.5kB", 1500), ("1GiB", 1 << 30), ("5B", 5),
    ],
)  # fmt: skip
def test_sizes_are_bytes(word, value):
    assert options.size()(word) == value


@pytest.mark.parametrize("wrong", ["1.5", "1.5B", "10 apples", "1KK", "-5", "7kbb", None])
def test_what_is_no_size_is_refused(wrong):
    with pytest.raises(Wanted, match="a number of bytes"):
        options.size()(wrong)


UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


@given(decimals, st.sampled_from(list(UNITS)))
def test_durations_are_the_nearest_nanosecond(number, unit):
    assert options.duration()(f"{number}{unit}") == round(Fraction(number) * UNITS[unit])


@pytest.mark.parametrize("wrong", ["-1s", "10 parsecs", "s", None, "1e99s"])
def test_what_is_no_duration_is_refused(wrong):
    with pytest.raises(Wanted, match="a time"):
        options.duration()(wrong)


@given(st.one_of(st.floats(0, 1e9).filter(lambda f: f == 0 or f > 1e-90), st.integers(0, 10**9)))
def test_plain_numbers_are_seconds(number):
    assert options.duration()(number) == round(Fraction(Decimal(repr(number))) * 10**9)


@pytest.mark.parametrize(
    "word, value", [("yes", True), ("ON", True), (1, True), (True, True), ("no", False), (0, False)]
)
def test_flags(word, value):
    assert options.flag(word) == value


def test_choices_and_alternatives_name_what_they_take():
    with pytest.raises(Wanted, match="one of udp, tcp; try udp"):
        options.choice("udp", "tcp")("sctp")
    parse = options.either(options.rate, "max", "original")
    assert (parse("max"), parse("1pps")) == ("max", Rate(Fraction(1), "pps"))
    with pytest.raises(Wanted, match="max, original or a number with pps or bps"):
        parse("fast")


@pytest.mark.parametrize("parse, wrong", [(options.flag, "maybe"), (options.text, ""), (options.text, 5),
                                          (options.address, "10.0.0"), (options.mac_address, "02:00")])  # fmt: skip
def test_other_parsers_refuse_what_they_do_not_know(parse, wrong):
    with pytest.raises(Wanted):
        parse(wrong)


def test_addresses_are_put_in_their_one_form():
    assert options.address("2001:DB8:0::1") == "2001:db8::1"
    assert options.mac_address("02:00:00:00:00:ff") == 0x0200000000FF


DECLARED = {
    "speed": Option("word", "max", "how fast", options.choice("max", "original")),
    "loop": Option("count", "1", "how often", options.count()),
    "rate": Option("rate", None, "how fast", options.rate),
}


def test_every_declared_option_gets_a_value():
    assert options.read("pcap", DECLARED, {}) == {"speed": "max", "loop": 1, "rate": None}
    assert options.read("pcap", DECLARED, {"loop": "3"})["loop"] == 3


def test_none_stands_for_the_default():
    assert options.read("pcap", DECLARED, {"loop": None})["loop"] == 1


def test_an_option_that_is_not_declared_is_refused_with_those_that_are():
    with pytest.raises(GraphError, match="pcap has no option 'lop'; the options are speed, loop, rate"):
        options.read("pcap", DECLARED, {"lop": 1})


@given(st.text(max_size=60))
def test_no_text_makes_a_parser_raise_anything_else(text):
    parsers = [options.rate, options.count(), options.size(), options.duration(), options.address, options.mac_address,
               options.flag, options.text, options.choice("a")]  # fmt: skip
    for parse in parsers:
        try:
            parse(text)
        except Wanted as wanted:
            assert wanted.wanted and wanted.example
