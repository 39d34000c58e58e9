"""The interpreter: look-ups, a rule's actions one after the other, and what they call, without recursion.

Theory of operation
-------------------
What is being done is a stack of frames.  A look-up that finds a rule puts a frame for its actions on top, and so do
buckets and copies; a frame that is at its end is taken off, and what it saved comes back.  When the stack is empty the
action set is done, once.  What lies behind the last op that anybody sees is cut off.

Bounds: words are read at addresses that the control path gave (programs end with END), at most ``resubmits`` look-ups
are made, ``depth`` of them one in another, and no buffer grows beyond its size: then the translation fails, and the
packet is dropped with a reason.

Source: OpenFlow 1.5.1, 5; what resubmit does, ovs-actions(7).
"""

import numpy as np

from wirespeed.jit.intrinsics import fill, load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.switch import ops as op
from wirespeed.switch import program
from wirespeed.switch.fields import (
    FRAG_ANY,
    FRAG_SHIFT,
    HEADER_WORDS,
    IN_PORT,
    TABLE,
    TCI_PRESENT,
    W_DST,
    W_METADATA,
    W_MPLS,
    W_PORT,
    W_TRANSPORT,
)
from wirespeed.switch.memory import (
    MOST_TABLE,
    PORT,
    TABLE_RECORD,
    PortRecord,
    RuleRecord,
    Shared,
    TableRecord,
)
from wirespeed.switch.ops import ACTION, ACTION_SET_REASON, INVALID_TTL, NO_MATCH
from wirespeed.switch.translate.action_set import order, write
from wirespeed.switch.translate.edit import (
    decrement_label_ttl,
    decrement_ttl,
    is_there,
    know,
    pop_label,
    pop_tag,
    push_label,
    push_tag,
    set_bits,
    set_tag,
)
from wirespeed.switch.translate.group import begin_copy, end_copy, group, next_bucket
from wirespeed.switch.translate.output import in_port, output, tell
from wirespeed.switch.translate.translation import (
    ACTION_SET,
    BAD_STACK,
    BUCKET,
    BUCKETS,
    COPY,
    FRAME,
    FRAMES,
    NO_RULE,
    RULE,
    STACK_TOO_DEEP,
    STACK_WORDS,
    TOO_DEEP,
    TOO_MANY,
    TOO_MANY_LABELS,
    Frame,
    Translation,
    count,
    fail,
    put,
    seen,
)
from wirespeed.tables.classifier.entry import Entry
from wirespeed.tables.classifier.search import lookup

i64, u32, u64 = np.int64, np.uint32, np.uint64
SAME_TABLE = 255
IP_NEEDED, MPLS_NEEDED = program.NEEDS_NUMBER["ip any"], program.NEEDS_NUMBER["mpls"]
MPLS_TTL_PLACE = program.place(W_MPLS, 0, 8)
_TCI = u64(0xFFFF)


@kernel(inline=True)
def _bits(n):
    return ~u64(0) if n >= 64 else (u64(1) << u64(n)) - u64(1)


@kernel
def read_place(t, place):
    """The bits of the flow at a place."""
    word, shift, n = place & 0xFF, place >> 8 & 0xFF, place >> 16 & 0xFF
    know(t)
    return load_u64(t.flow + 8 * word) >> u64(shift) & _bits(n)


@kernel
def _write_bits(t, word, value, mask):
    if word == W_DST and mask & _TCI:
        set_tag(t, value, mask & _TCI)
        mask &= ~_TCI
    if mask:
        set_bits(t, word, value, mask)


@kernel
def _write_place(t, place, value, needs):
    word, shift, n = place & 0xFF, place >> 8 & 0xFF, place >> 16 & 0xFF
    if is_there(t, needs):
        _write_bits(t, word, value << u64(shift), _bits(n) << u64(shift))


@kernel
def _push_frame(t, pc, limit, kind, cookie):
    if t.n_frames >= FRAMES:
        t.gives_up = TOO_DEEP
        return
    f = Frame(t.frames + FRAME * t.n_frames)
    t.n_frames += 1
    f.pc, f.limit, f.kind, f.table, f.saved = pc, limit, u32(kind), u32(t.table), i64(0)
    f.cookie, f.depth = cookie, t.depth


