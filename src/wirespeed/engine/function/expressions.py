"""Translates the expressions of a user's function, and finds out what each is.

Theory of operation
-------------------
The translated code means the same to Python and to the compiler.  What the two would do differently (arithmetic that
must wrap, a header in a condition, an element that may be outside) becomes a call of one of our names, ``_ws_add`` and
so on, which stand for Python functions in the interpreted form and for kernels in the compiled one.  Every number is
an int64 there; a condition that is used as a number becomes 0 or 1.
"""

import ast

from wirespeed.engine.function import kinds
from wirespeed.engine.function.advice import INSTEAD, OPERATORS, did_you_mean
from wirespeed.engine.function.arithmetic import NAMES, OPERATIONS, wrap
from wirespeed.engine.function.conditions import Conditions
from wirespeed.engine.function.kinds import BOOL, BYTES, INT, NOTHING, PACKET, Kind, join
from wirespeed.engine.function.meaning import Local, Value, known
from wirespeed.engine.function.runtime import FIELDS
from wirespeed.net.headers import HEADERS
from wirespeed.net.parse import BITS, PAYLOAD

COMPUTED = ("mark", "hash", "payload", "frame")  # attributes of a packet that are worked out when they are asked for
METHODS = ("prepend", "append", "adjust", "trim", "locate")
WORDS = ("u16", "u32", "u64", "put_u16", "put_u32", "put_u64")


class Expressions(Conditions):
    """The part of a translator that handles expressions; calls are left to what builds on it."""

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
        except Local:
            base = self.value(node.value)
        kind = self.attribute_kind(base.kind, node)
        if base.kind == PACKET and node.attr in COMPUTED:
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
        if name in FIELDS or name in ("hash", "mark"):
            return INT
        if name in METHODS:
            raise self.wrong(node, f"{name} is a method; call it: {ast.unparse(node)}(...)")
        every = [*HEADERS, *FIELDS, *COMPUTED, *METHODS]
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


def _fields_of(kind: Kind) -> str:
    """A hint which fields there are, behind the statement that something is not a number."""
    if kind.layout is None:
        return "; nothing can be computed with it" if kind.word in ("packet", "nothing") else ""
    return f"; name a field of it: {', '.join(kind.layout.fields)}"
