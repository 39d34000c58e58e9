"""What a kernel needs of the machine: memory by address, byte order, bit counts, hashes, hints, calls by pointer.

Addresses are int64.  Nothing here checks a bound: every caller argues its own in a comment.  Each machine-specific
intrinsic has a portable twin that is tested equal to it; ``WIRESPEED_PORTABLE=1`` selects the twins.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from wirespeed.jit.kernel import kernel
from wirespeed.jit.machine import ARM, X86, has

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
VOID = ir.VoidType()


def _loader(bits: int, result: Any, swap: bool = False) -> Any:
    @intrinsic
    def load(typingctx, at):
        def codegen(context, builder, signature, args):
            at = context.cast(builder, args[0], signature.args[0], types.int64)
            value = builder.load(builder.inttoptr(at, ir.IntType(bits).as_pointer()), align=1)
            return builder.bswap(value) if swap else value

        return result(at), codegen

    load.__doc__ = f"The {bits}-bit integer at an address, in {'network' if swap else 'machine'} order."
    return load


def _storer(bits: int, stored: Any, swap: bool = False) -> Any:
    @intrinsic
    def store(typingctx, at, value):
        def codegen(context, builder, signature, args):
            at = context.cast(builder, args[0], signature.args[0], types.int64)
            new = context.cast(builder, args[1], signature.args[1], stored)
            builder.store(builder.bswap(new) if swap else new,
                          builder.inttoptr(at, ir.IntType(bits).as_pointer()), align=1)  # fmt: skip
            return context.get_dummy_value()

        return types.void(at, value), codegen

    store.__doc__ = f"Write a {bits}-bit integer at an address, in {'network' if swap else 'machine'} order."
    return store


load_u8, store_u8 = _loader(8, types.uint8), _storer(8, types.uint8)
load_u16, store_u16 = _loader(16, types.uint16), _storer(16, types.uint16)
load_u32, store_u32 = _loader(32, types.uint32), _storer(32, types.uint32)
load_u64, store_u64 = _loader(64, types.uint64), _storer(64, types.uint64)
load_i64, store_i64 = _loader(64, types.int64), _storer(64, types.int64)
load_be16, store_be16 = _loader(16, types.uint16, True), _storer(16, types.uint16, True)
load_be32, store_be32 = _loader(32, types.uint32, True), _storer(32, types.uint32, True)
load_be64, store_be64 = _loader(64, types.uint64, True), _storer(64, types.uint64, True)


@intrinsic
def load_handle(typingctx, at):
    """The handle at an address of a burst, in a loop over packets.

    A relaxed atomic load, which is a plain one to the processor and keeps LLVM from vectorising the loop around it: it
    would gather fields from the records, which took twice as long as scalar loads on the machines we tried.
    """

    def codegen(context, builder, signature, args):
        at = context.cast(builder, args[0], signature.args[0], types.int64)
        return builder.load_atomic(builder.inttoptr(at, I64.as_pointer()), "monotonic", 8)

    return types.int64(at), codegen


def _item(bits: int, result: Any) -> Any:
    @intrinsic
    def item(typingctx, base, index):
        def codegen(context, builder, signature, args):
            base, index = (context.cast(builder, args[i], signature.args[i], types.int64) for i in range(2))
            first = builder.inttoptr(base, ir.IntType(bits).as_pointer())
            return builder.load(builder.gep(first, [index], inbounds=True), align=1)

        return result(base, index), codegen

    item.__doc__ = (
        f"The {bits}-bit integer number ``index`` of those at ``base``, in machine order.  Of a load from ``base`` plus "
        "so many bytes LLVM cannot see that successive ones are neighbours, so it gathers; loops over this one vectorise."
    )
    return item


item_u32, item_u64 = _item(32, types.uint32), _item(64, types.uint64)


def _unary(name: str, integer: Any, doc: str, flag: bool = False) -> Any:
    bits = integer.bitwidth

    @intrinsic
    def count(typingctx, value):
        def codegen(context, builder, signature, args):
            value = context.cast(builder, args[0], signature.args[0], integer)
            kind = ir.IntType(bits)
            extra = [ir.Constant(ir.IntType(1), 0)] if flag else []
            fnty = ir.FunctionType(kind, [kind] + [e.type for e in extra])
            return builder.call(builder.module.declare_intrinsic(f"llvm.{name}.i{bits}", fnty=fnty), [value, *extra])

        return integer(value), codegen

    count.__doc__ = doc
    return count


bswap16 = _unary("bswap", types.uint16, "The two bytes of a 16-bit integer, the other way round.")
bswap32 = _unary("bswap", types.uint32, "The four bytes of a 32-bit integer, the other way round.")
bswap64 = _unary("bswap", types.uint64, "The eight bytes of a 64-bit integer, the other way round.")
leading_zeros = _unary("ctlz", types.uint64, "Zero bits above the highest one of a 64-bit integer; 64 for 0.", True)
trailing_zeros = _unary("cttz", types.uint64, "Zero bits below the lowest one of a 64-bit integer; 64 for 0.", True)
count_ones = _unary("ctpop", types.uint64, "One bits of a 64-bit integer.")


def _mover(name: str, doc: str) -> Any:
    @intrinsic
    def move(typingctx, dst, src, size):
        def codegen(context, builder, signature, args):
            dst, src, size = (context.cast(builder, args[i], signature.args[i], types.int64) for i in range(3))
            to, source = (builder.inttoptr(a, I8.as_pointer()) for a in (dst, src))
            fnty = ir.FunctionType(VOID, [I8.as_pointer(), I8.as_pointer(), I64, ir.IntType(1)])
            fn = builder.module.declare_intrinsic(f"llvm.{name}", [I8.as_pointer(), I8.as_pointer(), I64], fnty)
            builder.call(fn, [to, source, size, ir.Constant(ir.IntType(1), 0)])
            return context.get_dummy_value()

        return types.void(dst, src, size), codegen

    move.__doc__ = doc
    return move


copy = _mover("memcpy", "Copy ``size`` bytes to ``dst`` from ``src``; the two must not overlap.")
move = _mover("memmove", "Copy ``size`` bytes to ``dst`` from ``src``; the two may overlap.")


@intrinsic
def fill(typingctx, dst, byte, size):
    """Set ``size`` bytes at ``dst`` to ``byte``."""

    def codegen(context, builder, signature, args):
        dst = builder.inttoptr(context.cast(builder, args[0], signature.args[0], types.int64), I8.as_pointer())
        value = context.cast(builder, args[1], signature.args[1], types.uint8)
        size = context.cast(builder, args[2], signature.args[2], types.int64)
        fnty = ir.FunctionType(VOID, [I8.as_pointer(), I8, I64, ir.IntType(1)])
        fn = builder.module.declare_intrinsic("llvm.memset", [I8.as_pointer(), I64], fnty)
        builder.call(fn, [dst, value, size, ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(dst, byte, size), codegen


@kernel(inline=True)
def equal(a, b, size):
    """Whether ``size`` bytes at the addresses ``a`` and ``b`` are the same."""
    at = np.int64(0)
    while at + 8 <= size:
        if load_u64(a + at) != load_u64(b + at):
            return False
        at += 8
    while at < size:
        if load_u8(a + at) != load_u8(b + at):
            return False
        at += 1
    return True


def _prefetcher(write: int, doc: str) -> Any:
    @intrinsic
    def prefetch(typingctx, at):
        def codegen(context, builder, signature, args):
            where = builder.inttoptr(context.cast(builder, args[0], signature.args[0], types.int64), I8.as_pointer())
            fnty = ir.FunctionType(VOID, [I8.as_pointer(), I32, I32, I32])
            fn = builder.module.declare_intrinsic("llvm.prefetch", [I8.as_pointer()], fnty)
            builder.call(fn, [where, I32(write), I32(3), I32(1)])
            return context.get_dummy_value()

        return types.void(at), codegen

    prefetch.__doc__ = doc
    return prefetch


prefetch = _prefetcher(0, "Ask for the cache line at an address; any address may be given, none is touched.")
prefetch_write = _prefetcher(1, ":func:`prefetch` for a line that is about to be written: other cores give it up now.")


@intrinsic
def pause(typingctx):
    """Tell the core that this is a wait loop (x86 ``pause``, Arm ``yield``; nothing elsewhere)."""

    def codegen(context, builder, signature, args):
        if X86:
            fn = builder.module.declare_intrinsic("llvm.x86.sse2.pause", fnty=ir.FunctionType(VOID, []))
            builder.call(fn, [])
        elif ARM:
            fn = builder.module.declare_intrinsic("llvm.aarch64.hint", fnty=ir.FunctionType(VOID, [I32]))
            builder.call(fn, [I32(1)])  # hint 1 is YIELD, Arm ARM C6.2
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _cycle_counter(typingctx):
    def codegen(context, builder, signature, args):
        if ARM:  # The cycle counter proper traps in user mode; the virtual timer, CNTVCT_EL0, does not.
            asm = ir.InlineAsm(ir.FunctionType(I64, []), "mrs $0, cntvct_el0", "=r", side_effect=True)
            return builder.call(asm, [])
        fn = builder.module.declare_intrinsic("llvm.readcyclecounter", fnty=ir.FunctionType(I64, []))
        return builder.call(fn, [])

    return types.int64(), codegen


@intrinsic
def _monotonic(typingctx):
    def codegen(context, builder, signature, args):
        spec = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))
        fnty = ir.FunctionType(I32, [I32, I64.as_pointer()])
        fn = cgutils.get_or_insert_function(builder.module, fnty, "clock_gettime")
        first = builder.bitcast(spec, I64.as_pointer())
        builder.call(fn, [I32(1), first])  # 1 is CLOCK_MONOTONIC on Linux
        seconds, rest = builder.load(first), builder.load(builder.gep(first, [I32(1)]))
        return builder.add(builder.mul(seconds, I64(1_000_000_000)), rest)

    return types.int64(), codegen


# The clock that statistics are taken with: the time stamp counter, the Arm timer, or nanoseconds elsewhere.
cycles = _cycle_counter if X86 or ARM else _monotonic

# CRC-32C (Castagnoli), reflected polynomial 0x82F63B78: RFC 3720 appendix B.4 has its check values.
_CRC_POLYNOMIAL = 0x82F63B78


def _crc_table() -> Any:
    table = np.zeros(256, np.uint32)
    for i in range(256):
        value = i
        for _ in range(8):
            value = value >> 1 ^ (_CRC_POLYNOMIAL if value & 1 else 0)
        table[i] = value
    return table


CRC_TABLE = _crc_table()


@kernel(inline=True)
def crc32c_portable(seed, word):
    """CRC-32C of the eight bytes of ``word`` (lowest first), continuing ``seed``, by table."""
    value, rest = np.uint64(seed), np.uint64(word)
    for _ in range(8):
        value = (value >> np.uint64(8)) ^ np.uint64(CRC_TABLE[np.int64((value ^ rest) & np.uint64(255))])
        rest = rest >> np.uint64(8)
    return np.uint32(value)


@intrinsic
def _crc32c_machine(typingctx, seed, word):
    def codegen(context, builder, signature, args):
        seed = context.cast(builder, args[0], signature.args[0], types.uint32)
        word = context.cast(builder, args[1], signature.args[1], types.uint64)
        if X86:
            fnty = ir.FunctionType(I64, [I64, I64])
            fn = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", fnty=fnty)
            return builder.trunc(builder.call(fn, [builder.zext(seed, I64), word]), I32)
        fn = builder.module.declare_intrinsic("llvm.aarch64.crc32cx", fnty=ir.FunctionType(I32, [I32, I64]))
        return builder.call(fn, [seed, word])

    return types.uint32(seed, word), codegen


HARDWARE_CRC = (X86 and has("sse4.2")) or (ARM and has("crc"))
crc32c = _crc32c_machine if HARDWARE_CRC else crc32c_portable


@intrinsic(prefer_literal=True)
def stack(typingctx, size):
    """The address of ``size`` (a literal) bytes of this kernel's own stack frame, aligned to 64; gone at its return."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    length = size.literal_value

    def codegen(context, builder, signature, args):
        memory = cgutils.alloca_once(builder, ir.ArrayType(I8, length))
        memory.align = 64
        return builder.ptrtoint(memory, I64)

    return types.int64(size), codegen


@intrinsic
def call_stage(typingctx, code, state, burst, n):
    """Call a stage by the address of its code; return what it returned, or -1 - status when it raised.

    ``code`` is :attr:`Stage.address`: a numba function of the signature ``(int64, int64, int64) -> int64``, which by
    numba's own convention returns a status and writes its result through its first argument.
    """

    def codegen(context, builder, signature, args):
        code, *rest = (context.cast(builder, a, s, types.int64) for a, s in zip(args, signature.args, strict=True))
        result = cgutils.alloca_once_value(builder, I64(0))
        excinfo = cgutils.alloca_once_value(builder, ir.Constant(I8.as_pointer(), None))
        fnty = ir.FunctionType(I32, [I64.as_pointer(), I8.as_pointer().as_pointer(), I64, I64, I64])
        status = builder.call(builder.inttoptr(code, fnty.as_pointer()), [result, excinfo, *rest])
        failed = builder.icmp_signed("!=", status, I32(0))
        return builder.select(failed, builder.sub(I64(-1), builder.zext(status, I64)), builder.load(result))

    return types.int64(code, state, burst, n), codegen
