"""Classic BPF programs as machine code: each a function ``(frame, captured, wire) -> u32`` that kernels call by address.

Theory of operation
-------------------
A program is a sequence of (code, jt, jf, k), as libpcap makes it and ``struct sock_filter`` holds it.  It becomes one
function of LLVM's: the accumulator, the index register and the scratch memory are variables on the stack that LLVM turns
into registers, every target of a jump begins a basic block.  A load is compared with ``captured``; one beyond it rejects
the packet (the function returns 0), as do division and remainder by zero.  LLVM leaves out each comparison that a larger
one before it has decided.  That takes some 10 ms; LLVM makes less of an effort at programs of thousands of steps, which
would take it many seconds.  Offsets are added in 64 bits, so that none wraps; a shift by 32 or more leaves 0.

A jump backward, which only libpcap's ``protochain`` makes, is allowed as often as the packet has bytes: a loop that
reads each byte once comes to its end, and any other rejects the packet instead of holding up its worker.

What :func:`compile` returns owns the code and must live as long as a kernel may call it.  Equal programs that are alive
at the same time are one object.

Thread rules: any thread may compile; the code has no state and may run in any number of threads.

*Source:* S. McCanne and V. Jacobson, "The BSD Packet Filter"; libpcap's ``bpf_filter`` and ``bpf_validate``;
Linux, include/uapi/linux/bpf_common.h.
"""

import ctypes
import functools
from collections import deque
from collections.abc import Iterable, Iterator
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from wirespeed.errors import GraphError
from wirespeed.jit.interrupt import deferred

Step = tuple[int, int, int, int]

MOST_STEPS = 1 << 16  # Linux takes 4096 (BPF_MAXINSNS), libpcap in a process any number
EFFORT = {1024: (2, 2), 4096: (1, 2), MOST_STEPS: (0, 0)}  # for programs up to so long: LLVM's levels (passes, code)
CELLS = 16  # BPF_MEMWORDS, include/uapi/linux/filter.h
KEPT = 64  # programs that stay compiled when nobody uses them
WORD = 0xFFFFFFFF

# Codes by what they do; loads with the bytes they read.
ABSOLUTE = {0x20: 4, 0x28: 2, 0x30: 1}
INDEXED = {0x40: 4, 0x48: 2, 0x50: 1}
HEADER_LENGTH = 0xB1  # X = four times the low nibble of a byte, the length of an IPv4 header
IMMEDIATE = {0x00: "A", 0x01: "X"}
LENGTH = {0x80: "A", 0x81: "X"}
RECALL = {0x60: "A", 0x61: "X"}
STORE = {0x02: "A", 0x03: "X"}
ARITHMETIC = {
    0x00: "add", 0x10: "sub", 0x20: "mul", 0x30: "udiv", 0x40: "or", 0x50: "and", 0x60: "shl", 0x70: "lshr",
    0x90: "urem", 0xA0: "xor",
}  # fmt: skip
NEGATE = 0x84
JUMP = 0x05
COMPARE = {0x10: "eq", 0x20: "ugt", 0x30: "uge", 0x40: "set"}
RETURN = {0x06: "K", 0x16: "A"}
TO_INDEX, TO_ACCUMULATOR = 0x07, 0x87
_KNOWN = {
    *ABSOLUTE, *INDEXED, HEADER_LENGTH, *IMMEDIATE, *LENGTH, *RECALL, *STORE, NEGATE, JUMP, *RETURN, TO_INDEX,
    TO_ACCUMULATOR, *(0x04 | op | x for op in ARITHMETIC for x in (0, 8)), *(0x05 | op | x for op in COMPARE for x in (0, 8)),
}  # fmt: skip


