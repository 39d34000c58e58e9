"""Eight lanes at once: which of them have a number.

One source for every machine: LLVM makes of the vector comparison what the processor has (AVX-512, AVX2, SSE2, NEON).
The portable twin does it lane by lane and is tested equal; ``WIRESPEED_PORTABLE=1`` selects it.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from wirespeed.jit.intrinsics import load_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.machine import PORTABLE

LANES = 8
u32, i64, u64 = np.uint32, np.int64, np.uint64
_I32, _I64, _WORDS = ir.IntType(32), ir.IntType(64), ir.VectorType(ir.IntType(32), 2 * LANES)
_UPPER = sum(2 << 2 * lane for lane in range(LANES))  # the upper half of each lane, as a number of 32-bit words


@intrinsic
def _upper_lanes_vector(typingctx, at, value):
    def codegen(context, builder, signature, args):
        at = context.cast(builder, args[0], signature.args[0], types.int64)
        wanted = context.cast(builder, args[1], signature.args[1], types.uint32)
        words = builder.load(builder.inttoptr(at, _WORDS.as_pointer()), align=64)
        one = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), wanted, _I32(0))
        splat = builder.shuffle_vector(one, ir.Constant(_WORDS, ir.Undefined), ir.Constant(_WORDS, [0] * 2 * LANES))
        bits = builder.bitcast(builder.icmp_unsigned("==", words, splat), ir.IntType(2 * LANES))
        return builder.and_(builder.zext(bits, _I64), _I64(_UPPER))

    return types.int64(at, value), codegen


@kernel(inline=True)
def upper_lanes_portable(at, value):
    """Bit 2 k + 1 is set when the upper half of the u8 number k, of the eight at ``at`` (64-byte aligned), is ``value``."""
    bits = i64(0)
    for lane in range(LANES):
        if u32(load_u64(at + 8 * lane) >> u64(32)) == u32(value):
            bits |= i64(2) << 2 * lane
    return bits


upper_lanes = upper_lanes_portable if PORTABLE else _upper_lanes_vector
