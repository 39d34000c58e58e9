"""The words of a chain, as an arrow would read them, and the graph they make.

``kind:target,option=value`` is a port, ``file.py`` the one function in that file, ``file.py:name`` one of several.
The first and the last word are ports, all between are functions (an element that says it ``ENDS`` may come last).  A
further output of a function is given apart from the chain, as ``K=PORT`` for the last function or ``NAME.K=PORT`` for
another one.  The word ``and`` stands between chains that run at the same time.  Equal words for a port are one port,
which may be read by one chain and written by another.
"""

import copy
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from wirespeed.cli.parser import did_you_mean, listed
from wirespeed.core.element import Chain, Element
from wirespeed.errors import FunctionError, GraphError
from wirespeed.ports import KINDS, port

CAPTURE = re.compile(r"\.(pcap|pcapng|cap)(\.(gz|bz2|xz|zst))?$")
FUNCTION = re.compile(r"(?P<file>.*\.py)(?::(?P<name>[^:]*))?")
NO_FUNCTION = "has no function decorated with @ws.function"
AND = "and"
MEMORY = "memory"  # the kind of port that takes a program at its other side
OUTPUT = re.compile(r"(?:(?P<name>\w+)\.)?(?P<number>\d{1,4})=(?P<word>.+)")


class Spelled(NamedTuple):
    """What words name: ``further`` has, for a function, its outputs from number 1 on."""

    source: Element
    functions: list[Element]
    end: Element
    further: dict[Element, list[Element]]

    def chain(self) -> Chain:
        """What they make, joined."""
        rest: Chain | Element = self.end
        for function in reversed(self.functions):
            rest = function >> (rest, *self.further[function]) if function in self.further else function >> rest
        return self.source >> rest

    def back(self) -> "Spelled":
        """The same functions, with states of their own, for what comes in where the others go out."""
        if self.source is self.end:
            raise GraphError(f"both ends are {self.source.name}; the other way needs another port")
        for element in (self.source, self.end):
            if getattr(element, "KIND", "pcap") == "pcap":
                raise GraphError(
                    f"{element.name} is not read and written at the same time; both ways need ports such as "
                    "packet:eth0 or tap:lan0"
                )
        own = {function: copy.copy(function) for function in self.functions}
        further = {own[function]: targets for function, targets in self.further.items()}
        return Spelled(self.end, list(own.values()), self.source, further)


def build(words: Sequence[str], outputs: Sequence[str] = ()) -> Chain:
    """The chain that ``words`` spell, with the further outputs of its functions."""
    return spell(words, outputs).chain()


def build_all(words: Sequence[str], outputs: Sequence[str] = (), *, both: bool = False) -> list[Chain]:
    """The chains that ``words`` spell; ``both``: each of them the other way, too."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == AND:
            parts.append([])
        else:
            parts[-1].append(word)
    if not all(parts):
        raise GraphError(f"the word {AND!r} stands between two chains; write PORT PORT {AND} PORT PORT")
    if len(parts) > 1 and outputs:
        raise GraphError(f"option --output: got {len(parts)} chains, wanted one; run the others by themselves")
    ports: dict[str, Element] = {}
    spelled = [spell(part, outputs, ports) for part in parts]
    for one in spelled:
        _keep_apart(one.source, {other.end.name: other.end for other in spelled})
    if both:
        spelled += [one.back() for one in spelled]
    return [one.chain() for one in spelled]


def spell(words: Sequence[str], outputs: Sequence[str] = (), ports: dict[str, Element] | None = None) -> Spelled:
    """The elements that ``words`` and ``outputs`` name, checked, before they are joined.

    ``ports`` has those that other words have named, and gets the new ones.
    """
    if len(words) < 2:
        raise GraphError(f"got {words[0]!r} alone, wanted a port to read and one to write; add for example null:")
    if _in_file(words[0]):
        raise GraphError(f"a chain begins with a port, got {words[0]!r}; add for example pcap:in.pcap")
    for word in words[1:-1]:
        if _kind(word) in KINDS:
            raise GraphError(f"got the port {word!r} inside the chain, wanted functions; start another run for it")
    functions = _functions(words[1:-1])
    named = {} if ports is None else ports
    ends = {words[-1]: _last(words[-1], named)}
    source = _port(words[0], named)
    further = _further(functions, outputs, ends, named)
    _keep_apart(source, ends)
    return Spelled(source, functions, ends[words[-1]], further)


def function_of(word: str) -> Element:
    """The function that a word names."""
    (function,) = _functions([word])
    return function


def port_of(word: str) -> Element:
    """The port that a word names; a word that names none is told from one that is misspelt."""
    kind, colon, target = word.partition(":")
    if kind == MEMORY and colon:
        raise GraphError(
            f"got {word!r}, whose packets a Python program pushes and pulls, and here is none; begin with generator: or "
            "pcap:in.pcap, end in null: or pcap:out.pcap"
        )
    if kind in KINDS and colon:
        return port(word)
    if CAPTURE.search(word) and not (colon and did_you_mean(kind, KINDS)):
        raise GraphError(f"got {word!r}, wanted a port; did you mean pcap:{word}?")
    near = did_you_mean(kind, KINDS).removesuffix("?").replace("'", "")
    hint = f"{near}:{target}?" if near else "; ports begin with " + listed(f"{k}:" for k in KINDS if k != MEMORY)
    raise GraphError(f"got {word!r}, which is neither a port nor a file of functions (.py){hint}")


def _port(word: str, named: dict[str, Element]) -> Element:
    """The port that a word names, which is the one that an equal word has named."""
    if word not in named:
        named[word] = port_of(word)
    return named[word]


def _keep_apart(source: Element, ends: dict[str, Element]) -> None:
    """Refuse to write over the file that is read: opening it for writing would empty it first."""
    read = getattr(source, "target", "")
    for word, end in ends.items():
        written = getattr(end, "target", "")
        if os.path.isfile(read) and os.path.exists(written) and os.path.samefile(read, written):
            raise GraphError(f"{word} would write over the file that {source.name} reads; name another file")


def _kind(word: str) -> str:
    return word.partition(":")[0]


def _in_file(word: str) -> re.Match[str] | None:
    """The file and the name in a word for a function, or None; a capture may have a name that ends in .py, too."""
    return None if _kind(word) in KINDS else FUNCTION.fullmatch(word)


def _last(word: str, named: dict[str, Element]) -> Element:
    """What ends the chain: a port, or an element of a file that says of itself that it can, such as a counter."""
    if not _in_file(word):
        return _port(word, named)
    (element,) = _functions([word])
    if not getattr(element, "ENDS", False):
        raise GraphError(f"a chain ends with a port, got {word!r}; add for example pcap:out.pcap")
    return element


def _functions(words: Iterable[str]) -> list[Element]:
    """The functions that words name.  One that is named twice stands in two places, so it becomes two elements."""
    modules: dict[Path, ModuleType] = {}
    found: list[Element] = []
    for word in words:
        match = _in_file(word)
        if not match:
            port_of(word)  # raises: it is no port either
            raise AssertionError(word)
        path = Path(match["file"]).resolve()
        if path not in modules:
            modules[path] = load(Path(match["file"]))
        function = choose(modules[path], Path(match["file"]), match["name"])
        found.append(copy.copy(function) if function in found else function)
    return found


def load(path: Path) -> ModuleType:
    """Run a user's file as a module, with its folder on the path as for a script; its errors are told in a sentence."""
    if path.is_dir():
        raise GraphError(f"{path}: that is a folder; name a file of Python in it")
    if not path.is_file():
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.py")])
        raise GraphError(f"{path}: there is no such file{near}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Not under its own name: a user's random.py must not stand in for the library's.
    spec = importlib.util.spec_from_file_location(f"wirespeed_file_{path.stem}", path)
    assert spec is not None and spec.loader is not None, "a path that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except FunctionError:
        raise
    except SyntaxError as error:
        where = path if error.filename in (None, spec.origin) else error.filename
        raise FunctionError(f"{where}, line {error.lineno or 1}: {error.msg}") from error
    except SystemExit as error:
        raise FunctionError(
            f'{path}: it ends the program; put what runs by itself under if __name__ == "__main__":'
        ) from error
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == spec.origin]
        said = " ".join(str(error).split())
        raise FunctionError(f"{path}, line {lines[-1] if lines else 1}: {type(error).__name__}: {said}") from error
    return module