def steps(program: Iterable[Any]) -> tuple[Step, ...]:
    """A program as plain numbers, checked; raises :class:`GraphError` and says at which step it is wrong."""
    found = tuple((int(code), int(jt), int(jf), int(k)) for code, jt, jf, k in program)
    if not 1 <= len(found) <= MOST_STEPS:
        raise GraphError(f"a BPF program must have 1 to {MOST_STEPS} steps, got {len(found)}")
    if found[-1][0] not in RETURN:
        raise GraphError(f"a BPF program must end in a return, got code {found[-1][0]:#x}")
    for i, step in enumerate(found):
        if wrong := _fault(i, step, len(found)):
            raise GraphError(f"BPF program, step {i}, {{{step[0]:#x}, {step[1]}, {step[2]}, {step[3]:#x}}}: {wrong}")
    return found


def _fault(i: int, step: Step, length: int) -> str | None:
    code, jt, jf, k = step
    if code not in _KNOWN:
        return "there is no such code"
    if not (0 <= k <= WORD and 0 <= jt < 256 and 0 <= jf < 256):
        return "k must fit into 32 bits, jt and jf into 8"
    if (code in RECALL or code in STORE) and k >= CELLS:
        return f"there are {CELLS} cells of memory, the last is {CELLS - 1}"
    if code in (0x34, 0x94) and k == 0:
        return "it divides by zero"
    if any(not target < length for target in targets(i, step)):
        return f"it jumps out of the program, which has {length} steps"
    return None


def targets(i: int, step: Step) -> tuple[int, ...]:
    """Where a step may lead other than by returning: the next one, or those that a jump names."""
    code, jt, jf, k = step
    if code == JUMP:
        return (i + 1 + k & WORD,)
    if code & 7 == 5:
        return i + 1 + jt, i + 1 + jf
    return () if code in RETURN else (i + 1,)


def loops(program: Iterable[Step]) -> bool:
    """Whether a checked program jumps back."""
    return any(target <= i for i, step in enumerate(program) for target in targets(i, step))


class MachineCode:
    """A compiled program; its code lives as long as this object."""

    def __init__(self, program: tuple[Step, ...]) -> None:
        self.program = program
        module, machine = _optimised(program)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self.address: int = self._engine.get_function_address("filter")
        self._call = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)(self.address)

    def __call__(self, frame: bytes, wire: int | None = None) -> int:
        """What the program says of a frame that had ``wire`` bytes when it was captured (as many as it has now)."""
        return int(self._call(frame, len(frame), len(frame) if wire is None else wire))


_alive: WeakValueDictionary[tuple[Step, ...], MachineCode] = WeakValueDictionary()
_recent: deque[MachineCode] = deque(maxlen=KEPT)
_lock = RLock()


def compile(program: Iterable[Any]) -> MachineCode:
    """Machine code of a program; raises :class:`GraphError` for one that is not valid."""
    checked = steps(program)
    with _lock:
        code = _alive.get(checked)
        if code is None:
            with deferred:
                code = _alive[checked] = MachineCode(checked)
            _recent.append(code)
        return code


def assembly(program: Iterable[Any]) -> str:
    """The machine code of a program, as text."""
    module, machine = _optimised(steps(program))
    return str(machine.emit_assembly(module))


def intermediate(program: Iterable[Any]) -> str:
    """LLVM's code of a program after optimisation, as text."""
    return str(_optimised(steps(program))[0])


