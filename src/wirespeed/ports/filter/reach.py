"""How far into a frame a program can look: so much of a packet in several segments must lie in one piece for it.

Theory of operation
-------------------
One pass over the program keeps, for each step, the largest values that the accumulator, the index register and the cells
of memory can have when it is reached; a load then reads at most so far.  Where jumps meet, the larger bound is taken.
Jumps lead forward, so one pass is enough; a program that jumps back may look anywhere.
"""

from collections.abc import Callable, Iterable

from wirespeed.jit import bpf

MOST = 1 << 17  # bytes of a packet in several segments that any program is shown; what is behind them counts as cut off
Bounds = tuple[int, ...]  # of A, of X, and of each cell


def reach(program: Iterable[tuple[int, int, int, int]]) -> int:
    """Bytes from the front of a frame that a program may look at, at most :data:`MOST`."""
    steps = bpf.steps(program)
    if bpf.loops(steps):
        return MOST
    bounds: dict[int, Bounds] = {0: (0,) * (2 + bpf.CELLS)}
    furthest = 0
    for i, step in enumerate(steps):
        if i not in bounds:
            continue  # nothing leads there
        furthest = max(furthest, _read_to(step, bounds[i]))
        after = _after(step, bounds[i])
        for target in bpf.targets(i, step):
            known = bounds.get(target, after)
            bounds[target] = tuple(map(max, known, after))
    return min(furthest, MOST)


def _read_to(step: bpf.Step, bounds: Bounds) -> int:
    code, _, _, k = step
    if code == bpf.HEADER_LENGTH:
        return k + 1
    if code in bpf.ABSOLUTE:
        return k + bpf.ABSOLUTE[code]
    return bounds[1] + k + bpf.INDEXED[code] if code in bpf.INDEXED else 0


def _after(step: bpf.Step, bounds: Bounds) -> Bounds:
    """The bounds behind a step."""
    code, _, _, k = step
    a, x, *cells = bounds
    if size := bpf.ABSOLUTE.get(code) or bpf.INDEXED.get(code):
        a = (1 << 8 * size) - 1
    elif code == bpf.HEADER_LENGTH:
        x = 60
    elif code == bpf.TO_INDEX:
        x = a
    elif code == bpf.TO_ACCUMULATOR:
        a = x
    elif code in bpf.STORE:
        cells[k] = a if bpf.STORE[code] == "A" else x
    elif code & 7 == 4:
        a = _arithmetic(code, a, x if code & 8 else k)
    elif code & 7 in (0, 1):
        value = cells[k] if code in bpf.RECALL else k if code in bpf.IMMEDIATE else bpf.WORD
        a, x = (value, x) if code & 7 == 0 else (a, value)
    return (a, x, *cells)


def _arithmetic(code: int, a: int, b: int) -> int:
    """The most that A op b can be, for values up to ``a`` and ``b``; a constant is exactly ``b``."""
    if code == bpf.NEGATE:
        return bpf.WORD
    name, constant = bpf.ARITHMETIC[code & 0xF0], not code & 8
    if name in ("udiv", "urem", "lshr", "shl") and not constant:
        most = bpf.WORD if name == "shl" else a
    elif name in ("or", "xor"):
        most = (1 << max(a.bit_length(), b.bit_length())) - 1
    else:
        most = _OPERATIONS[name](a, b)
    return most if most <= bpf.WORD else bpf.WORD


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: bpf.WORD,  # it may wrap
    "mul": lambda a, b: a * b,
    "and": min,
    "udiv": lambda a, b: a // b,
    "urem": lambda a, b: min(a, b - 1),
    "lshr": lambda a, b: a >> min(b, 32),
    "shl": lambda a, b: a << min(b, 32),
}