@kernel
def look_up_in(t, table, number, honest):
    """Look up in a table, as if the packet had come in by port ``number``, and begin what is found.

    ``honest`` says that a table without a match does what it is configured to do; a resubmit's does nothing.
    """
    shared = Shared(t.shared)
    t.lookups += 1
    if t.lookups > shared.resubmits:
        t.gives_up = TOO_MANY
        return
    know(t)
    before = load_u64(t.flow + 8 * W_PORT)
    if number != in_port(t):
        store_u64(t.flow + 8 * W_PORT, before & ~u64(0xFFFFFFFF) | u64(number))
    ports = load_u64(t.flow + 8 * W_TRANSPORT)
    if before & u64(FRAG_ANY << FRAG_SHIFT):
        # So that all fragments of a datagram meet the same rules, the first one's ports are not looked at either.
        store_u64(t.flow + 8 * W_TRANSPORT, ports & u64(0xFFFFFFFF))
    rule = i64(0)
    while True:
        record = TableRecord(shared.tables + TABLE_RECORD * table)
        entry = i64(0)
        if record.classifier != 0:
            entry = lookup(record.classifier, t.flow, t.version)
        if entry != 0:
            rule = Entry(entry).data
            break
        count(t, table)  # the counters before the first rule's are those of look-ups without a match
        if not honest or record.miss != 1 or table >= MOST_TABLE:
            break
        table += 1
    store_u64(t.flow + 8 * W_PORT, before)
    store_u64(t.flow + 8 * W_TRANSPORT, ports)
    if rule != 0:
        r = RuleRecord(rule)
        count(t, r.rule)
        deeper = i64(1) if table <= t.table else i64(0)
        if t.depth + deeper > shared.depth:
            t.gives_up = TOO_DEEP
            return
        _push_frame(t, r.program, i64(0), i64(RULE), r.cookie)
        t.depth += deeper
        t.table = table
        if t.n_frames > 0:
            Frame(t.frames + FRAME * (t.n_frames - 1)).table = u32(table)
    elif honest:
        if TableRecord(shared.tables + TABLE_RECORD * table).miss == 2:
            caller, t.table = t.table, table
            tell(t, i64(0xFFFF), i64(NO_MATCH), i64(0), ~u64(0))
            t.table = caller
        elif t.effect == 0:
            t.fault = NO_RULE


@kernel
def _resubmit(t, argument, table):
    number = in_port(t) if argument == IN_PORT else argument
    look_up_in(t, t.table if table == SAME_TABLE else table, number, False)


@kernel
def _move(t, source, target):
    needs, source_needs = target >> 32 & 0xFF, target >> 40 & 0xFF
    if is_there(t, source_needs):
        _write_place(t, target & 0xFFFFFFFF, read_place(t, source), needs)


@kernel
def _push_field(t, place):
    if t.n_stack >= STACK_WORDS:
        fail(t, i64(STACK_TOO_DEEP))
        return
    store_u64(t.stack + 8 * t.n_stack, read_place(t, place))
    t.n_stack += 1


@kernel
def _pop_field(t, place, needs):
    if t.n_stack == 0:
        fail(t, i64(BAD_STACK))
        return
    t.n_stack -= 1
    _write_place(t, place, load_u64(t.stack + 8 * t.n_stack), needs)


@kernel
def _set_tag_part(t, value, mask):
    if load_u64(t.flow + 8 * W_DST) & u64(TCI_PRESENT) == u64(0):
        set_tag(t, value | u64(TCI_PRESENT), _TCI)
    else:
        set_tag(t, value, mask)


@kernel
def _change(t, code, argument, at):
    """An action that changes the packet or the flow; False for any other."""
    if code == program.SET:
        if is_there(t, argument >> 8 & 0xFF):
            _write_bits(t, argument & 0xFF, load_u64(at), load_u64(at + 8))
    elif code == program.MOVE:
        _move(t, argument, i64(load_u64(at)))
    elif code == program.PUSH_VLAN:
        push_tag(t, argument)
    elif code == program.POP_VLAN:
        pop_tag(t)
    elif code == program.SET_VLAN_VID:
        _set_tag_part(t, u64(argument), u64(0x0FFF))
    elif code == program.SET_VLAN_PCP:
        _set_tag_part(t, u64(argument) << u64(13), u64(0xE000))
    elif code == program.PUSH_MPLS:
        push_label(t, argument)
    elif code == program.POP_MPLS:
        pop_label(t, argument)
    elif code == program.SET_MPLS_TTL:
        _write_place(t, i64(MPLS_TTL_PLACE), u64(argument), i64(MPLS_NEEDED))
    elif code == program.WRITE_METADATA:
        set_bits(t, i64(W_METADATA), load_u64(at), load_u64(at + 8))
    elif code == program.PUSH_FIELD:
        _push_field(t, argument)
    elif code == program.POP_FIELD:
        _pop_field(t, argument, i64(load_u64(at)))
    else:
        return False
    return True


