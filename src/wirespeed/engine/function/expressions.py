"""Translates the expressions of a user's function, and finds out what each is.

Theory of operation
-------------------
The translated code means the same to Python and to the compiler.  What the two would do differently (arithmetic that
must wrap, a header in a condition, an element that may be outside) becomes a call of one of our names, ``_ws_add`` and
so on, which stand for Python functions in the interpreted form and for kernels in the compiled one.  Every number is
an int64 there; a condition that is used as a number becomes 0 or 1.
"""

import ast
import operator
import types
from typing import Any, NamedTuple

from wirespeed.engine.function import kinds
from wirespeed.engine.function.advice import INSTEAD, OPERATORS, did_you_mean, of_value
from wirespeed.engine.function.arithmetic import NAMES, OPERATIONS, wrap
from wirespeed.engine.function.kinds import BOOL, BYTES, INT, NOTHING, PACKET, Kind, join
from wirespeed.engine.function.runtime import FIELDS
from wirespeed.engine.function.source import Missing, Source, UnknownName
from wirespeed.engine.function.unit import PREFIX, Program
from wirespeed.net.headers import HEADERS
from wirespeed.net.parse import BITS, PAYLOAD

METHODS = ("prepend", "append", "adjust", "trim", "locate")
WORDS = ("u16", "u32", "u64", "put_u16", "put_u32", "put_u64")
FEW = 6  # elements of a tuple that are compared one by one
HARMLESS = ("int", "truth", "min", "max", "present", "length", "get_element", "pick", "frame", "payload", *WORDS[:3])
COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


class Value(NamedTuple):
    """A translated expression and what it is."""

    node: ast.expr
    kind: Kind


class _Local(Exception):
    """Not a constant: the expression begins with a variable of the function."""


