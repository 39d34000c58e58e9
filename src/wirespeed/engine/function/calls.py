"""Translates calls: methods of the packet and its bytes, wirespeed's actions, builtins and the user's own functions."""

import ast
import inspect
import types

from wirespeed.core.element import Element
from wirespeed.engine.function.actions import ACTIONS, Action
from wirespeed.engine.function.advice import CALLABLE, CALLS, INSTEAD, did_you_mean
from wirespeed.engine.function.expressions import METHODS, WORDS, Expressions
from wirespeed.engine.function.kinds import BOOL, BYTES, INT, NOTHING, PACKET, Kind
from wirespeed.engine.function.meaning import Local, Value, known
from wirespeed.engine.function.source import Source
from wirespeed.engine.function.unit import Program

BUILTINS = (int, bool, abs, min, max, len)


class Calls(Expressions):
    """The part of a translator that handles calls."""

    def __init__(self, program: Program, source: Source) -> None:
        super().__init__(program, source)
        self.packet = ""  # the variable that holds the packet, in every function

    def _call(self, node: ast.Call) -> Value:
        for argument in [*node.args, *node.keywords]:
            if isinstance(argument, ast.Starred) or (isinstance(argument, ast.keyword) and argument.arg is None):
                raise self.wrong(node, INSTEAD[ast.Starred])
        try:
            meaning = self.meaning(node.func)
        except Local:
            return self._method(node)
        name = ast.unparse(node.func)
        if isinstance(meaning, Element):  # a Function, called from another one
            meaning = getattr(meaning, "python", meaning)
        if isinstance(meaning, types.FunctionType):
            return self._action(node, ACTIONS[meaning]) if meaning in ACTIONS else self._own(node, meaning)
        if any(meaning is b for b in BUILTINS):
            return self._builtin(node, name)
        raise self.wrong(node, CALLS.get(name, f"{name} cannot be called here; what can is {CALLABLE}"))

    def _bind(self, node: ast.Call, signature: inspect.Signature, name: str) -> dict[str, ast.expr]:
        """The arguments of a call by the names of the parameters, in their order; defaults are not among them."""
        try:
            bound = signature.bind(*node.args, **{k.arg: k.value for k in node.keywords if k.arg})
        except TypeError as error:
            raise self.wrong(node, f"{name}: {error}; it takes {_parameters(signature)}") from None
        return dict(bound.arguments)

    # Methods

    def _method(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Attribute):
            raise self.wrong(node, f"{ast.unparse(node.func)} cannot be called here; what can is {CALLABLE}")
        base, name = self.value(node.func.value), node.func.attr
        if base.kind == PACKET and name in METHODS:
            self.program.writes |= name != "locate"
            arguments = self._numbers(node, 0 if name == "locate" else 1)
            return self._result(node, name, [base.node, *arguments], NOTHING if name == "locate" else BOOL)
        if base.kind == BYTES and name in WORDS:
            put = name.startswith("put")
            self.program.writes |= put
            arguments = self._numbers(node, 2 if put else 1)
            return Value(self.ours(name, node, base.node, *arguments), NOTHING if put else INT)
        every = METHODS if base.kind == PACKET else WORDS if base.kind == BYTES else ()
        have = did_you_mean(name, every) or (f"; there are {', '.join(every)}" if every else "")
        raise self.wrong(node, f"{ast.unparse(node.func.value)} is {base.kind} and has no method {name!r}{have}")

    def _numbers(self, node: ast.Call, n: int) -> list[ast.expr]:
        if len(node.args) != n or node.keywords:
            wanted = ("no arguments", "one number", "two numbers")[n]
            raise self.wrong(node, f"{ast.unparse(node.func)} takes {wanted}; got {ast.unparse(node)}")
        return [self.number(argument) for argument in node.args]

    # Actions

    def _action(self, node: ast.Call, action: Action) -> Value:
        bound = self._bind(node, action.signature, action.name)
        self.program.want |= action.want
        self.program.writes |= action.writes
        # The packet goes first, whether or not the action asks for it: it says where the bytes end.
        arguments: list[ast.expr] = [ast.Name(self.packet, ast.Load())]
        if action.choices:  # which of the optional numbers were given
            arguments.append(ast.Constant(sum(1 << i for i, p in enumerate(action.choices) if p in bound)))
            if not any(p in bound for p in action.choices):
                raise self.wrong(
                    node, f"{action.name} changes nothing; give at least one of {', '.join(action.choices)}"
                )
        variant = action.name
        for parameter, wanted in action.parameters.items():
            if wanted == "number":
                default = action.signature.parameters[parameter].default
                given = bound.get(parameter)
                arguments.append(self.number(given) if given is not None else ast.Constant(default or 0))
                continue
            value = self.value(bound[parameter])
            if wanted == "packet" and value.kind != PACKET:
                raise self.wrong(node, f"{action.name} wants the packet first; write {action.name}(pkt, ...)")
            if wanted != "packet":
                variant = self._variant(node, action, value, wanted)
                arguments.append(value.node)
        return self._result(node, variant, arguments, action.result)

    def _result(self, node: ast.Call, name: str, arguments: list[ast.expr], kind: Kind) -> Value:
        """A call of ours that returns a number, nothing, or true or false, which becomes a number here."""
        call = self.ours(name, node, *arguments)
        return Value(self.ours("int", node, call) if kind == BOOL else call, kind)

    def _variant(self, node: ast.Call, action: Action, value: Value, wanted: str) -> str:
        """The name of an action for the kind of header that it is given."""
        names = wanted.split()
        if value.kind.word != "header" or value.kind.layout_name not in names:
            what = " or ".join(f"pkt.{name.lower()}" for name in names)
            raise self.wrong(node, f"{action.name} wants {what}, and it is given {value.kind}")
        return action.name if len(names) == 1 else f"{action.name}_{value.kind.layout_name.lower()}"

    # Builtins

    def _builtin(self, node: ast.Call, name: str) -> Value:
        if node.keywords:
            raise self.wrong(node, f"{name} takes no keywords here; got {ast.unparse(node)}")
        if name in ("min", "max"):
            if len(node.args) < 2:
                raise self.wrong(node, f"{name} takes two or more numbers here; got {ast.unparse(node)}")
            return Value(self.ours(name, node, *map(self.number, node.args)), INT)
        if len(node.args) != 1:
            raise self.wrong(node, f"{name} takes one argument here; got {ast.unparse(node)}")
        (argument,) = node.args
        if name == "bool":
            return self.as_number(self.condition(argument), node)
        if name == "len":
            return Value(self._length(node, argument), INT)
        inner = self.number(argument)
        return Value(inner if name == "int" else self._absolute(node, inner), INT)

    def _absolute(self, node: ast.Call, inner: ast.expr) -> ast.expr:
        number = known(inner)
        return self.ours("absolute", node, inner) if number is None else self.constant(abs(number), node, "").node

    def _length(self, node: ast.Call, argument: ast.expr) -> ast.expr:
        values = self.numbers_of(argument)
        if values is not None:
            return self.constant(len(values), node, "").node
        value = self.value(argument)
        if value.kind.word not in ("array", "bytes"):
            hint = "; write pkt.length" if value.kind == PACKET else ""
            raise self.wrong(node, f"{ast.unparse(argument)} is {value.kind} and has no length{hint}")
        return self.ours("length", node, value.node)

    # The user's own functions

    def _own(self, node: ast.Call, function: types.FunctionType) -> Value:
        signature = inspect.signature(function)
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values()):
            raise self.wrong(node, f"{function.__name__} takes any number of arguments; give it named ones")
        bound = self._bind(node, signature, function.__name__)
        values: list[Value] = []
        for name, parameter in signature.parameters.items():
            if name in bound:
                values.append(self.value(bound[name]))
            else:
                default = f"the default of {name}"
                values.append(self.constant(parameter.default, node, default))
        kinds = tuple(INT if v.kind == BOOL else v.kind for v in values)
        if any(k == NOTHING or k.word == "tuple" for k in kinds):
            raise self.wrong(node, f"{function.__name__} is given nothing, or several values at once; give one each")
        unit = self.program.unit(function, kinds, self.source, node)
        self.size += unit.size
        self.loops += unit.loops
        arguments: list[ast.expr] = [ast.Name(self.packet, ast.Load())]
        arguments += [self.ours("int", node, v.node) if isinstance(v.node, ast.Constant) else v.node for v in values]
        called = ast.Name(unit.tree.name, ast.Load())
        return Value(ast.copy_location(ast.Call(called, arguments, []), node), unit.result)


def _parameters(signature: inspect.Signature) -> str:
    return f"({', '.join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())})"