@kernel
def _go_on(t, f, code, argument, at, words):
    """Any other action."""
    if code == program.OUTPUT:
        if argument == TABLE:
            look_up_in(t, i64(0), in_port(t), False)
        else:
            output(t, argument, i64(load_u64(at)), i64(ACTION_SET_REASON) if t.in_set else i64(ACTION), f.cookie)
    elif code == program.OUTPUT_FIELD:
        number = read_place(t, argument)
        if number <= u64(0xFFFF):  # a port, or one of the reserved ones in the 16 bits that these had once
            wide = number | u64(0xFFFF0000) if number >= u64(0xFFF8) else number
            output(t, i64(wide), i64(load_u64(at)), i64(ACTION), f.cookie)
    elif code == program.CONTROLLER:
        extra = load_u64(at)
        tell(t, argument, i64(extra & u64(0xFF)), i64(extra >> u64(32)), f.cookie)
    elif code == program.GOTO:
        look_up_in(t, argument, in_port(t), True)
    elif code == program.RESUBMIT:
        _resubmit(t, argument, i64(load_u64(at)))
    elif code == program.GROUP:
        group(t, argument, f.cookie)
    elif code == program.METER:
        put(t, op.METER | 1 << 16 | argument << 32)
        t.edits += 1  # a packet that it stops goes no further in its own copy only
        seen(t)
        t.edits += 1  # a copy that a meter drops is no reason to drop the packet
    elif code == program.WRITE_ACTIONS:
        write(t, at, words - 1)
    elif code == program.CLEAR_ACTIONS:
        t.n_set = 0
    elif code == program.CLONE:
        begin_copy(t, at, at + 8 * (words - 1), i64(COPY), f.cookie)
    elif code == program.DEC_TTL:
        if (is_there(t, i64(IP_NEEDED))) and not decrement_ttl(t):
            tell(t, i64(0xFFFF), i64(INVALID_TTL), i64(0), f.cookie)
            f.limit = f.pc  # nothing behind it is done
    elif code == program.DEC_MPLS_TTL:
        if is_there(t, i64(MPLS_NEEDED)) and not decrement_label_ttl(t):
            tell(t, i64(0xFFFF), i64(INVALID_TTL), i64(0), f.cookie)
            f.limit = f.pc
    elif code == program.EXIT:
        t.ended = 1


@kernel
def _leave(t, frame):
    """Take the top frame off."""
    f = Frame(frame)
    t.n_frames -= 1
    if f.saved != 0:
        end_copy(t, frame)
    t.depth = f.depth
    if t.n_frames > 0:
        t.table = i64(Frame(frame - FRAME).table)


@kernel
def _give_up(t, frame):
    """Take the top frame off: for too many labels up to a bucket, behind which things go on, else to the end of all."""
    if Frame(frame).kind == BUCKET and t.gives_up == TOO_MANY_LABELS:
        t.gives_up = 0
    _leave(t, frame)


@kernel
def _step(t):
    """Do one action of the top frame, or take it off."""
    frame = t.frames + FRAME * (t.n_frames - 1)
    f = Frame(frame)
    if t.gives_up != 0:
        _give_up(t, frame)
        return
    if f.kind == BUCKETS:
        if t.ended or not next_bucket(t, frame):
            _leave(t, frame)
        return
    at = f.pc
    head = load_u64(at) if f.limit == 0 or at < f.limit else u64(program.END)
    code = i64(head & u64(0xFFFF))
    if code == program.END or t.ended:
        _leave(t, frame)
        return
    words = max(i64(head >> u64(16) & u64(0xFFFF)), i64(1))
    f.pc = at + 8 * words
    argument = i64(head >> u64(32))
    if not _change(t, code, argument, at + 8):
        _go_on(t, f, code, argument, at + 8, words)


@kernel
def _start(t):
    t.n_ops, t.n_counters, t.cacheable, t.mirrored, t.fault = i64(0), i64(0), i64(1), i64(0), i64(0)
    t.n_frames, t.n_saves, t.n_set, t.n_stack = i64(0), i64(0), i64(0), i64(0)
    t.depth, t.lookups, t.effect, t.edits, t.ttl_steps = i64(0), i64(0), i64(0), i64(0), i64(0)
    t.popped, t.unknown, t.table, t.in_set, t.ended = i64(0), i64(0), i64(-1), i64(0), i64(0)
    t.gives_up, t.kept = i64(0), i64(0)
    fill(t.dirty, 0, 8 * HEADER_WORDS)


@kernel
def translate(address):
    """Translate the flow of a translation; its result is what the layout calls so."""
    t = Translation(address)
    _start(t)
    if PortRecord(Shared(t.shared).ports + PORT * t.place).mirrors_in != 0:
        t.mirrored = 1
    look_up_in(t, i64(0), in_port(t), True)
    while True:
        while t.n_frames > 0:
            _step(t)
        if t.gives_up != 0:
            fail(t, t.gives_up)
        if t.n_set == 0 or t.in_set or t.fault > NO_RULE:
            break
        t.in_set, t.ended = 1, 0
        order(t)
        _push_frame(t, t.ordered, i64(0), i64(ACTION_SET), ~u64(0))
    if t.fault > NO_RULE:
        t.effect = t.kept
    t.n_ops = t.effect
    if t.effect == 0:
        put(t, op.DROP | 1 << 16 | t.fault << 32)
    put(t, op.END)
