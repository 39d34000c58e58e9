"""Atomic access to one field of a layout; each function is named after its memory order.

``load_acquire(ring.cons, "tail")``: a pointer and the name of a field, which must be a plain one in machine order.
Source: the LLVM language reference, "Atomic memory ordering constraints".
"""

from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from wirespeed.jit.layout import Field, Pointer, field_address
from wirespeed.jit.machine import ARCHITECTURE


def _plain(pointer: Any, name: Any) -> Field:
    if not isinstance(pointer, Pointer):
        raise TypingError(f"an atomic access needs a layout's pointer, got {pointer}")
    if not isinstance(name, types.StringLiteral):  # numba tries again without literals when the first try failed
        raise TypingError("an atomic access needs the field's name as a literal")
    field = pointer.field(name.literal_value)
    if field.bits or field.swap or field.sub is not None or field.count or field.size not in (1, 2, 4, 8):
        raise TypingError(f"{field.name!r} of {pointer.layout.name} is not a plain machine integer: no atomic access")
    return field


def _load(order: str, doc: str) -> Any:
    @intrinsic(prefer_literal=True)
    def load(typingctx, pointer, name):
        field = _plain(pointer, name)

        def codegen(context, builder, signature, args):
            return builder.load_atomic(field_address(builder, args[0], field), order, field.size)

        return field.type(pointer, name), codegen

    load.__doc__ = doc
    return load


def _store(order: str, doc: str) -> Any:
    @intrinsic(prefer_literal=True)
    def store(typingctx, pointer, name, value):
        field = _plain(pointer, name)

        def codegen(context, builder, signature, args):
            new = context.cast(builder, args[2], signature.args[2], field.type)
            builder.store_atomic(new, field_address(builder, args[0], field), order, field.size)
            return context.get_dummy_value()

        return types.void(pointer, name, value), codegen

    store.__doc__ = doc
    return store


def _update(operation: str, doc: str) -> Any:
    @intrinsic(prefer_literal=True)
    def update(typingctx, pointer, name, value):
        field = _plain(pointer, name)

        def codegen(context, builder, signature, args):
            new = context.cast(builder, args[2], signature.args[2], field.type)
            return builder.atomic_rmw(operation, field_address(builder, args[0], field), new, "acq_rel")

        return field.type(pointer, name, value), codegen

    update.__doc__ = doc
    return update


load_relaxed = _load("monotonic", "Read a field; orders nothing else.")
load_acquire = _load("acquire", "Read a field; what follows sees what was written before the paired release.")
store_relaxed = _store("monotonic", "Write a field; orders nothing else.")
store_release = _store("release", "Write a field; whoever acquires it sees all that was written before.")
exchange = _update("xchg", "Write a field and return what it held (acquire and release).")
fetch_add = _update("add", "Add to a field and return what it held before (acquire and release).")
fetch_or = _update("or", "Set bits of a field and return what it held before (acquire and release).")
fetch_and = _update("and", "Clear bits of a field and return what it held before (acquire and release).")


@intrinsic(prefer_literal=True)
def compare_exchange(typingctx, pointer, name, expected, desired):
    """Replace ``expected`` by ``desired``; return whether it did.

    Acquire and release on success, acquire on failure.
    """
    field = _plain(pointer, name)

    def codegen(context, builder, signature, args):
        old, new = (context.cast(builder, args[i], signature.args[i], field.type) for i in (2, 3))
        pair = builder.cmpxchg(field_address(builder, args[0], field), old, new, "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(pointer, name, expected, desired), codegen


def _fence(order: str, doc: str) -> Any:
    @intrinsic
    def fence(typingctx):
        def codegen(context, builder, signature, args):
            builder.fence(order)
            return context.get_dummy_value()

        return types.void(), codegen

    fence.__doc__ = doc
    return fence


fence_acquire = _fence("acquire", "Reads before stay before everything after.")
fence_release = _fence("release", "Everything before stays before the writes after.")
fence_full = _fence("seq_cst", "Everything before stays before everything after, stores and loads included.")


@intrinsic
def fence_exchanged(typingctx):
    """:func:`fence_full` for right behind an exchange, which on x86 is one already."""

    def codegen(context, builder, signature, args):
        if ARCHITECTURE != "x86_64":
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


__all__ = [
    "compare_exchange", "exchange", "fence_acquire", "fence_exchanged", "fence_full", "fence_release", "fetch_add",
    "fetch_and", "fetch_or", "load_acquire", "load_relaxed", "store_relaxed", "store_release",
]  # fmt: skip
