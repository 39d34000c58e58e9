"""What the words of a chain make: which elements, joined how, and what is said of words that make none."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.cli.words import build, build_all, choose, functions_in, load, port_of
from wirespeed.core.element import Chain, Element
from wirespeed.errors import FunctionError, GraphError, WirespeedError

FILE = """
from wirespeed.core.element import Element


class Named(Element):
    def __init__(self, name):
        self.name = name
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, with a file of one function and one of two."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "one.py").write_text(f"{FILE}\none = Named('one')\n")
    (tmp_path / "two.py").write_text(f"{FILE}\nleft = Named('left')\nright = Named('right')\n")
    yield tmp_path


def arrows(chain: Chain) -> list[tuple[str, int, str]]:
    return [(source.name, output, target.name) for source, output, target in chain.links]


def refusal(words: list[str], outputs: list[str] | None = None) -> str:
    with pytest.raises(WirespeedError) as caught:
        build(words, outputs or [])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_words_are_joined_in_their_order(desk: Path) -> None:
    chain = build(["null:", "one.py", "two.py:right", "two.py:left", "null:"])
    names = ["null:", "one", "right", "left", "null:"]
    assert [(a, k, b) for a, k, b in sorted(arrows(chain), key=lambda arrow: names.index(arrow[0]))] == [
        ("null:", 0, "one"),
        ("one", 0, "right"),
        ("right", 0, "left"),
        ("left", 0, "null:"),
    ]
    assert chain.first is chain.last  # one port, read and written


def test_two_ports_alone_make_a_chain(desk: Path) -> None:
    chain = build(["null:size=100", "null:"])
    assert arrows(chain) == [("null:", 0, "null:")]


def test_an_element_that_can_end_a_chain_may_come_last(desk: Path) -> None:
    (desk / "counter.py").write_text("import wirespeed as ws\nflows = ws.FlowCounter()\n")
    assert arrows(build(["null:", "counter.py"])) == [("null:", 0, "flows")]


def test_a_port_whose_target_looks_like_a_function_is_a_port(desk: Path) -> None:
    assert [element.name for element in build(["packet:x.py", "packet:y.py:z"])] == ["packet:x.py", "packet:y.py:z"]


def test_a_function_named_twice_stands_in_two_places(desk: Path) -> None:
    chain = build(["null:", "one.py", "one.py", "null:"])
    functions = [element for element in chain if element.name == "one"]
    assert len(functions) == 2 and functions[0] is not functions[1]


def test_a_file_named_twice_is_run_once(desk: Path) -> None:
    (desk / "counted.py").write_text(f"{FILE}\nopen('runs', 'a').write('x')\na, b = Named('a'), Named('b')\n")
    build(["null:", "counted.py:a", "./counted.py:b", "null:"])
    assert (desk / "runs").read_text() == "x"


def test_an_output_leads_from_the_last_function(desk: Path) -> None:
    chain = build(["null:", "one.py", "two.py:left", "null:"], ["1=null:size=9"])
    assert ("left", 1, "null:") in arrows(chain)
    assert [k for name, k, _ in arrows(chain) if name == "one"] == [0]


def test_an_output_leads_from_the_function_it_names_and_numbers_need_no_order(desk: Path) -> None:
    chain = build(["null:", "one.py", "two.py:left", "null:"], ["one.2=null:", "one.1=null:size=9"])
    assert sorted(k for name, k, _ in arrows(chain) if name == "one") == [0, 1, 2]
    one, size9 = next((a, b) for a, k, b in chain.links if k == 1)
    assert one.name == "one" and size9.size == 9  # type: ignore[attr-defined]


def test_equal_port_words_of_outputs_are_one_port_where_arrows_meet(desk: Path) -> None:
    chain = build(["null:", "one.py", "null:size=7"], ["1=null:size=7", "2=null:size=8"])
    targets = {k: b for a, k, b in chain.links if a.name == "one"}
    assert targets[0] is targets[1] and targets[2] is not targets[0]


def test_equal_words_are_one_port_which_sends_back_what_it_receives(desk: Path) -> None:
    chain = build(["null:", "null:"])
    (source, _, target) = chain.links[0]
    assert source is target
    (source, _, target) = build(["null:", "null:count=1"]).links[0]
    assert source is not target


def test_a_file_finds_its_neighbours_and_hides_no_module_of_the_library(desk: Path) -> None:
    (desk / "random.py").write_text(f"import neighbour\n{FILE}\nf = Named(neighbour.name)\n")
    (desk / "neighbour.py").write_text("name = 'from_the_neighbour'\n")
    chain = build(["null:", "random.py", "null:"])
    assert "from_the_neighbour" in [element.name for element in chain]
    assert Path(sys.modules["random"].__file__ or "").parent != desk