@functools.cache
def _target() -> tuple[Any, str, str]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _optimised(program: tuple[Step, ...]) -> tuple[Any, Any]:
    """The program as a module of LLVM's, and the machine that it was optimised for."""
    target, cpu, features = _target()
    passes, level = next(levels for most, levels in EFFORT.items() if len(program) <= most)
    machine = target.create_target_machine(cpu, features, opt=level, reloc="default", codemodel="jitdefault", jit=True)
    module = llvm.parse_assembly("\n".join(_function(program)))
    module.triple = llvm.get_default_triple()
    tuning = llvm.create_pipeline_tuning_options(speed_level=passes)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def _function(program: tuple[Step, ...]) -> Iterator[str]:
    """The lines of the function, with a block for each target of a jump."""
    variables = ["A", "X", *(f"M{k}" for k in range(CELLS))]
    yield "define i32 @filter(ptr nocapture readonly %frame, i64 %captured, i64 %wire) nounwind {"
    for name in variables:
        yield f"%{name} = alloca i32"
        yield f"store i32 0, ptr %{name}"
    yield "%turns = alloca i64"
    yield "store i64 %captured, ptr %turns"
    yield "br label %step0"
    begins = {0} | {t for i, step in enumerate(program) if step[0] & 7 == 5 for t in targets(i, step)}
    open_block = False
    for i, step in enumerate(program):
        if i in begins:
            if open_block:
                yield f"br label %step{i}"
            yield f"step{i}:"
        elif not open_block:
            yield f"step{i}:"  # nothing leads here; LLVM takes it out
        yield from _step(i, step)
        open_block = step[0] & 7 not in (5, 6)
    yield "reject:"
    yield "ret i32 0"
    yield "}"
    yield "declare i16 @llvm.bswap.i16(i16)"
    yield "declare i32 @llvm.bswap.i32(i32)"


def _step(i: int, step: Step) -> Iterator[str]:
    """The lines of one step; names that end in its number are its own."""
    code, _, _, k = step
    if code in ABSOLUTE:
        yield from _load(i, ABSOLUTE[code], str(k))
    elif code in INDEXED:
        yield f"%x{i} = load i32, ptr %X"
        yield f"%wide{i} = zext i32 %x{i} to i64"
        yield f"%at{i} = add nuw nsw i64 %wide{i}, {k}"
        yield from _load(i, INDEXED[code], f"%at{i}")
    elif code == HEADER_LENGTH:
        yield from _in_range(i, 1, str(k))
        yield f"%p{i} = getelementptr i8, ptr %frame, i64 {k}"
        yield f"%b{i} = load i8, ptr %p{i}"
        yield f"%n{i} = and i8 %b{i}, 15"
        yield f"%z{i} = zext i8 %n{i} to i32"
        yield f"%v{i} = shl i32 %z{i}, 2"
        yield f"store i32 %v{i}, ptr %X"
    elif code in IMMEDIATE:
        yield f"store i32 {k}, ptr %{IMMEDIATE[code]}"
    elif code in LENGTH:
        yield f"%v{i} = trunc i64 %wire to i32"
        yield f"store i32 %v{i}, ptr %{LENGTH[code]}"
    elif code in RECALL:
        yield f"%v{i} = load i32, ptr %M{k}"
        yield f"store i32 %v{i}, ptr %{RECALL[code]}"
    elif code in STORE:
        yield f"%v{i} = load i32, ptr %{STORE[code]}"
        yield f"store i32 %v{i}, ptr %M{k}"
    elif code in (TO_INDEX, TO_ACCUMULATOR):
        yield f"%v{i} = load i32, ptr %{'A' if code == TO_INDEX else 'X'}"
        yield f"store i32 %v{i}, ptr %{'X' if code == TO_INDEX else 'A'}"
    elif code in RETURN:
        yield f"%v{i} = load i32, ptr %A"
        yield f"ret i32 {'%v' + str(i) if RETURN[code] == 'A' else k}"
    elif code & 7 == 4:
        yield from _arithmetic(i, code, k)
    elif code == JUMP:
        yield from _jump(i, targets(i, step)[0])
    else:
        yield from _compare(i, step)


def _in_range(i: int, size: int, at: str) -> Iterator[str]:
    """Leave by rejecting unless ``size`` bytes from ``at`` were captured; ``at`` and ``captured`` are below 2^33."""
    if at.isdecimal():
        yield f"%ok{i} = icmp uge i64 %captured, {int(at) + size}"
    else:
        yield f"%end{i} = add nuw nsw i64 {at}, {size}"
        yield f"%ok{i} = icmp uge i64 %captured, %end{i}"
    yield f"br i1 %ok{i}, label %load{i}, label %reject"
    yield f"load{i}:"


