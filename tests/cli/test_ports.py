"""``wirespeed ports``: what it prints is what the classes declare."""

import json

import pytest

from wirespeed.cli import main
from wirespeed.cli.ports import WIDTH, text
from wirespeed.ports import KINDS, kind_class


def test_every_kind_and_every_option_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports"]) == 0
    shown = capsys.readouterr().out
    for kind in KINDS:
        assert f"{kind}:  " in shown
        for option in kind_class(kind).OPTIONS:
            assert f"\n  {option}=" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH


def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [port["kind"] for port in listed] == list(KINDS)
    for port in listed:
        declared = kind_class(port["kind"]).OPTIONS
        assert [option["name"] for option in port["options"]] == list(declared)
        assert [option["sentence"] for option in port["options"]] == [option.sentence for option in declared.values()]


def test_kinds_may_be_chosen_with_or_without_their_colon(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports", "null:", "memory"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("null:  ") and "\n\nmemory:  " in shown
    assert "pcap:" not in shown


def test_long_words_and_sentences_are_broken_and_never_lost() -> None:
    sentence = "word " * 60 + "end"
    options = [
        {"name": "short", "type": "n", "default": None, "sentence": sentence},
        {"name": "a" * 40, "type": "n", "default": "7", "sentence": "what it is"},
        {"name": "bare", "type": "n", "default": None, "sentence": ""},
    ]
    lines = list(text({"kind": "odd", "summary": sentence, "options": options}))
    assert max(map(len, lines)) <= WIDTH
    joined = " ".join(" ".join(lines).split())
    assert joined.count("end") == 2 and joined.count("word") == 120
    assert f"{'a' * 40}=n what it is [7]" in joined and "bare=n" in joined


def test_a_kind_without_options_is_one_line() -> None:
    assert list(text({"kind": "odd", "summary": "nothing", "options": []})) == ["odd:  nothing"]