REFUSED = [
    (["null:"], "got 'null:' alone, wanted a port to read and one to write; add for example null:"),
    (["one.py", "null:"], "a chain begins with a port, got 'one.py'; add for example pcap:in.pcap"),
    (["null:", "one.py"], "a chain ends with a port, got 'one.py'; add for example pcap:out.pcap"),
    (["in.pcap", "null:"], "got 'in.pcap', wanted a port; did you mean pcap:in.pcap?"),
    (["null:", "a/b.pcapng.zst"], "got 'a/b.pcapng.zst', wanted a port; did you mean pcap:a/b.pcapng.zst?"),
    (["pcpa:in.pcap", "null:"], "neither a port nor a file of functions (.py); did you mean pcap:in.pcap?"),
    (["nul:size=9", "null:"], "did you mean null:size=9?"),
    (["zebra", "null:"], "'zebra', which is neither a port nor a file of functions (.py); ports begin with pcap:, "),
    (["null:", "zebra", "null:"], "'zebra', which is neither a port nor a file of functions (.py)"),
    (["null:", "null:", "null:"], "got the port 'null:' inside the chain, wanted functions; start another run for it"),
    (["null:", "one", "null:"], "'one', which is neither a port nor"),
    (["null:", "onee.py", "null:"], "onee.py: there is no such file; did you mean 'one.py'?"),
    (["null:", "two.py", "null:"], "two.py has the functions left and right; say which, as in two.py:left"),
    (["null:", "two.py:lfet", "null:"], "two.py has no function 'lfet'; did you mean 'left'?"),
    (["null:", "two.py:", "null:"], "two.py has no function ''; it has left and right"),
    (["null:", "one.py:zebra", "null:"], "one.py has no function 'zebra'; it has one"),
    (["null:zize=1", "null:"], "zize"),
    (
        ["null:", "memory:"],
        "got 'memory:', whose packets a Python program pushes and pulls, and here is none; begin with",
    ),
    (["memory:size=1MB", "one.py", "null:"], "got 'memory:size=1MB', whose packets a Python program pushes and pulls"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_words_that_make_no_chain_are_told_in_a_sentence(words: list[str], message: str, desk: Path) -> None:
    assert message in refusal(words)


OUTPUTS = [
    (["null:"], "got 'null:', wanted K=PORT or NAME.K=PORT, with K from 1; try --output 1=pcap:other.pcap"),
    (["1="], "wanted K=PORT"),
    (["x=null:"], "wanted K=PORT"),
    (["-1=null:"], "wanted K=PORT"),
    (["0=null:"], "but the chain itself is output 0"),
    (["1=null:", "1=null:"], "but output 1 is given twice"),
    (["1=null:", "left.1=null:"], "but output 1 is given twice"),
    (["2=null:"], "left has output 2 but not 1; try --output 1=null:"),
    (["noe.1=null:"], "no function 'noe' in the chain; did you mean 'one'?"),
    (["zebra.1=null:"], "no function 'zebra' in the chain; it has one and left"),
    (["1=other.pcap"], "did you mean pcap:other.pcap?"),
]


@pytest.mark.parametrize(("outputs", "message"), OUTPUTS, ids=[" ".join(outputs) for outputs, _ in OUTPUTS])
def test_outputs_that_lead_nowhere_are_told_in_a_sentence(outputs: list[str], message: str, desk: Path) -> None:
    assert message in refusal(["null:", "one.py", "two.py:left", "null:"], outputs)


def test_an_output_that_nobody_pulls_is_refused(desk: Path) -> None:
    assert "whose packets a Python program pushes" in refusal(["null:", "one.py", "null:"], ["1=memory:"])


def test_an_output_without_a_function_is_refused(desk: Path) -> None:
    assert "wanted a function in the chain, which has outputs" in refusal(["null:", "null:"], ["1=null:"])


FILES = [
    ("def f(:\n", "x.py, line 1: invalid syntax"),
    ("\n\nimport nothing_of_that_name\n", "x.py, line 3: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ("def f():\n    1 / 0\n\nf()\n", "x.py, line 2: ZeroDivisionError: division by zero"),
    (
        "import sys\nsys.exit('no')\n",
        'x.py: it ends the program; put what runs by itself under if __name__ == "__main__":',
    ),
    ("raise KeyError\n", "x.py, line 1: KeyError"),
    ("import json\njson.loads('{')\n", "x.py, line 2: JSONDecodeError"),
    ("\0", "x.py"),
    ("f = 1\n", "x.py has no function decorated with @ws.function"),
    ("", "x.py has no function decorated with @ws.function"),
    ("import wirespeed\np = wirespeed.port('null:')\n", "x.py has no function decorated with @ws.function"),
]


@pytest.mark.parametrize(("source", "message"), FILES, ids=range(len(FILES)))
def test_a_file_that_gives_no_function_is_told_with_its_line(source: str, message: str, desk: Path) -> None:
    (desk / "x.py").write_text(source)
    assert message in refusal(["null:", "x.py", "null:"])


def test_a_file_that_is_not_text_is_told_in_a_sentence(desk: Path) -> None:
    (desk / "x.py").write_bytes(b"\xff\xfe\x80")
    assert "x.py" in refusal(["null:", "x.py", "null:"])


def test_an_error_in_a_neighbour_names_the_neighbour(desk: Path) -> None:
    (desk / "x.py").write_text("import broken_neighbour\n")
    (desk / "broken_neighbour.py").write_text("\ndef f(:\n")
    assert "broken_neighbour.py, line 2: invalid syntax" in refusal(["null:", "x.py", "null:"])


def test_a_folder_is_no_file(desk: Path) -> None:
    (desk / "folder.py").mkdir()
    assert "folder.py: that is a folder; name a file of Python in it" in refusal(["null:", "folder.py", "null:"])


def test_one_function_under_two_names_is_one(desk: Path) -> None:
    (desk / "x.py").write_text(f"{FILE}\nf = Named('f')\ng = f\n")
    module = load(Path("x.py"))
    assert set(functions_in(module)) == {"f", "g"}
    assert choose(module, Path("x.py"), None) is module.f


def test_errors_that_files_raise_keep_their_cause(desk: Path) -> None:
    (desk / "x.py").write_text("1 / 0\n")
    with pytest.raises(FunctionError) as caught:
        load(Path("x.py"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@given(st.text(max_size=30))
def test_any_text_is_a_port_or_refused_in_our_own_words(text: str) -> None:
    try:
        made = port_of(text)
    except GraphError:
        return
    assert isinstance(made, Element)


def names_of(chain: Chain) -> set[tuple[str, str]]:
    return {(a.name, b.name) for a, _, b in chain.links}


def test_both_ways_are_two_chains_over_the_same_ports_with_functions_of_their_own(desk: Path) -> None:
    (desk / "x.py").write_text(f"{FILE}\nf = Named('f')\ng = Named('g')\n")
    there, back = build_all(["packet:a", "x.py:f", "x.py:g", "packet:b"], both=True)
    assert names_of(there) == {("packet:a", "f"), ("f", "g"), ("g", "packet:b")}
    assert names_of(back) == {("packet:b", "f"), ("f", "g"), ("g", "packet:a")}
    assert there.first is back.last and there.last is back.first
    assert not {e for e in there if e.name in "fg"} & {e for e in back if e.name in "fg"}


def test_further_outputs_are_the_same_both_ways(desk: Path) -> None:
    (desk / "x.py").write_text(f"{FILE}\nf = Named('f')\n")
    there, back = build_all(["packet:a", "x.py", "packet:b"], ["1=null:", "2=packet:a"], both=True)
    outputs = [
        {number: target for source, number, target in chain.links if source.name == "f"} for chain in (there, back)
    ]
    assert outputs[0][1] is outputs[1][1]
    assert outputs[0][2] is outputs[1][2] is there.first


def test_and_stands_between_chains_and_equal_words_are_one_port(desk: Path) -> None:
    (desk / "x.py").write_text(f"{FILE}\nup = Named('up')\ndown = Named('down')\n")
    one, two = build_all(["packet:a", "x.py:up", "packet:b", "and", "packet:b", "x.py:down", "packet:a"])
    assert names_of(one) == {("packet:a", "up"), ("up", "packet:b")}
    assert names_of(two) == {("packet:b", "down"), ("down", "packet:a")}
    assert one.first is two.last and one.last is two.first


@pytest.mark.parametrize(("words", "outputs", "both", "message"), [
    (["packet:a", "packet:a"], [], True, "both ends are packet:a"),
    (["pcap:in.pcap", "null:"], [], True, "pcap:in.pcap is not read and written at the same time"),
    (["and", "null:", "null:"], [], False, "stands between two chains"),
    (["null:", "null:", "and"], [], False, "stands between two chains"),
    (["null:", "null:", "and", "null:x", "null:"], ["1=null:"], False, "option --output: got 2 chains, wanted one"),
])  # fmt: skip
def test_what_cannot_go_both_ways_or_beside_is_told(
    words: list[str], outputs: list[str], both: bool, message: str, desk: Path
) -> None:
    with pytest.raises(GraphError) as caught:
        build_all(words, outputs, both=both)
    assert message in str(caught.value)


def test_a_capture_that_another_chain_reads_is_not_written_over(desk: Path) -> None:
    (desk / "in.pcap").write_bytes(b"something")
    with pytest.raises(GraphError, match="would write over the file"):
        build_all(["pcap:in.pcap", "null:", "and", "null:", "pcap:./in.pcap"])
