"""Translates the statements of a user's function, and follows which variables have a value where.

Theory of operation
-------------------
A block is translated statement by statement.  ``assigned`` holds the variables that have a value on every path that
leads to the statement; where paths join, those that all of them assigned.  After a statement that is not passed
(``return``, ``break``, ``continue``, a loop without end) what follows in the block is unreachable and left out.  A
function whose end can be reached returns nothing, which the caller's code, or the engine, cannot use.
"""

import ast
import sys

from wirespeed.engine.function.advice import INSTEAD
from wirespeed.engine.function.arithmetic import HIGHEST, count
from wirespeed.engine.function.assignments import Assignments, Block, assign
from wirespeed.engine.function.kinds import BOOL, INT, NOTHING, Kind, join
from wirespeed.engine.function.meaning import Local, Value, known
from wirespeed.engine.function.source import Source
from wirespeed.engine.function.unit import PREFIX, Program, Unit

SHORT = 256  # rounds of an innermost loop during which nobody need look at the stop word


class Statements(Assignments):
    """A whole translator, of one function for arguments of certain kinds."""

    def __init__(self, program: Program, source: Source, main: bool) -> None:
        super().__init__(program, source)
        self.main = main
        self.reachable = True
        self.results: list[tuple[Kind, ast.AST]] = []
        self._breaks: list[list[set[str]]] = []  # for each loop around: what is assigned where it is left

    def block(self, body: list[ast.stmt]) -> Block:
        """Translate statements up to the first that cannot be reached."""
        translated: Block = []
        for node in body:
            if not self.reachable:
                break
            self.size += 1
            form = getattr(self, f"_{type(node).__name__.lower()}_statement", None)
            if form is None:
                raise self.wrong(node, INSTEAD.get(type(node), f"{ast.unparse(node)} cannot be compiled"))
            translated += form(node)
        return translated or [ast.Pass()]

    # Simple statements

    def _pass_statement(self, node: ast.Pass) -> Block:
        return []

    def _expr_statement(self, node: ast.Expr) -> Block:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | type(Ellipsis)):
            return []  # a docstring
        value = self.value(node.value)
        if not isinstance(node.value, ast.Call):
            raise self.wrong(node, f"{ast.unparse(node)} does nothing; assign it, return it or leave it out")
        return [ast.copy_location(ast.Expr(value.node), node)]

    def _return_statement(self, node: ast.Return) -> Block:
        if node.value is None:
            value = Value(ast.Constant(0), NOTHING)
        elif isinstance(node.value, ast.Tuple) and not self.main:
            parts = [self.value(element) for element in node.value.elts]
            made = ast.Tuple(
                [self.ours("int", node, p.node) if known(p.node) is not None else p.node for p in parts], ast.Load()
            )
            value = Value(made, Kind("tuple", parts=tuple(INT if p.kind == BOOL else p.kind for p in parts)))
        else:
            value = self.value(node.value)
        self._check_result(value.kind, node)
        self.reachable = False
        result = self.ours("int", node, value.node) if isinstance(value.node, ast.Constant) else value.node
        return [ast.copy_location(ast.Return(result), node)]

    def _check_result(self, kind: Kind, node: ast.AST) -> None:
        if self.main and kind == BOOL:
            hint = "write `return ws.FORWARD if ... else ws.DROP`"
            raise self.wrong(node, f"a verdict is the number of an output, and this is true or false; {hint}")
        if self.main and kind != INT:
            raise self.wrong(
                node, f"a verdict is the number of an output, and this is {kind}; return ws.FORWARD or ws.DROP"
            )
        if self.results and join(self.results[0][0], kind) is None:
            first, where = self.results[0]
            line = getattr(where, "lineno", 0)
            raise self.wrong(node, f"it returns {kind} here and {first} in line {line}; return the same everywhere")
        self.results.append((kind, node))

    # Branches and loops

    def _if_statement(self, node: ast.If) -> Block:
        test = self.condition(node.test)
        if isinstance(test, ast.Constant):
            live = node.body if test.value else node.orelse
            return self.block(live) if live else []
        before = set(self.assigned)
        body = self.block(node.body)
        after, passed = self.assigned, self.reachable
        self.assigned, self.reachable = before, True
        orelse = self.block(node.orelse) if node.orelse else []
        if passed and self.reachable:
            self.assigned &= after
        elif passed:
            self.assigned = after
        self.reachable |= passed
        return [ast.copy_location(ast.If(test, body, orelse), node)]

    def _while_statement(self, node: ast.While) -> Block:
        if node.orelse:
            raise self.wrong(node, "else behind a loop cannot be compiled; set a variable before `break`")
        test = self.condition(node.test)
        if isinstance(test, ast.Constant) and not test.value:
            return []
        endless = isinstance(test, ast.Constant)
        body = self._loop(node.body, [] if endless else [set(self.assigned)])
        if endless and not self.reachable and not any(isinstance(inner, ast.Return) for inner in ast.walk(node)):
            raise self.wrong(node, "this loop has no way out; give it a condition, a `break` or a `return`")
        return [ast.copy_location(ast.While(test, [*self._tick(node), *body], []), node)]

    def _loop(self, statements: list[ast.stmt], ends: list[set[str]]) -> Block:
        """Translate a loop's body.  ``ends``: what is assigned where the loop ends by itself, when it does."""
        self.loops += 1
        self._breaks.append([])
        body = self.block(statements)
        ways = [*ends, *self._breaks.pop()]
        self.reachable = bool(ways)
        self.assigned = set.intersection(*ways) if ways else self.assigned
        return body

    def _break_statement(self, node: ast.Break) -> Block:
        self._breaks[-1].append(set(self.assigned))
        self.reachable = False
        return [ast.copy_location(ast.Break(), node)]

    def _continue_statement(self, node: ast.Continue) -> Block:
        self.reachable = False
        return [ast.copy_location(ast.Continue(), node)]

    def _tick(self, node: ast.stmt) -> Block:
        """What lets a loop without end be stopped."""
        return [ast.copy_location(ast.Expr(self.ours("tick", node, ast.Name(self.packet, ast.Load()))), node)]

    def _for_statement(self, node: ast.For) -> Block:
        if node.orelse:
            raise self.wrong(node, "else behind a loop cannot be compiled; set a variable before `break`")
        if not isinstance(node.target, ast.Name):
            raise self.wrong(node, "a loop over range(...) has one variable; assign others inside")
        bounds = self._bounds(node)
        numbers = [n for n in map(known, bounds) if n is not None]
        rounds = count(*range_of(numbers)) if len(numbers) == len(bounds) else HIGHEST
        before, loops = set(self.assigned), self.loops
        block: Block = []
        first: Block = []
        if len(bounds) == 1 or rounds < HIGHEST:
            self._store_name(node.target, Value(ast.Constant(0), INT))  # for what it notes, not for the code
            counter: ast.expr = ast.copy_location(ast.Name(node.target.id, ast.Store()), node.target)
            over = self.ours("range", node, *bounds)
        else:
            counter, over, variable = self._counted(node, bounds, block)
            first = [variable]
        body = self._loop(node.body, [before])
        short = rounds <= SHORT and self.loops == loops + 1
        return [
            *block,
            ast.copy_location(ast.For(counter, over, [*([] if short else self._tick(node)), *first, *body], []), node),
        ]

    def _bounds(self, node: ast.For) -> list[ast.expr]:
        call = node.iter
        try:
            over_range = isinstance(call, ast.Call) and self.meaning(call.func) is range
        except Local:
            over_range = False
        if not over_range or not isinstance(call, ast.Call):
            raise self.wrong(node, "a for loop goes over range(...) only; write `for i in range(len(x))` and x[i]")
        if call.keywords or not 1 <= len(call.args) <= 3:
            raise self.wrong(node, f"range takes one, two or three numbers; got {ast.unparse(call)}")
        bounds = [self.number(argument) for argument in call.args]
        if len(bounds) == 3 and known(bounds[2]) == 0:
            raise self.wrong(node, "range with step 0 would never end; give another step")
        return bounds

    def _counted(self, node: ast.For, bounds: list[ast.expr], block: Block) -> tuple[ast.expr, ast.expr, ast.stmt]:
        """A loop that counts its rounds, so that no bound can wrap: ``for k in range(count): i = start + k * step``."""
        names: list[ast.expr] = []
        for bound in [*bounds, ast.Constant(1)][:3]:
            name = self.temporary()
            block.append(assign(ast.Name(name, ast.Store()), self.ours("int", node, bound), node))
            names.append(ast.Name(name, ast.Load()))
        start, stop, step = names
        number = self.temporary()
        offset = self.operate(ast.Mult(), ast.Name(number, ast.Load()), step, node)
        value = Value(self.operate(ast.Add(), start, offset, node), INT)
        assert isinstance(node.target, ast.Name)
        variable = self._store_name(node.target, value)
        over = self.ours("range", node, self.ours("count", node, start, stop, step))
        return ast.copy_location(ast.Name(number, ast.Store()), node), over, variable


