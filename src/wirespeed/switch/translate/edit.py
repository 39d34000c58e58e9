"""Changes of the packet while it is translated: they are made to the flow at once, to the packet only before it is seen.

Theory of operation
-------------------
``dirty`` has the bits of the flow's header words that the packet has not got yet.  :func:`commit` makes EDIT ops of
them, one for each word, so that several changes of a header are one.  A tag that appears or goes by a change of its
control information is pushed or popped there.  What changes where headers are (tags, labels) is an op at once, behind
a commit.
"""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.jit.intrinsics import fill, load_u64, stack, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.switch import ops as op
from wirespeed.switch import program
from wirespeed.switch.extract import TAG, parse, parse_behind
from wirespeed.switch.fields import (
    ARP,
    ETH_TYPE_SHIFT,
    FLOW_SIZE,
    FRAG_LATER,
    FRAG_SHIFT,
    HEADER_WORDS,
    ICMP,
    ICMPV6,
    IP,
    IPV6,
    MPLS,
    MPLS_MULTICAST,
    MPLS_TTL_FLOOR_SHIFT,
    NEIGHBOR_ADVERT,
    NEIGHBOR_SOLICIT,
    PROTO_SHIFT,
    RARP,
    SCTP,
    TCI_PRESENT,
    TCP,
    TP_DST_SHIFT,
    TP_SRC_SHIFT,
    TPID2_SHIFT,
    TPID_SHIFT,
    TTL_FLOOR_MOST,
    TTL_FLOOR_SHIFT,
    TTL_SHIFT,
    UDP,
    W_ADDRESSES,
    W_DERIVED,
    W_DST,
    W_LABEL,
    W_MPLS,
    W_MPLS2,
    W_PORT,
    W_SHA,
    W_SRC,
    W_THA,
    W_TRANSPORT,
)
from wirespeed.switch.translate.translation import TOO_MANY_LABELS, put

i64, u32, u64 = np.int64, np.uint32, np.uint64
_TCI = u64(0xFFFF)
_ALL = u64(0xFFFFFFFFFFFFFFFF)
MOST_LABELS = 3
N_IP, N_IPV6, N_IP_ANY, N_ARP, N_MPLS, N_TCP, N_UDP, N_SCTP, N_ICMP, N_ICMPV6, N_ND, N_ND_SOLICIT, N_ND_ADVERT = (
    program.NEEDS_NUMBER[name]
    for name in (
        "ip", "ipv6", "ip any", "arp", "mpls", "tcp", "udp", "sctp", "icmp", "icmpv6", "nd", "nd solicit", "nd advert",
    )
)  # fmt: skip
N_VLAN = program.NEEDS_NUMBER["vlan"]


@kernel(inline=True)
def word_of(t, word):
    """A word of the flow."""
    return load_u64(t.flow + 8 * word)


@kernel(inline=True)
def set_word(t, word, value):
    """Set a word of the flow."""
    store_u64(t.flow + 8 * word, u64(value))


@kernel(inline=True)
def eth_type(t):
    """The flow's Ethernet type."""
    return i64(word_of(t, W_PORT) >> u64(ETH_TYPE_SHIFT) & u64(0xFFFF))


@kernel(inline=True)
def proto(t):
    """Its IP protocol."""
    return i64(word_of(t, W_PORT) >> u64(PROTO_SHIFT) & u64(0xFF))


@kernel
def look_behind_labels(t):
    """Take the fields behind labels that were taken off from the packet itself; from now on its key says too little."""
    t.unknown = 0
    t.cacheable = 0
    if t.handle == 0:
        return
    p = Packet(t.handle)
    hashed = word_of(t, W_DERIVED) & u64(0xFFFFFFFF)
    parse_behind(t.flow, data(p), i64(p.length), i64(p.total), t.popped, eth_type(t))
    set_word(t, W_DERIVED, word_of(t, W_DERIVED) & ~u64(0xFFFFFFFF) | hashed)


@kernel(inline=True)
def know(t):
    """Have the fields of IP and transport be those of the packet."""
    if t.unknown != 0:
        look_behind_labels(t)


