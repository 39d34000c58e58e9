"""Translates what is tested: expressions that are Python's own true or false when they are evaluated."""

import ast
import operator

from wirespeed.engine.function.advice import OPERATORS
from wirespeed.engine.function.arithmetic import OPERATIONS
from wirespeed.engine.function.kinds import BOOL
from wirespeed.engine.function.meaning import Meaning, Value, known
from wirespeed.engine.function.unit import PREFIX

FEW = 6  # elements of a tuple that are compared one by one
HARMLESS = (
    "int", "truth", "min", "max", "present", "length", "get_element", "pick", "frame", "payload", "u16", "u32", "u64",
)  # fmt: skip
COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


class Conditions(Meaning):
    """The part of a translator that handles conditions."""

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


def _harmless(node: ast.expr) -> bool:
    """Whether a translated expression can be evaluated again with the same result."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    allowed = {PREFIX + name for name in (*HARMLESS, *OPERATIONS, "negate", "absolute")}
    return all(isinstance(call.func, ast.Name) and call.func.id in allowed for call in calls)