def _load(i: int, size: int, at: str) -> Iterator[str]:
    """A load of bytes in network order into A."""
    bits = 8 * size
    yield from _in_range(i, size, at)
    yield f"%p{i} = getelementptr i8, ptr %frame, i64 {at}"
    yield f"%b{i} = load i{bits}, ptr %p{i}, align 1"
    value = f"%b{i}"
    if size > 1:
        yield f"%s{i} = call i{bits} @llvm.bswap.i{bits}(i{bits} %b{i})"
        value = f"%s{i}"
    if size < 4:
        yield f"%z{i} = zext i{bits} {value} to i32"
        value = f"%z{i}"
    yield f"store i32 {value}, ptr %A"


def _arithmetic(i: int, code: int, k: int) -> Iterator[str]:
    """A = A op k, A op X, or -A."""
    yield f"%a{i} = load i32, ptr %A"
    if code == NEGATE:
        yield f"%v{i} = sub i32 0, %a{i}"
        yield f"store i32 %v{i}, ptr %A"
        return
    name, operand = ARITHMETIC[code & 0xF0], str(k)
    if code & 8:
        operand = f"%x{i}"
        yield f"{operand} = load i32, ptr %X"
    if name in ("udiv", "urem"):
        yield f"%ok{i} = icmp ne i32 {operand}, 0"
        yield f"br i1 %ok{i}, label %divide{i}, label %reject"
        yield f"divide{i}:"
    if name in ("shl", "lshr"):
        yield f"%by{i} = and i32 {operand}, 31"
        yield f"%s{i} = {name} i32 %a{i}, %by{i}"
        yield f"%in{i} = icmp ult i32 {operand}, 32"
        yield f"%v{i} = select i1 %in{i}, i32 %s{i}, i32 0"
    else:
        yield f"%v{i} = {name} i32 %a{i}, {operand}"
    yield f"store i32 %v{i}, ptr %A"


def _jump(i: int, target: int) -> Iterator[str]:
    """A jump, which uses up one of the packet's turns when it leads back."""
    if target <= i:
        yield f"%t{i} = load i64, ptr %turns"
        yield f"%left{i} = sub i64 %t{i}, 1"
        yield f"store i64 %left{i}, ptr %turns"
        yield f"%ok{i} = icmp sgt i64 %t{i}, 0"
        yield f"br i1 %ok{i}, label %step{target}, label %reject"
    else:
        yield f"br label %step{target}"


def _compare(i: int, step: Step) -> Iterator[str]:
    """A jump by a comparison of A with k or X."""
    code, _, _, k = step
    true, false = targets(i, step)
    yield f"%a{i} = load i32, ptr %A"
    operand = str(k)
    if code & 8:
        operand = f"%x{i}"
        yield f"{operand} = load i32, ptr %X"
    relation = COMPARE[code & 0xF0]
    if relation == "set":
        yield f"%m{i} = and i32 %a{i}, {operand}"
        yield f"%c{i} = icmp ne i32 %m{i}, 0"
    else:
        yield f"%c{i} = icmp {relation} i32 %a{i}, {operand}"
    yield f"br i1 %c{i}, label %step{true}, label %step{false}"


@intrinsic
def call_filter(typingctx, code, frame, captured, wire):
    """Call a program by the address of its code; 0 means that it rejects the frame.

    ``frame`` is the address of ``captured`` bytes, of ``wire`` that there were; both are from 0 to 2^32 - 1.
    """

    def codegen(context, builder, signature, args):
        code, *rest = (context.cast(builder, a, s, types.int64) for a, s in zip(args, signature.args, strict=True))
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word, word, word])
        return builder.call(builder.inttoptr(code, kind.as_pointer()), rest)

    return types.uint32(code, frame, captured, wire), codegen