@kernel
def is_there(t, needs):
    """Whether the flow has the header that an action needs."""
    if needs == 0:
        return True
    kind = eth_type(t)
    if needs == N_VLAN:
        return word_of(t, W_DST) & u64(TCI_PRESENT) != u64(0)
    if needs == N_MPLS:
        return kind == MPLS or kind == MPLS_MULTICAST
    if needs == N_ARP:
        return kind == ARP or kind == RARP
    know(t)
    if needs == N_IP:
        return kind == IP
    if needs == N_IPV6:
        return kind == IPV6
    if kind != IP and kind != IPV6:
        return False
    if needs == N_IP_ANY:
        return True
    number = proto(t)
    if needs == N_TCP or needs == N_UDP or needs == N_SCTP:
        wanted = TCP if needs == N_TCP else UDP if needs == N_UDP else SCTP
        later = word_of(t, W_PORT) & u64(FRAG_LATER << FRAG_SHIFT)
        return number == wanted and later == u64(0)
    if needs == N_ICMP:
        return kind == IP and number == ICMP
    if kind != IPV6 or number != ICMPV6:
        return False
    if needs == N_ICMPV6:
        return True
    sort = i64(word_of(t, W_TRANSPORT) >> u64(TP_SRC_SHIFT))
    code = i64(word_of(t, W_TRANSPORT) >> u64(TP_DST_SHIFT) & u64(0xFFFF))
    if code != 0:
        return False
    if needs == N_ND_SOLICIT:
        return sort == NEIGHBOR_SOLICIT
    if needs == N_ND_ADVERT:
        return sort == NEIGHBOR_ADVERT
    return sort == NEIGHBOR_SOLICIT or sort == NEIGHBOR_ADVERT


@kernel(inline=True)
def _floor(t, shift, ttl):
    value = u64(min(i64(ttl), i64(TTL_FLOOR_MOST)))
    set_word(t, W_DERIVED, word_of(t, W_DERIVED) & ~(u64(15) << u64(shift)) | value << u64(shift))


@kernel
def set_bits(t, word, value, mask):
    """Change bits of a word of the flow; those of a header are dirty then."""
    old = word_of(t, word)
    new = old & ~mask | value & mask
    set_word(t, word, new)
    if word < HEADER_WORDS:
        if word == W_PORT:
            # The port and the type are the flow's own; of the rest only ARP's operation is written to packets.
            mask &= u64(0xFF) << u64(PROTO_SHIFT)
        # These are written as a whole: of an operation above 255 the flow has 0, and a time to live is decremented either
        # in the flow or in the packet.  Who writes a part of it has all of it in the key.
        if word == W_PORT and mask:
            mask |= u64(0xFF) << u64(PROTO_SHIFT)
        elif word == W_TRANSPORT and mask & (u64(0xFF) << u64(TTL_SHIFT)):
            mask |= u64(0xFF) << u64(TTL_SHIFT)
        elif word == W_MPLS and mask & u64(0xFF):
            mask |= u64(0xFF)
        at = t.dirty + 8 * word
        store_u64(at, load_u64(at) | mask)
        if word == W_TRANSPORT and mask & (u64(0xFF) << u64(TTL_SHIFT)):
            _floor(t, i64(TTL_FLOOR_SHIFT), new >> u64(TTL_SHIFT) & u64(0xFF))
            t.ttl_steps = 0
        if word == W_MPLS and mask & u64(0xFF):
            _floor(t, i64(MPLS_TTL_FLOOR_SHIFT), new & u64(0xFF))


@kernel(inline=True)
def _edit(t, word, mask):
    put(t, op.EDIT | 3 << 16 | word << 32)
    put(t, word_of(t, word) & mask)
    put(t, mask)
    t.edits += 1


@kernel
def _commit_tag(t, had):
    """Give the packet the first tag that the flow has; ``had`` says whether the packet has one.

    A flow without a first tag has none, whatever it knows of a second one, which comes back with the first.
    """
    tci = word_of(t, W_DST) & _TCI
    mask = load_u64(t.dirty + 8 * W_DST) & _TCI
    if mask == u64(0):
        return
    store_u64(t.dirty + 8 * W_DST, load_u64(t.dirty + 8 * W_DST) & ~_TCI)
    has = tci & u64(TCI_PRESENT) != u64(0)
    second, label = word_of(t, W_SRC) & _TCI, word_of(t, W_LABEL)
    two = second & u64(TCI_PRESENT) != u64(0)
    if has and had:
        _edit(t, i64(W_DST), mask)
    elif has:
        if two:
            put(t, op.PUSH_VLAN | 2 << 16 | i64(label >> u64(TPID2_SHIFT) & _TCI) << 32)
            put(t, second)
        if label >> u64(TPID_SHIFT) & _TCI == u64(0):
            label |= u64(TAG) << u64(TPID_SHIFT)
            set_word(t, W_LABEL, label)
        put(t, op.PUSH_VLAN | 2 << 16 | i64(label >> u64(TPID_SHIFT) & _TCI) << 32)
        put(t, tci)
        t.edits += 1
    elif had:
        put(t, op.POP_VLAN | 1 << 16)
        if two:
            put(t, op.POP_VLAN | 1 << 16)
        t.edits += 1


