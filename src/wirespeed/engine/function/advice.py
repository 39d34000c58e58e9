"""What errors advise to write instead of what a user's function cannot contain."""

import ast
import difflib
from collections.abc import Iterable
from typing import Any

INSTEAD: dict[type[ast.AST], str] = {
    ast.Assert: "assert cannot be compiled; return a verdict, or count the case in a state",
    ast.Raise: "raise cannot be compiled; return a verdict, or count the case in a state",
    ast.Try: "try cannot be compiled, and nothing here raises: absent headers read as 0; write plain statements",
    ast.With: "with cannot be compiled; write plain statements",
    ast.FunctionDef: "a function inside the function cannot be compiled; define it outside",
    ast.AsyncFunctionDef: "async cannot be compiled; a packet is handled in one go",
    ast.Await: "await cannot be compiled; a packet is handled in one go",
    ast.AsyncFor: "async cannot be compiled; a packet is handled in one go",
    ast.AsyncWith: "async cannot be compiled; a packet is handled in one go",
    ast.Yield: "yield cannot be compiled; return a verdict",
    ast.YieldFrom: "yield cannot be compiled; return a verdict",
    ast.ClassDef: "a class inside the function cannot be compiled; define it outside",
    ast.Lambda: "a lambda cannot be compiled; write a function with def, outside",
    ast.Global: "a global variable cannot be changed; keep the value in a state: @ws.function(state=...)",
    ast.Nonlocal: "an outer variable cannot be changed; keep the value in a state: @ws.function(state=...)",
    ast.Import: "import cannot be compiled; import outside the function",
    ast.ImportFrom: "import cannot be compiled; import outside the function",
    ast.Delete: "del cannot be compiled; leave it out",
    ast.Match: "match cannot be compiled; write if and elif",
    ast.List: "a list cannot be compiled; write a tuple, or pass a NumPy array as a table: @ws.function(name=array)",
    ast.Dict: "a dict cannot be compiled; pass a NumPy array as a table: @ws.function(name=array)",
    ast.Set: "a set cannot be compiled; write a tuple: x in (1, 2)",
    ast.ListComp: "a comprehension cannot be compiled; write a for loop over range(...)",
    ast.SetComp: "a comprehension cannot be compiled; write a for loop over range(...)",
    ast.DictComp: "a comprehension cannot be compiled; write a for loop over range(...)",
    ast.GeneratorExp: "a generator cannot be compiled; write a for loop over range(...)",
    ast.JoinedStr: "an f-string cannot be compiled; there is no text here, count in a state instead",
    ast.Slice: "a slice cannot be compiled; read one element at a time, or with u16, u32 and u64",
    ast.NamedExpr: "`:=` cannot be compiled; assign on a line of its own",
    ast.Starred: "`*` before an argument or a name cannot be compiled; write them one by one",
    ast.Tuple: "a tuple can stand here only when it is assigned to as many names, or behind `in`; use one name for each",
}
if hasattr(ast, "TryStar"):
    INSTEAD[ast.TryStar] = INSTEAD[ast.Try]
if hasattr(ast, "TemplateStr"):  # Python 3.14
    INSTEAD[ast.TemplateStr] = INSTEAD[ast.JoinedStr]

OPERATORS: dict[type[ast.AST], str] = {
    ast.Div: "`/` gives a fraction, and numbers here are whole; write `//`",
    ast.MatMult: "`@` is for matrices; write out what is meant",
    ast.Is: "`is` cannot be compiled; write `==` for numbers, and test a header as it is: `if pkt.ipv4`",
    ast.IsNot: "`is not` cannot be compiled; write `!=` for numbers, and test a header as it is: `if not pkt.ipv4`",
}

CALLS = {
    "print": "print cannot be compiled; count in a state, or capture with --tap",
    "sum": "sum cannot be compiled; add up in a for loop over range(...)",
    "any": "any cannot be compiled; write `or`, or a for loop over range(...)",
    "all": "all cannot be compiled; write `and`, or a for loop over range(...)",
    "range": "range can stand only behind `for ... in`",
    "float": "numbers here are whole; scale them, such as to thousandths",
    "round": "numbers here are whole already",
    "divmod": "divmod cannot be compiled; write `//` and `%`",
    "pow": "pow cannot be compiled; write `**` for constants, or a loop",
    "enumerate": "enumerate cannot be compiled; write a for loop over range(len(...))",
    "zip": "zip cannot be compiled; write a for loop over range(len(...))",
}
CALLABLE = "abs, bool, int, len, max, min, wirespeed's own and plain functions of yours"


def of_value(value: Any, name: str) -> str:
    """Why a global or closure value cannot be used as a constant, and what can."""
    kind = type(value).__name__
    if isinstance(value, float):
        return f"{name} is a fraction, and numbers here are whole; scale it, such as to thousandths"
    if isinstance(value, str | bytes | bytearray):
        return f"{name} is text; only whole numbers and tuples of them can be used"
    if kind == "ndarray":
        return f"{name} is an array; pass it as a table: @ws.function({name.split('.')[-1]}=...)"
    if isinstance(value, list):
        return f"{name} is a list, which could change; write a tuple, or pass a NumPy array as a table"
    if isinstance(value, dict | set | frozenset):
        return f"{name} is a {kind}; pass a NumPy array as a table: @ws.function(name=array)"
    if callable(value):
        return f"{name} is a function; call it"
    return f"{name} is a {kind}; only whole numbers and tuples of them can be used"


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """ "; did you mean 'x'?" when one of the words is close, else nothing."""
    close = difflib.get_close_matches(word, list(words), 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