class Expressions:
    """The part of a translator that handles expressions; calls are left to what builds on it."""

    def __init__(self, program: Program, source: Source) -> None:
        self.program = program
        self.source = source
        self.wrong = source.wrong
        code = source.function.__code__
        self.locals = set(code.co_varnames) | set(code.co_cellvars)
        self.kinds: dict[str, Kind] = {}
        self.assigned: set[str] = set()  # names that have a value on every path that leads here
        self.size = 0
        self.loops = 0
        self._temporaries = 0

    # What the translated code is made of

    def ours(self, name: str, at: ast.AST, *arguments: ast.expr) -> ast.expr:
        """A call of one of our functions.

        Literal arguments are converted, for numba would compile a kernel anew for each literal.
        """
        self.program.runtime.add(name)
        typed = [self.ours("int", at, a) if isinstance(a, ast.Constant) and name != "int" else a for a in arguments]
        function = ast.Name(PREFIX + name, ast.Load())
        return ast.copy_location(ast.Call(function, typed, []), at)

    def temporary(self) -> str:
        """A new variable of ours."""
        self._temporaries += 1
        return f"{PREFIX}t{self._temporaries}"

    def constant(self, value: Any, at: ast.AST, name: str) -> Value:
        """A number known now."""
        if isinstance(value, bool):
            return Value(ast.copy_location(ast.Constant(int(value)), at), BOOL)
        try:
            number = operator.index(value)
        except TypeError:
            raise self.wrong(at, of_value(value, name)) from None
        if not -(1 << 63) <= number < 1 << 64:
            raise self.wrong(at, f"{name} does not fit into 64 bits; numbers here have 64 bits and wrap")
        return Value(ast.copy_location(ast.Constant(wrap(number)), at), INT)

    # Values, by the form of the expression

    def value(self, node: ast.expr) -> Value:
        """Translate an expression."""
        form = getattr(self, f"_{type(node).__name__.lower()}", None)
        if form is None:
            raise self.wrong(node, INSTEAD.get(type(node), f"{ast.unparse(node)} cannot be compiled"))
        translated: Value = form(node)
        return translated

    def number(self, node: ast.expr) -> ast.expr:
        """Translate an expression that must be a number."""
        value = self.value(node)
        if not value.kind.number:
            raise self.wrong(node, f"wanted a number, and {ast.unparse(node)} is {value.kind}{_fields_of(value.kind)}")
        return value.node

    def _constant(self, node: ast.Constant) -> Value:
        if node.value is None or node.value is Ellipsis:
            raise self.wrong(node, f"{node.value} cannot be compiled; numbers and conditions are all there is")
        return self.constant(node.value, node, repr(node.value))

    def _name(self, node: ast.Name) -> Value:
        if node.id not in self.locals:
            return self.constant(self.meaning(node), node, node.id)
        if node.id not in self.assigned:
            raise self.wrong(node, f"{node.id!r} may have no value here; give it one on every path that leads here")
        return Value(ast.copy_location(ast.Name(node.id, ast.Load()), node), self.kinds[node.id])

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.number(node.left), self.number(node.right)
        return Value(self.operate(node.op, left, right, node), INT)

    def operate(self, op: ast.operator, left: ast.expr, right: ast.expr, at: ast.AST) -> ast.expr:
        """Translate an operator between two translated numbers."""
        if type(op) in OPERATORS:
            raise self.wrong(at, OPERATORS[type(op)])
        a, b = known(left), known(right)
        if isinstance(op, ast.Pow):
            if a is None or b is None or b < 0:
                raise self.wrong(
                    at, "`**` is for constants only; write a loop of multiplications, or `1 << n` for 2 ** n"
                )
            return self.constant(wrap(pow(a, b, 1 << 64)), at, "").node
        name = NAMES[type(op)]
        if a is not None and b is not None:
            return self.constant(OPERATIONS[name](a, b), at, "").node
        return self.ours(name, at, left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.as_number(self.condition(node), node)
        inner = self.number(node.operand)
        number = known(inner)
        if isinstance(node.op, ast.UAdd):
            return Value(inner, INT)
        if isinstance(node.op, ast.USub):
            return (
                self.constant(wrap(-number), node, "")
                if number is not None
                else Value(self.ours("negate", node, inner), INT)
            )
        if number is not None:
            return self.constant(~number, node, "")
        return Value(ast.copy_location(ast.UnaryOp(ast.Invert(), inner), node), INT)

    def _boolop(self, node: ast.BoolOp) -> Value:
        """As a number it is one of its operands, as in Python; a header among them counts as 0 or 1."""
        values = [self._operand(operand) for operand in node.values]
        if all(v.kind == BOOL for v in values):
            return self.as_number(self.condition(node), node)
        return Value(ast.copy_location(ast.BoolOp(node.op, [v.node for v in values]), node), INT)

    def _operand(self, node: ast.expr) -> Value:
        value = self.value(node)
        return value if value.kind.number else self.as_number(self.truth(value, node), node)

    def _compare(self, node: ast.Compare) -> Value:
        return self.as_number(self.condition(node), node)

    def _ifexp(self, node: ast.IfExp) -> Value:
        test = self.condition(node.test)
        if isinstance(test, ast.Constant):
            return self.value(node.body if test.value else node.orelse)
        yes, no = self.value(node.body), self.value(node.orelse)
        kind = join(yes.kind, no.kind)
        if kind is None or kind == NOTHING:
            raise self.wrong(node, f"this is {yes.kind} or {no.kind}; make both the same, or write if and else")
        return Value(ast.copy_location(ast.IfExp(test, yes.node, no.node), node), kind)

    def _attribute(self, node: ast.Attribute) -> Value:
        try:
            return self.constant(self.meaning(node), node, ast.unparse(node))
        except _Local:
            base = self.value(node.value)
        kind = self.attribute_kind(base.kind, node)
        if base.kind == PACKET and node.attr in ("payload", "frame", "hash"):
            self.program.want |= PAYLOAD if node.attr == "payload" else 0
            return Value(self.ours(node.attr, node, base.node), kind)
        return Value(ast.copy_location(ast.Attribute(base.node, node.attr, ast.Load()), node), kind)

    def attribute_kind(self, base: Kind, node: ast.Attribute) -> Kind:
        """What an attribute of something is; notes which headers are named."""
        name = node.attr
        if base == PACKET:
            return self._attribute_of_packet(node)
        if base.layout is not None:
            if name not in base.layout.fields:
                have = ", ".join(base.layout.fields)
                raise self.wrong(node, f"no field {name!r} in {base.layout.name}; the fields are {have}")
            return kinds.of_field(base.layout.fields[name])
        if base == BYTES and name in WORDS:
            raise self.wrong(node, f"{name} is a method; call it: {ast.unparse(node)}(...)")
        raise self.wrong(node, f"{ast.unparse(node.value)} is {base} and has no {name!r}")

    def _attribute_of_packet(self, node: ast.Attribute) -> Kind:
        name = node.attr
        if name in HEADERS:
            self.program.want |= BITS[name]
            return kinds.header(HEADERS[name])
        if name in ("payload", "frame"):
            return BYTES
        if name in FIELDS or name == "hash":
            return INT
        if name in METHODS:
            raise self.wrong(node, f"{name} is a method; call it: {ast.unparse(node)}(...)")
        every = [*HEADERS, *FIELDS, "hash", "payload", "frame", *METHODS]
        hint = did_you_mean(name, every) or f"; there are {', '.join(every)}"
        raise self.wrong(node, f"the packet has no {name!r}{hint}")

    def _subscript(self, node: ast.Subscript) -> Value:
        values = self.numbers_of(node.value)
        if values is not None:
            return Value(self._of_constant(node, values), INT)
        base = self.array(node)
        return Value(self.ours("get_element", node, base.node, self.number(node.slice)), INT)

    def array(self, node: ast.Subscript) -> Value:
        """The array of which a subscript names an element."""
        base = self.value(node.value)
        if base.kind.word not in ("array", "bytes"):
            hint = "; write pkt.frame[i] or pkt.payload[i]" if base.kind == PACKET else ""
            raise self.wrong(node, f"{ast.unparse(node.value)} is {base.kind} and has no elements{hint}")
        return base

    def _of_constant(self, node: ast.Subscript, values: tuple[int, ...]) -> ast.expr:
        index = self.number(node.slice)
        at = known(index)
        if at is None:
            return self.ours("pick", node, ast.Name(self.program.array(values), ast.Load()), index)
        if not 0 <= at < len(values):
            name = ast.unparse(node.value)
            raise self.wrong(node, f"{name} has no element {at}; it has {len(values)}, counted from 0")
        return self.constant(values[at], node, "").node

    # Conditions: expressions that are Python's own True or False when they are evaluated

    def condition(self, node: ast.expr) -> ast.expr:
        """Translate an expression that is tested; a constant when the answer is known now."""
        if isinstance(node, ast.BoolOp):
            return self._both(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            if isinstance(inner, ast.Constant):
                return ast.copy_location(ast.Constant(not inner.value), node)
            return ast.copy_location(ast.UnaryOp(ast.Not(), inner), node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        return self.truth(self.value(node), node)

    def truth(self, value: Value, at: ast.expr) -> ast.expr:
        """A value as a condition."""
        kind = value.kind
        if kind.number:
            number = known(value.node)
            return value.node if number is None else ast.copy_location(ast.Constant(bool(number)), at)
        if kind.word == "header":
            return self.ours("present", at, value.node)
        if kind.word in ("array", "bytes"):
            return self.ours("length", at, value.node)
        raise self.wrong(at, f"{ast.unparse(at)} is {kind}, which is neither true nor false; test a field of it")

    def as_number(self, condition: ast.expr, at: ast.expr) -> Value:
        """A condition as 0 or 1."""
        if isinstance(condition, ast.Constant):
            return Value(ast.copy_location(ast.Constant(int(condition.value)), at), BOOL)  # type: ignore[arg-type]
        if not isinstance(condition, ast.Compare | ast.UnaryOp):  # those are True or False, others may be numbers
            condition = self.ours("truth", at, condition)
        return Value(self.ours("int", at, condition), BOOL)

    def _both(self, node: ast.BoolOp) -> ast.expr:
        """``and`` or ``or``, without the operands that are known not to matter."""
        absorbing = isinstance(node.op, ast.Or)
        parts: list[ast.expr] = []
        for operand in node.values:
            part = self.condition(operand)
            if not isinstance(part, ast.Constant):
                parts.append(part)
            elif part.value == absorbing:
                parts.append(part)
                break
        if not parts:
            return ast.copy_location(ast.Constant(not absorbing), node)
        return parts[0] if len(parts) == 1 else ast.copy_location(ast.BoolOp(node.op, parts), node)

    def _comparison(self, node: ast.Compare) -> ast.expr:
        for op in node.ops:
            if type(op) in OPERATORS:
                raise self.wrong(node, OPERATORS[type(op)])
        if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            return self._membership(node)
        operands = [self.number(n) for n in (node.left, *node.comparators)]
        numbers = [known(n) for n in operands]
        if len(operands) == 2 and None not in numbers:
            return ast.copy_location(ast.Constant(COMPARE[type(node.ops[0])](*numbers)), node)  # type: ignore[arg-type]
        return ast.copy_location(ast.Compare(operands[0], node.ops, operands[1:]), node)

    def _membership(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) > 1:
            raise self.wrong(node, "`in` cannot be chained with other comparisons; join two with `and`")
        right = node.comparators[0]
        left = self.number(node.left)
        numbers = self.numbers_of(right)
        if numbers is not None:
            values = [self.constant(v, right, "").node for v in numbers]
        elif isinstance(right, ast.Tuple):
            values = [self.number(element) for element in right.elts]
        else:
            raise self.wrong(right, "behind `in` wanted a tuple of numbers; write a loop to search an array")
        if not values:
            found: ast.expr = ast.copy_location(ast.Constant(False), node)
        elif len(values) <= FEW and _harmless(left):
            found = self._one_of(node, left, values)
        elif numbers is not None:
            found = self.ours("among", node, left, ast.Name(self.program.array(numbers), ast.Load()))
        else:
            typed = [self.ours("int", node, v) for v in values]
            found = self.ours("among_few", node, left, ast.Tuple(typed, ast.Load()))
        if isinstance(node.ops[0], ast.In):
            return found
        if isinstance(found, ast.Constant):
            return ast.copy_location(ast.Constant(not found.value), node)
        return ast.copy_location(ast.UnaryOp(ast.Not(), found), node)

    def _one_of(self, node: ast.Compare, left: ast.expr, values: list[ast.expr]) -> ast.expr:
        tests: list[ast.expr] = [ast.copy_location(ast.Compare(left, [ast.Eq()], [v]), node) for v in values]
        return tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(ast.Or(), tests), node)

    # Names that mean something outside of the function

    def meaning(self, node: ast.expr) -> Any:
        """What a name, or a dotted name, that the function does not assign stands for."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            try:
                return self.source.value(node.id)
            except Missing:
                every = [*self.locals, *self.source.function.__globals__]
                message = f"there is no {node.id!r}{did_you_mean(node.id, every)}"
                raise self.wrong(node, message, UnknownName) from None
        if isinstance(node, ast.Attribute):
            base = self.meaning(node.value)
            if not isinstance(base, types.ModuleType | type):
                raise self.wrong(node, of_value(base, ast.unparse(node.value)))
            try:
                return getattr(base, node.attr)
            except AttributeError:
                hint = did_you_mean(node.attr, dir(base))
                raise self.wrong(node, f"{ast.unparse(node.value)} has no {node.attr!r}{hint}") from None
        raise _Local

    def numbers_of(self, node: ast.expr) -> tuple[int, ...] | None:
        """The numbers of a constant tuple, written out or by a name; None for anything else."""
        if isinstance(node, ast.Tuple):
            elements = [self.value(element).node if _plain(element) else None for element in node.elts]
            numbers = [known(e) if e is not None else None for e in elements]
            return None if None in numbers else tuple(n for n in numbers if n is not None)
        try:
            value = self.meaning(node)
        except _Local:
            return None
        if not isinstance(value, tuple):
            return None
        return tuple(known(self.constant(v, node, f"an element of {ast.unparse(node)}").node) or 0 for v in value)


def known(node: ast.expr) -> int | None:
    """The number that a translated expression is, when that is known now."""
    return int(node.value) if isinstance(node, ast.Constant) else None  # type: ignore[arg-type]


def _harmless(node: ast.expr) -> bool:
    """Whether a translated expression can be evaluated again with the same result."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    allowed = {PREFIX + name for name in (*HARMLESS, *OPERATIONS, "negate", "absolute")}
    return all(isinstance(call.func, ast.Name) and call.func.id in allowed for call in calls)


def _plain(node: ast.expr) -> bool:
    """Whether an element of a tuple can be translated twice without harm."""
    return not any(isinstance(n, ast.Call) for n in ast.walk(node))


def _fields_of(kind: Kind) -> str:
    """A hint which fields there are, behind the statement that something is not a number."""
    if kind.layout is None:
        return "; nothing can be computed with it" if kind.word in ("packet", "nothing") else ""
    return f"; name a field of it: {', '.join(kind.layout.fields)}"