@kernel
def commit(t):
    """Make ops of all that is dirty."""
    if load_u64(t.dirty + 8 * W_DST) & _TCI:
        _commit_tag(t, load_u64(t.dirty + 8 * W_SRC) & u64(1) == u64(0))
    # What says nothing of its operation is left as it is, until an action gives it one: so does Open vSwitch.
    nameless = eth_type(t) == ARP and proto(t) == 0
    for i in range(HEADER_WORDS):
        # Ports last: an ICMPv6 type says whether there is the rest of a neighbour message.
        word = (i + W_TRANSPORT + 1) % HEADER_WORDS
        if nameless and (word == W_PORT or word == W_ADDRESSES or word == W_SHA or word == W_THA):
            continue
        at = t.dirty + 8 * word
        mask = load_u64(at)
        if word == W_SRC:
            mask &= ~_TCI
        if mask != u64(0):
            _edit(t, i64(word), mask)
        store_u64(at, u64(0))


@kernel
def set_tag(t, value, mask):
    """Change the first tag's control information, one that says that no tag is there included.

    Whether the packet has one is kept in a bit of ``dirty`` that is else unused: set when it has none.
    """
    if load_u64(t.dirty + 8 * W_DST) & _TCI == u64(0) and word_of(t, W_DST) & u64(TCI_PRESENT) == u64(0):
        store_u64(t.dirty + 8 * W_SRC, load_u64(t.dirty + 8 * W_SRC) | u64(1))
    set_bits(t, i64(W_DST), value, mask)


@kernel
def push_tag(t, tpid):
    """Put a tag before the first one.  A flow has two, so a third one's predecessor is lost, as in OpenFlow's switches."""
    commit(t)
    first, second = word_of(t, W_DST) & _TCI, word_of(t, W_SRC) & _TCI
    label = word_of(t, W_LABEL)
    if first & u64(TCI_PRESENT) and second & u64(TCI_PRESENT):
        put(t, op.POP_VLAN | 1 << 16)
        put(t, op.POP_VLAN | 1 << 16)
        put(t, op.PUSH_VLAN | 2 << 16 | i64(label >> u64(TPID_SHIFT) & _TCI) << 32)
        put(t, first)
    set_word(t, W_SRC, word_of(t, W_SRC) & ~_TCI | first)
    set_word(t, W_DST, word_of(t, W_DST) & ~_TCI | u64(TCI_PRESENT))
    tpids = (label >> u64(TPID_SHIFT) & _TCI) << u64(TPID2_SHIFT) | u64(tpid) << u64(TPID_SHIFT)
    set_word(t, W_LABEL, label & u64(0xFFFFFFFF) | tpids)
    put(t, op.PUSH_VLAN | 2 << 16 | tpid << 32)
    put(t, u64(TCI_PRESENT))
    t.edits += 1


@kernel
def pop_tag(t):
    """Take the first tag off, if there is one."""
    commit(t)
    if word_of(t, W_DST) & u64(TCI_PRESENT) == u64(0):
        return
    second, label = word_of(t, W_SRC) & _TCI, word_of(t, W_LABEL)
    set_word(t, W_DST, word_of(t, W_DST) & ~_TCI | second)
    set_word(t, W_SRC, word_of(t, W_SRC) & ~_TCI)
    set_word(t, W_LABEL, label & u64(0xFFFFFFFF) | label >> u64(TPID2_SHIFT) << u64(TPID_SHIFT))
    put(t, op.POP_VLAN | 1 << 16)
    t.edits += 1


@kernel(inline=True)
def set_eth_type(t, kind):
    """Change the flow's type, behind labels that came or went."""
    bits = _TCI << u64(ETH_TYPE_SHIFT)
    set_word(t, W_PORT, word_of(t, W_PORT) & ~bits | u64(kind) << u64(ETH_TYPE_SHIFT))


@kernel
def _forget_behind(t):
    """Clear all fields of IP and transport."""
    set_word(t, W_PORT, word_of(t, W_PORT) & u64(0x0000FFFFFFFFFFFF))
    set_word(t, W_LABEL, word_of(t, W_LABEL) & ~u64(0xFFFFFFFF))
    fill(t.flow + 8 * W_ADDRESSES, 0, 16)
    fill(t.flow + 8 * (W_SRC + 1), 0, 32)
    fill(t.flow + 8 * (W_MPLS2 + 1), 0, 32)