def choose(module: ModuleType, path: Path, name: str | None) -> Element:
    """The function ``name`` of a module, or its only one."""
    functions = functions_in(module)
    if name is not None:
        if name not in functions:
            have = f"; it has {listed(functions)}" if functions else "; decorate it with @ws.function"
            raise GraphError(f"{path} has no function {name!r}{did_you_mean(name, functions) or have}")
        return functions[name]
    distinct = list({id(f): key for key, f in functions.items()}.values())
    if not distinct:
        raise GraphError(f"{path} {NO_FUNCTION}")
    if len(distinct) > 1:
        raise GraphError(f"{path} has the functions {listed(distinct)}; say which, as in {path}:{distinct[0]}")
    return functions[distinct[0]]


def all_functions(path: Path) -> list[Element]:
    """Every function in a file, of which there must be one."""
    found = list(dict.fromkeys(functions_in(load(path)).values()))
    if not found:
        raise GraphError(f"{path} {NO_FUNCTION}")
    return found


def functions_in(module: ModuleType) -> dict[str, Element]:
    """The functions in a module by their names there: elements that are no ports, which have a KIND."""
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, Element) and getattr(value, "KIND", None) is None
    }


def _further(
    functions: list[Element], outputs: Sequence[str], ends: dict[str, Element], named: dict[str, Element]
) -> dict[Element, list[Element]]:
    """For each function that has any, its outputs from number 1 on.  Equal words are one port, where arrows meet."""
    found: dict[Element, dict[int, Element]] = {}
    for text in outputs:
        match = OUTPUT.fullmatch(text)
        if not match or not functions:
            wanted = (
                "K=PORT or NAME.K=PORT, with K from 1" if functions else "a function in the chain, which has outputs"
            )
            raise GraphError(f"option --output: got {text!r}, wanted {wanted}; try --output 1=pcap:other.pcap")
        function, number, word = _named(functions, match["name"]), int(match["number"]), match["word"]
        if number == 0 or number in found.get(function, {}):
            why = "the chain itself is output 0" if number == 0 else f"output {number} is given twice"
            raise GraphError(f"option --output: got {text!r}, but {why}; give each output from 1 on once")
        if word not in ends:
            ends[word] = _port(word, named)
        found.setdefault(function, {})[number] = ends[word]
    for function, targets in found.items():
        for number in range(1, max(targets) + 1):
            if number not in targets:
                raise GraphError(
                    f"{function.name} has output {max(targets)} but not {number}; try --output {number}=null:"
                )
    return {function: [targets[k] for k in sorted(targets)] for function, targets in found.items()}


def _named(functions: list[Element], name: str | None) -> Element:
    if name is None:
        return functions[-1]
    for function in functions:
        if function.name == name:
            return function
    names = [f.name for f in functions]
    raise GraphError(f"no function {name!r} in the chain{did_you_mean(name, names)}; it has {listed(names)}")
