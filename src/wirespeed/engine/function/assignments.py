"""Translates assignments: to variables, fields, elements; several at once; and with an operator."""

import ast

from wirespeed.engine.function.advice import INSTEAD
from wirespeed.engine.function.calls import Calls
from wirespeed.engine.function.kinds import BOOL, BYTES, INT, NOTHING, PACKET, join
from wirespeed.engine.function.meaning import Local, Value
from wirespeed.engine.function.unit import PREFIX

Block = list[ast.stmt]


class Assignments(Calls):
    """The part of a translator that handles assignments."""

    def _assign_statement(self, node: ast.Assign) -> Block:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
            return self._unpack(node, node.targets[0])
        value = self._assignable(node.value)
        if len(node.targets) == 1:
            return self.store(node.targets[0], value)
        name = self.temporary()
        block = [assign(ast.Name(name, ast.Store()), value.node, node)]
        for target in node.targets:
            block += self.store(target, Value(ast.Name(name, ast.Load()), value.kind))
        return block

    def _annassign_statement(self, node: ast.AnnAssign) -> Block:
        return self.store(node.target, self._assignable(node.value)) if node.value else []

    def _assignable(self, node: ast.expr) -> Value:
        value = self.value(node)
        if value.kind == NOTHING or value.kind.word == "tuple":
            raise self.wrong(node, f"{ast.unparse(node)} is {value.kind}; assign one value to each name")
        return value

    def _unpack(self, node: ast.Assign, target: ast.Tuple) -> Block:
        """``a, b = b, a``: everything on the right is evaluated before anything on the left changes."""
        if isinstance(node.value, ast.Tuple):
            values = [self._assignable(element) for element in node.value.elts]
        else:
            several = self.value(node.value)
            if several.kind.word != "tuple":
                raise self.wrong(
                    node, f"{ast.unparse(node.value)} is {several.kind}, not several values; write a tuple"
                )
            values = [Value(several.node, kind) for kind in several.kind.parts]
        if len(values) != len(target.elts):
            raise self.wrong(node, f"{len(target.elts)} names get {len(values)} values; give each name one")
        names = [self.temporary() for _ in values]
        if isinstance(node.value, ast.Tuple):
            block = [assign(ast.Name(name, ast.Store()), v.node, node) for name, v in zip(names, values, strict=True)]
        else:
            block = [assign(ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store()), several.node, node)]
        for element, name, value in zip(target.elts, names, values, strict=True):
            block += self.store(element, Value(ast.Name(name, ast.Load()), value.kind))
        return block

    def store(self, target: ast.expr, value: Value) -> Block:
        """Translate the assignment of a translated value to a target."""
        if isinstance(target, ast.Name):
            return [self._store_name(target, value)]
        if isinstance(target, ast.Attribute):
            return [self._store_attribute(target, value)]
        if isinstance(target, ast.Subscript):
            return self._store_element(target, value)
        raise self.wrong(target, INSTEAD.get(type(target), f"nothing can be assigned to {ast.unparse(target)}"))

    def _store_name(self, target: ast.Name, value: Value) -> ast.stmt:
        name = target.id
        if name.startswith(PREFIX):
            raise self.wrong(target, f"names that begin with {PREFIX} are taken; choose another one than {name}")
        before = self.kinds.get(name, value.kind)
        kind = join(before, value.kind)
        if kind is None:
            raise self.wrong(target, f"{name!r} was {before} before and is {value.kind} now; use two names")
        self.kinds[name] = kind
        self.assigned.add(name)
        return assign(ast.Name(name, ast.Store()), value.node, target)

    def _store_attribute(self, target: ast.Attribute, value: Value) -> ast.stmt:
        base = self._target_base(target)
        kind = self.attribute_kind(base.kind, target)
        shown = ast.unparse(target)
        if base.kind == PACKET and target.attr != "mark":
            hint = "; write its fields" if kind.word == "header" else "; of the packet itself only mark can be"
            raise self.wrong(target, f"{shown} cannot be written{hint}")
        if kind != INT:
            raise self.wrong(
                target, f"{shown} is {kind}, a place that cannot be replaced; write its elements or fields"
            )
        self._want_number(target, value, shown)
        if target.attr == "chksum" and value.kind == BOOL:
            hint = "ws.checksum_ipv4 and ws.checksum_l4 write it themselves, on a line of their own"
            raise self.wrong(target, f"{shown} holds a checksum, and this is true or false; {hint}")
        self.program.writes |= base.kind.word in ("packet", "header")
        if base.kind == PACKET:
            return ast.copy_location(ast.Expr(self.ours("set_mark", target, base.node, value.node)), target)
        return assign(ast.Attribute(base.node, target.attr, ast.Store()), value.node, target)

    def _target_base(self, target: ast.Attribute) -> Value:
        try:
            self.meaning(target.value)
        except Local:
            return self.value(target.value)
        raise self.wrong(target, f"{ast.unparse(target)} cannot be written; keep what changes in a state")

    def _want_number(self, target: ast.expr, value: Value, shown: str) -> None:
        if not value.kind.number:
            raise self.wrong(target, f"{shown} holds a number, and what is assigned is {value.kind}")

    def _store_element(self, target: ast.Subscript, value: Value) -> Block:
        if self.numbers_of(target.value) is not None:
            raise self.wrong(target, f"{ast.unparse(target.value)} is constant; keep what changes in a state")
        base = self.array(target)
        shown = ast.unparse(target)
        self._want_number(target, value, shown)
        if base.kind == BYTES:
            self.program.writes = True
        if not base.kind.writable:
            raise self.wrong(target, f"{shown} is of a table that is read-only; give one that can be written")
        block: Block = []
        stored = value.node
        if not isinstance(stored, ast.Name | ast.Constant):  # Python evaluates what is stored first
            name = self.temporary()
            block.append(assign(ast.Name(name, ast.Store()), stored, target))
            stored = ast.Name(name, ast.Load())
        call = self.ours("set_element", target, base.node, self.number(target.slice), stored)
        return [*block, ast.copy_location(ast.Expr(call), target)]

    def _augassign_statement(self, node: ast.AugAssign) -> Block:
        """``a.b op= c`` as ``t = a; t.b = t.b op c``: what leads to the place is evaluated once."""
        block: Block = []
        target = node.target
        place = target
        if isinstance(target, ast.Attribute):
            place = ast.Attribute(self._once(target.value, block), target.attr, ast.Load())
        elif isinstance(target, ast.Subscript):
            base = self._once(target.value, block)
            place = ast.Subscript(base, self._once(target.slice, block), ast.Load())
        place = ast.copy_location(place, target)
        read = ast.copy_location(ast.Name(target.id, ast.Load()), target) if isinstance(target, ast.Name) else place
        result = self.operate(node.op, self.number(read), self.number(node.value), node)
        return block + self.store(place, Value(result, INT))

    def _once(self, node: ast.expr, block: Block) -> ast.expr:
        """A name for what ``node`` is, evaluated here; names and constants stay what they are."""
        if isinstance(node, ast.Name | ast.Constant | ast.Slice):
            return node
        try:
            self.meaning(node)
        except Local:
            pass
        else:
            return node
        value = self.value(node)
        if isinstance(value.node, ast.Constant):
            return node
        name = self.temporary()
        self.locals.add(name)
        self.assigned.add(name)
        self.kinds[name] = value.kind
        block.append(assign(ast.Name(name, ast.Store()), value.node, node))
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def assign(target: ast.expr, value: ast.expr, at: ast.AST) -> ast.stmt:
    """A translated assignment."""
    return ast.copy_location(ast.Assign([target], value), at)