@kernel
def push_label(t, kind):
    """Put a label before the first one, or the first one behind the tags."""
    know(t)
    commit(t)
    lse = word_of(t, W_MPLS)
    n = i64(word_of(t, W_MPLS2) >> u64(32) & u64(3))
    if is_there(t, i64(N_MPLS)) and n > 0:
        if n >= MOST_LABELS:
            t.gives_up = TOO_MANY_LABELS
            return
        entry = lse & u64(0xFFFFFEFF)
        set_word(t, W_MPLS2, u64(n + 1) << u64(32) | lse >> u64(32))
        set_word(t, W_MPLS, lse << u64(32) | entry)
    else:
        label, tc, ttl = i64(0), u64(0), u64(64)
        if eth_type(t) == IPV6:
            label = i64(2)
        if eth_type(t) == IP or eth_type(t) == IPV6:
            transport = word_of(t, W_TRANSPORT)
            tc = transport >> u64(2) & u64(7)
            found = transport >> u64(TTL_SHIFT) & u64(0xFF)
            ttl = found if found != u64(0) else ttl
        entry = u64(label) << u64(12) | tc << u64(9) | u64(0x100) | ttl
        _forget_behind(t)
        set_word(t, W_MPLS, entry)
        set_word(t, W_MPLS2, u64(1) << u64(32))
    _floor(t, i64(MPLS_TTL_FLOOR_SHIFT), entry & u64(0xFF))
    set_eth_type(t, kind)
    put(t, op.PUSH_MPLS | 2 << 16 | kind << 32)
    put(t, entry)
    t.edits += 1
    t.popped -= 1


@kernel
def pop_label(t, kind):
    """Take the first label off, if there is one; what is behind it is then of type ``kind``.

    Of a type that is no label's, all labels go; of a stack that goes on behind the third, which is as far as a flow knows
    it, none can.  So does Open vSwitch 3.1.
    """
    if not is_there(t, i64(N_MPLS)):
        return
    lse, third = word_of(t, W_MPLS), word_of(t, W_MPLS2)
    n = i64(third >> u64(32) & u64(3))
    if n == 0:
        return
    if n == MOST_LABELS and third & u64(0x100) == u64(0):
        t.gives_up = TOO_MANY_LABELS
        return
    commit(t)
    labels = kind == MPLS or kind == MPLS_MULTICAST
    if labels:
        set_word(t, W_MPLS, lse >> u64(32) | third << u64(32))
        set_word(t, W_MPLS2, u64(n - 1) << u64(32))
        _floor(t, i64(MPLS_TTL_FLOOR_SHIFT), word_of(t, W_MPLS) & u64(0xFF))
        t.popped += 1
    else:
        for _ in range(n - 1):
            put(t, op.POP_MPLS | 1 << 16 | MPLS << 32)
        set_word(t, W_MPLS, u64(0))
        set_word(t, W_MPLS2, u64(0))
        t.popped += n
    put(t, op.POP_MPLS | 1 << 16 | kind << 32)
    set_eth_type(t, kind)
    t.edits += 1
    t.unknown = 1


@kernel
def _real_ttl(t):
    """The time to live of the packet itself, less what was taken from it."""
    t.cacheable = 0
    if t.handle == 0:
        return i64(TTL_FLOOR_MOST)
    p = Packet(t.handle)
    flow = stack(FLOW_SIZE)
    fill(flow, 0, FLOW_SIZE)
    parse(flow, data(p), i64(p.length), i64(p.total))
    return i64(load_u64(flow + 8 * W_TRANSPORT) >> u64(TTL_SHIFT) & u64(0xFF)) - t.ttl_steps


@kernel
def decrement_ttl(t):
    """Take one from the time to live; False when it is 1 or 0 and the packet must not go on."""
    know(t)
    left = i64(word_of(t, W_DERIVED) >> u64(TTL_FLOOR_SHIFT) & u64(15))
    if left == TTL_FLOOR_MOST:
        left -= t.ttl_steps
        if left <= 1:
            left = _real_ttl(t)
    elif left > 0:
        _floor(t, i64(TTL_FLOOR_SHIFT), max(left - 1, i64(0)))
    if left <= 1:
        return False
    bits = u64(0xFF) << u64(TTL_SHIFT)
    transport = word_of(t, W_TRANSPORT)
    if transport & bits:
        set_word(t, W_TRANSPORT, transport - (u64(1) << u64(TTL_SHIFT)))
    if load_u64(t.dirty + 8 * W_TRANSPORT) & bits != bits:
        put(t, op.DEC_TTL | 1 << 16)
        t.edits += 1
    t.ttl_steps += 1
    return True


@kernel
def decrement_label_ttl(t):
    """The same for the first label's."""
    left = i64(word_of(t, W_DERIVED) >> u64(MPLS_TTL_FLOOR_SHIFT) & u64(15))
    if left <= 1:
        return False
    if left < TTL_FLOOR_MOST:
        _floor(t, i64(MPLS_TTL_FLOOR_SHIFT), left - 1)
    lse = word_of(t, W_MPLS)
    if lse & u64(0xFF):
        set_word(t, W_MPLS, lse - u64(1))
    if load_u64(t.dirty + 8 * W_MPLS) & u64(0xFF) != u64(0xFF):
        put(t, op.DEC_MPLS_TTL | 1 << 16)
        t.edits += 1
    return True
