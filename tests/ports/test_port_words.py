"""Port words: what is target, what is option, and how commas and equals signs are written in either."""

from typing import ClassVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wirespeed import ports
from wirespeed.core.element import Element
from wirespeed.errors import GraphError
from wirespeed.ports import options
from wirespeed.ports.options import Option


class SomePort(Element):
    """Keeps what it was made of."""

    KIND = "some"
    SUMMARY = "a port of this test"
    OPTIONS: ClassVar[dict[str, Option]] = {
        "loop": Option("count", "1", "how often", options.count()),
        "text": Option("text", None, "any text", options.text),
        "list": Option("texts", None, "several", options.text, True),
    }

    def __init__(self, target="", **given):
        self.name = f"some:{target}"
        self.target, self.given = target, given


@pytest.fixture(autouse=True)
def some(monkeypatch):
    monkeypatch.setitem(ports.KINDS, "some", (__name__, "SomePort"))
    monkeypatch.setattr(ports, "kind_class", lambda kind: SomePort)


def parts(word, **given):
    made = ports.port(word, **given)
    return made.target, made.given


@pytest.mark.parametrize(
    "word, target, given",
    [
        ("some:", "", {}),
        ("some:in.pcap", "in.pcap", {}),
        ("some:in.pcap,loop=2", "in.pcap", {"loop": "2"}),
        ("some:loop=2", "", {"loop": "2"}),
        ("some:,loop=2", "", {"loop": "2"}),
        ("some:a=b.pcap", "a=b.pcap", {}),
        ("some:a=b.pcap,loop=2", "a=b.pcap", {"loop": "2"}),
        ("some:a,,b.pcap,loop=2", "a,b.pcap", {"loop": "2"}),
        ("some:a,,,loop=2", "a,", {"loop": "2"}),
        ("some:x,text=a,,b", "x", {"text": "a,b"}),
        ("some:x,text=a=b", "x", {"text": "a=b"}),
        ("some:list=64,594,loop=2", "", {"list": "64,594", "loop": "2"}),
        ("some:list=ipv4.src=count:1-2,udp.sport=random:3-4", "", {"list": "ipv4.src=count:1-2,udp.sport=random:3-4"}),
        ("some:list=a,,b", "", {"list": "a,b"}),
        ("some:/tmp/a b.pcap,", "/tmp/a b.pcap", {}),
        ("some:C:\\x:y", "C:\\x:y", {}),
        ("some:\0weird", "\0weird", {}),
    ],
)
def test_a_word_has_a_target_and_options(word, target, given):
    assert parts(word) == (target, given)


names = st.text(st.characters(blacklist_characters="="), min_size=1, max_size=20)


@given(names, names)
def test_any_target_and_text_can_be_written(target, text):
    word = f"some:{target.replace(',', ',,')},text={text.replace(',', ',,')}"
    edges = target[0] + target[-1] + text[0] + text[-1]
    assume("," not in edges)  # of three commas in a row, which two belong together is fixed, not told
    assert parts(word) == (target, {"text": text})


def test_keywords_are_options_as_values():
    assert parts("some:x", loop=2, text=b"raw") == ("x", {"loop": 2, "text": b"raw"})


@pytest.mark.parametrize("given", [{}, {"loop": 1}])
def test_an_option_given_twice_is_refused(given):
    with pytest.raises(GraphError, match="option 'loop' is given twice"):
        ports.port("some:x,loop=2" + (",loop=3" if not given else ""), **given)


def test_an_unknown_option_is_refused_with_those_there_are():
    with pytest.raises(GraphError, match="some: has no option 'lop'; the options are loop, text, list"):
        ports.port("some:x,lop=2")


def test_a_word_without_an_equals_sign_is_no_option():
    with pytest.raises(GraphError, match="got 'loop', wanted option=value"):
        ports.port("some:x,loop")


@pytest.mark.parametrize("word", ["", "some", "other:x", "Some:x", ":", "x.pcap"])
def test_an_unknown_kind_is_refused_with_those_there_are(word):
    with pytest.raises(GraphError, match=r"wanted one of pcap:, generator:, .*, memory:, null:, .*, some:; write"):
        ports.port(word)


@pytest.mark.parametrize("kind", ["generator", "memory", "null"])
def test_every_kind_declares_options_whose_defaults_it_takes(kind):
    import importlib

    module, name = ports.KINDS[kind]
    port_class = getattr(importlib.import_module(module), name)
    assert kind == port_class.KIND and port_class.SUMMARY
    values = options.read(kind, port_class.OPTIONS, {})
    assert list(values) == list(port_class.OPTIONS)
    for option in port_class.OPTIONS.values():
        assert option.type and option.sentence
