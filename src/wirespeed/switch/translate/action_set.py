"""The action set: what WRITE_ACTIONS put there, in the order in which OpenFlow has it done at the end.

Source: OpenFlow 1.5.1, 5.6: of each kind of action the last one written, set-field and move in the order in which they
were written; a group instead of an output where there is one.
"""

import numpy as np

from wirespeed.jit.intrinsics import copy, load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.switch import program
from wirespeed.switch.translate.translation import SET_WORDS, TOO_LONG, fail

i64, u64 = np.int64, np.uint64
FIRST = np.array(
    [
        program.POP_VLAN,
        program.POP_MPLS,
        program.PUSH_MPLS,
        program.PUSH_VLAN,
        program.DEC_TTL,
        program.DEC_MPLS_TTL,
    ],
    np.int64,
)


@kernel(inline=True)
def _words(head):
    return max(i64(head >> u64(16) & u64(0xFFFF)), i64(1))


@kernel(inline=True)
def _code(head):
    return i64(head & u64(0xFFFF))


@kernel
def write(t, words, n):
    """Append actions, ``n`` words at an address, to the set."""
    if t.n_set + n > SET_WORDS:
        fail(t, i64(TOO_LONG))
        return
    copy(t.set + 8 * t.n_set, words, 8 * n)
    t.n_set += n


@kernel
def _last(t, code):
    """Where the last action of a code begins, in words, or -1."""
    found, at = i64(-1), i64(0)
    while at < t.n_set:
        head = load_u64(t.set + 8 * at)
        if _code(head) == code:
            found = at
        at += _words(head)
    return found


@kernel
def _is_field(code):
    return (
        code == program.SET
        or code == program.MOVE
        or code == program.SET_VLAN_VID
        or code == program.SET_VLAN_PCP
        or code == program.SET_MPLS_TTL
    )


@kernel
def order(t):
    """Write the set's actions into ``ordered``, in their order; return how many words there are, END not among them.

    Room: ``ordered`` is as long as the set, and each action goes there once at most.
    """
    n = i64(0)
    for i in range(len(FIRST)):
        at = _last(t, i64(FIRST[i]))
        if at >= 0:
            words = _words(load_u64(t.set + 8 * at))
            copy(t.ordered + 8 * n, t.set + 8 * at, 8 * words)
            n += words
    at = i64(0)
    while at < t.n_set:
        head = load_u64(t.set + 8 * at)
        if _is_field(_code(head)):
            copy(t.ordered + 8 * n, t.set + 8 * at, 8 * _words(head))
            n += _words(head)
        at += _words(head)
    at = _last(t, i64(program.GROUP))
    if at < 0:
        at = max(_last(t, i64(program.OUTPUT)), _last(t, i64(program.OUTPUT_FIELD)))
        at = max(at, _last(t, i64(program.CONTROLLER)))
    if at < 0:
        at = _last(t, i64(program.RESUBMIT))
    if at >= 0:
        words = _words(load_u64(t.set + 8 * at))
        copy(t.ordered + 8 * n, t.set + 8 * at, 8 * words)
        n += words
    else:
        n = i64(0)  # a set that sends the packet nowhere does nothing at all
    store_u64(t.ordered + 8 * n, u64(program.END))
    return n
