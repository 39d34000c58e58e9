"""What a translation works on: the flow, the ops made so far, and the frames that it will come back to."""

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.jit.intrinsics import store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.switch.fields import HEADER_WORDS, WORDS
from wirespeed.switch.path import OPS_WORDS, PATH_COUNTERS

i64, u32, u64 = np.int64, np.uint32, np.uint64
FRAMES = 4200  # more than a packet may have look-ups
SAVES = 64  # copies of the flow, one in another
SAVED_FLOW = 8 * WORDS  # of a copy: the flow, what of it is dirty, then what is known of time to live and labels
SAVED_KNOWN = SAVED_FLOW + 8 * HEADER_WORDS
SAVED_SIZE = SAVED_KNOWN + 64
SET_WORDS = 1024  # each of 253 tables may write an action or two
STACK_WORDS = 64
COUNTERS = 4600  # of one translation; those of a path are fewer
ALL_OPS = 4096

# A rule's or bucket's actions, of which so much is done; ``saved`` is where the flow is kept that comes back behind it.
# BUCKETS stands for a group for all: ``pc`` is its place, and ``limit`` buckets were begun.
RULE, BUCKET, COPY, ACTION_SET, BUCKETS = 0, 1, 2, 3, 4
Frame = layout(
    "SwitchFrame",
    [
        ("pc", "i8"),  # address of the next word
        ("limit", "i8"),  # address behind its last word, or 0 where END ends it
        ("kind", "u4"),
        ("table", "u4"),
        ("saved", "i8"),
        ("clone_at", "i8"),  # where among the ops its CLONE stands
        ("cookie", "u8"),
        ("depth", "i8"),  # of look-ups one in another, before it
        ("edits", "i8"),  # how many edits there were before it
    ],
)
assert Frame.size == 64
FRAME = Frame.size

# Why a packet is dropped by the translation, as far as it is known.
NO_RULE, TOO_DEEP, TOO_MANY, TOO_LONG, TOO_MANY_LABELS, STACK_TOO_DEEP, BAD_STACK = 1, 2, 3, 4, 5, 6, 7

Translation = layout(
    "SwitchTranslation",
    [
        # filled by the caller
        ("shared", "i8"),
        ("version", "i8"),
        ("flow", "i8"),
        ("handle", "i8"),  # the packet, for what its flow does not tell
        ("place", "i8"),  # of the port that it came in by
        # the result
        ("ops", "i8"),  # address of the words
        ("n_ops", "i8"),  # words, END included
        ("counters", "i8"),  # address of u4[n_counters]
        ("n_counters", "i8"),
        ("cacheable", "i8"),  # whether all packets with this key are treated alike
        ("mirrored", "i8"),  # whether a mirror may be concerned
        ("fault", "i8"),  # why nothing is sent, or 0
        # work
        ("dirty", "i8"),  # u8[HEADER_WORDS]: bits of the flow that the packet has not got yet
        ("frames", "i8"),
        ("n_frames", "i8"),
        ("saves", "i8"),
        ("n_saves", "i8"),
        ("set", "i8"),  # address of the action set's words, in the order in which they were written
        ("n_set", "i8"),
        ("ordered", "i8"),  # and in the order in which they are done
        ("stack", "i8"),
        ("n_stack", "i8"),
        ("depth", "i8"),
        ("lookups", "i8"),
        ("effect", "i8"),  # words up to the last op that somebody sees
        ("edits", "i8"),  # ops that change the packet
        ("ttl_steps", "i8"),  # times that the time to live was decremented
        ("popped", "i8"),  # labels that were taken off
        ("unknown", "i8"),  # whether what is behind the labels is yet to be looked at
        ("table", "i8"),  # that of the rule that is being done
        ("in_set", "i8"),  # whether the action set is being done
        ("ended", "i8"),
        ("gives_up", "i8"),  # why what is done ends: a bucket, or else all
        ("kept", "i8"),  # words of ops that a failure leaves
        (None, 48),
    ],
)
assert Translation.size % 64 == 0


def make(arena: Arena, shared: int) -> int:
    """The address of a translation for one worker."""
    address = arena.alloc(Translation.size)
    t = Translation.at(address)
    t.shared = shared
    t.ops, t.counters = arena.alloc(8 * (ALL_OPS + 16)), arena.alloc(4 * COUNTERS)
    t.dirty, t.frames = arena.alloc(8 * HEADER_WORDS), arena.alloc(FRAME * FRAMES)
    t.saves, t.stack = arena.alloc(SAVED_SIZE * SAVES), arena.alloc(8 * STACK_WORDS)
    t.set, t.ordered = arena.alloc(8 * SET_WORDS), arena.alloc(8 * (SET_WORDS + 8))
    return address


SIZE = 8 * (ALL_OPS + 16) + 4 * COUNTERS + FRAME * FRAMES + SAVED_SIZE * SAVES + (1 << 14)
"""Bytes of an arena that :func:`make` takes, at most."""


@kernel(inline=True)
def fail(t, why):
    """End the translation: nothing is sent, but for what was before a select group."""
    t.fault = why
    t.n_frames = 0


@kernel(inline=True)
def count(t, counter):
    """Note a counter that the packet adds to."""
    if t.n_counters < COUNTERS:
        store_u32(t.counters + 4 * t.n_counters, u32(counter))
        t.n_counters += 1
    if t.n_counters > PATH_COUNTERS:
        t.cacheable = 0


@kernel(inline=True)
def put(t, word):
    """Append a word to the ops."""
    if t.n_ops >= ALL_OPS:
        fail(t, i64(TOO_LONG))
        return
    store_u64(t.ops + 8 * t.n_ops, u64(word))
    t.n_ops += 1
    if t.n_ops > OPS_WORDS - 8:
        t.cacheable = 0


@kernel(inline=True)
def seen(t):
    """All ops so far matter: the last one is seen from outside."""
    t.effect = t.n_ops