def range_of(numbers: list[int]) -> tuple[int, int, int]:
    """Start, stop and step of a range that is given by one, two or three numbers."""
    start, stop = (0, *numbers) if len(numbers) == 1 else numbers[:2]
    return start, stop, numbers[2] if len(numbers) == 3 else 1


def translate(program: Program, source: Source, name: str, kinds: tuple[Kind, ...]) -> Unit:
    """Translate one function for arguments of those kinds; the user's own is the one that has its own name."""
    main = name == source.name
    self = Statements(program, source, main)
    parameters = _parameters(source)
    for parameter, kind in zip(parameters, kinds, strict=True):
        if parameter.startswith(PREFIX):
            raise source.wrong(None, f"names that begin with {PREFIX} are taken; choose another one than {parameter}")
        self.kinds[parameter] = kind
        self.assigned.add(parameter)
    self.packet = parameters[0] if main else f"{PREFIX}pkt"
    body = self.block(source.tree.body)
    if self.reachable and (self.main or any(kind != NOTHING for kind, _ in self.results)):
        what = "verdict" if main else "value"
        raise source.wrong(None, f"not every path returns a {what}; end {source.name} with a return")
    result = NOTHING
    for kind, _ in self.results:
        result = kind if result == NOTHING else join(result, kind) or result
    if (self.reachable and self.results) or result == NOTHING:
        body.append(ast.Return(ast.Constant(0)))
    arguments = [*([] if main else [self.packet]), *parameters]
    given = ast.arguments([], [ast.arg(a) for a in arguments], None, [], [], None, [])
    tree = ast.FunctionDef(name, given, body, [], None)
    if sys.version_info >= (3, 12):
        tree.type_params = []
    ast.copy_location(tree, source.tree)
    return Unit(ast.fix_missing_locations(tree), source.file, result, bool(self.loops), self.size)


def _parameters(source: Source) -> list[str]:
    arguments = source.tree.args
    if arguments.vararg or arguments.kwarg:
        raise source.wrong(None, f"{source.name} takes any number of arguments; give it named ones")
    return [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
