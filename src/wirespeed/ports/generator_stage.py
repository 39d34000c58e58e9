"""The stage that makes a generator's packets: admitted by count and rate, copied from templates, varied, sealed."""

import numpy as np

from wirespeed.core.chain import alloc_length
from wirespeed.core.chain import copy_in as write_chain
from wirespeed.core.packet import Packet, data, reset
from wirespeed.core.stage import Head
from wirespeed.jit.intrinsics import copy, load_handle, load_i64, load_u16, store_be16, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns, realtime_ns
from wirespeed.net.checksum import fill_sctp, fold, udp_sent
from wirespeed.net.trailer import STREAMS, TRAILER, write_trailer
from wirespeed.ports.grab import grab
from wirespeed.ports.pacing import Pacer, advance, begin, sleep_until_due
from wirespeed.ports.varied_field import VariedField, vary

u16, i64, u64 = np.uint16, np.int64, np.uint64
CHUNK = 64  # bytes that are copied at once
SEAL_IP, SEAL_TRANSPORT = 1, 2  # of ``seal``: which checksums to write into each packet
SUM, UDP_SUM, SCTP_CRC = 1, 2, 3  # of ``transport``: how the transport checksum is made

# One frame, rendered ahead.
Rendered = layout(
    "Rendered",
    [
        ("frame", "i8"),  # address, padded to a multiple of CHUNK
        ("size", "i8"),
        ("ip_sum", "i8"),  # the sum under the IPv4 checksum, with a bias that is zero to it
        ("transport_sum", "i8"),
        ("covered", "i8"),  # bytes under the transport checksum
        ("trailer_shift", "i8"),  # by how many bits the words of a trailer are shifted under it, 0 or 8
        (None, 16),
    ],
)
assert Rendered.size == 64
RENDERED, VARIED = Rendered.size, VariedField.size

# Where the checksums of the frames are, and how they are made.
Seal = layout(
    "Seal",
    [
        ("ip_at", "i8"),  # offset of the IPv4 checksum
        ("transport_at", "i8"),  # offset of the transport checksum
        ("covers_at", "i8"),  # offset of the transport header
        ("transport", "i8"),
    ],
)

State = layout(
    "GeneratorState",
    [
        ("head", Head),
        # filled when placed
        ("templates", "i8"),  # address of Rendered[]
        ("pattern", "i8"),  # address of u2[slots]: which template comes at which turn
        ("slots", "i8"),
        ("stride", "i8"),  # slots from one packet of this worker to its next
        ("fields", "i8"),  # address of VariedField[n_fields]
        ("n_fields", "i8"),
        ("sums", "i8"),  # address of i8[2 * burst]: sums under the checksums of each packet
        ("dues", "i8"),  # address of i8[burst]: when each packet was due
        ("seal", "i8"),
        ("sealing", "i8"),  # address of the Seal
        ("link", "i8"),
        ("long", "i8"),  # 1: some frame needs more than one buffer
        ("paced", "i8"),
        ("trailer", "i8"),  # 1: packets carry trailers,
        ("stream", "i8"),  # of this stream,
        ("streams", "i8"),  # and of so many more than one in turn
        ("step", "i8"),  # from one number to the next
        ("scratch", "u1", 24),  # for one that lies in several segments
        # moving
        ("left", "i8"),  # packets still to make; negative: no end
        ("slot", "i8"),
        ("sequence", "i8"),  # number of the next packet in its stream, or, of several, in all of them
        ("latest_ns", "i8"),  # how late the latest packet was
        ("made", "i8"),  # packets made at a rate,
        ("last_ns", "i8"),  # and when the last of them were, on the monotonic clock
        ("epoch", "i8"),  # what makes a time since 1970 of one on the monotonic clock
        ("pacer", Pacer),
    ],
)


@kernel(inline=True)
def template_at(templates, pattern, slot):
    """The frame that comes at a slot of the pattern."""
    return Rendered(templates + RENDERED * i64(load_u16(pattern + 2 * slot)))


@kernel(inline=True)
def after(slot, stride, slots):
    """The slot of this worker's next packet."""
    slot += stride
    return slot - slots if slot >= slots else slot


@kernel
def admit(s, n, now):
    """How many of ``n`` packets are due by now; the pacer goes on over them."""
    pacer = s.pacer
    s.latest_ns = max(s.latest_ns, now - pacer.due)
    slot, done = s.slot, i64(0)
    while done < n and pacer.due <= now:
        store_i64(s.dues + 8 * done, pacer.due)
        advance(pacer, template_at(s.templates, s.pattern, slot).size)
        slot = after(slot, s.stride, s.slots)
        done += 1
    return done


@kernel
def readmit(s, due, part, first, n):
    """Set the pacer back to ``due`` and ``part`` and go on over ``n`` packets only: the pool had no more."""
    pacer, slot = s.pacer, first
    pacer.due = due
    pacer.part = part
    for _ in range(n):
        advance(pacer, template_at(s.templates, s.pattern, slot).size)
        slot = after(slot, s.stride, s.slots)


@kernel(inline=True)
def keep_sums(sums, i, t):
    """Note the sums from which the checksums of packet ``i`` of the burst are made."""
    store_i64(sums + 16 * i, t.ip_sum)
    store_i64(sums + 16 * i + 8, t.transport_sum)


@kernel(inline=True)
def render(s, burst, n, time):
    """Copy templates into ``n`` new packets, or as many as the pool has, in halves; return how many."""
    n = grab(s.head.cache, burst, n)
    templates, pattern, stride, slots = s.templates, s.pattern, s.stride, s.slots
    seal, sums, link = s.seal, s.sums, u16(s.link)
    slot, total = s.slot, i64(0)
    for i in range(n):
        t = template_at(templates, pattern, slot)
        frame, size = t.frame, t.size
        p = Packet(load_handle(burst + 8 * i))
        reset(p, size)
        p.time = time
        p.link = link
        # Bounds: placing made sure that every template, padded, is within a buffer; else ``long`` is set.
        to = data(p)
        for at in range(0, size, CHUNK):
            copy(to + at, frame + at, CHUNK)
        if seal != 0:
            keep_sums(sums, i, t)
        total += size
        slot = after(slot, stride, slots)
    s.slot = slot
    s.head.bytes += u64(total)
    return n


@kernel
def render_long(s, burst, n, time):
    """As :func:`render`, of frames that may need several buffers each; may return less than n."""
    slot, total, done = s.slot, i64(0), i64(0)
    while done < n:
        t = template_at(s.templates, s.pattern, slot)
        handle = alloc_length(s.head.cache, t.size)
        if handle == 0:
            break
        write_chain(handle, i64(0), t.size, t.frame)
        Packet(handle).time = time
        Packet(handle).link = u16(s.link)
        keep_sums(s.sums, done, t)
        store_i64(burst + 8 * done, handle)
        total += t.size
        slot = after(slot, s.stride, s.slots)
        done += 1
    s.slot = slot
    s.head.bytes += u64(total)
    return done


@kernel(inline=True)
def seal_frame(sealing, frame, seal, ip_sum, transport_sum, covered):
    """Write the checksums of one frame from the sums under them."""
    if seal & SEAL_IP:
        store_be16(frame + sealing.ip_at, fold(ip_sum) ^ 0xFFFF)
    if seal & SEAL_TRANSPORT:
        if sealing.transport == SCTP_CRC:
            fill_sctp(frame + sealing.covers_at, covered)
        else:
            value = fold(transport_sum) ^ 0xFFFF
            store_be16(frame + sealing.transport_at, udp_sent(value) if sealing.transport == UDP_SUM else value)


@kernel
def seal_template(sealing, template, seal):
    """Write the checksums of a rendered frame."""
    t = Rendered(template)
    seal_frame(Seal(sealing), t.frame, seal, t.ip_sum, t.transport_sum, t.covered)


@kernel
def seal_burst(s, burst, n, first):
    """Write the checksums of ``n`` packets, of which the one at slot ``first`` is the first."""
    seal, sums, slot, sealing = s.seal, s.sums, first, Seal(s.sealing)
    for i in range(n):
        frame = data(Packet(load_handle(burst + 8 * i)))
        covered = template_at(s.templates, s.pattern, slot).covered
        seal_frame(sealing, frame, seal, load_i64(sums + 16 * i), load_i64(sums + 16 * i + 8), covered)
        slot = after(slot, s.stride, s.slots)


@kernel
def write_trailers(s, burst, n, first):
    """Write a trailer to the end of each of ``n`` packets, and add it to the sum under its checksum."""
    slot, serial, sums, scratch = first, s.sequence, s.sums, s.scratch
    base, streams, step = s.stream, s.streams, s.step
    now = realtime_ns()
    for i in range(n):
        t = template_at(s.templates, s.pattern, slot)
        handle = load_handle(burst + 8 * i)
        p, at = Packet(handle), t.size - TRAILER
        stream, sequence = base, serial
        if streams > 1:
            stream, sequence = (base + serial % streams) % STREAMS, serial // streams
        if p.segments == 1:
            # Bounds: placing made sure that every template has room for it behind its headers.
            total = write_trailer(data(p) + at, stream, sequence, now)
        else:
            total = write_trailer(scratch, stream, sequence, now)
            write_chain(handle, at, i64(TRAILER), scratch)
        store_i64(sums + 16 * i + 8, load_i64(sums + 16 * i + 8) + (total << t.trailer_shift))
        serial += step
        slot = after(slot, s.stride, s.slots)
    s.sequence = serial


@kernel(inline=True)
def make(s, burst, n, time):
    """Make up to ``n`` packets, without a look at count and rate; return how many."""
    first = s.slot
    n = render_long(s, burst, n, time) if s.long != 0 else render(s, burst, n, time)
    for i in range(s.n_fields):
        vary(s.fields + VARIED * i, burst, n, s.sums)
    if s.trailer != 0:
        write_trailers(s, burst, n, first)
    if s.seal != 0:
        seal_burst(s, burst, n, first)
    return n


@kernel
def make_paced(state, burst, n):
    """Make those of ``n`` packets that are due, and give them the times at which they were."""
    s = State(state)
    pacer, first, now = s.pacer, s.slot, monotonic_ns()
    if pacer.anchor == 0:
        s.epoch = realtime_ns() - now
        begin(pacer, now)
    due, part = pacer.due, pacer.part
    admitted = admit(s, n, now)
    made = make(s, burst, admitted, i64(0)) if admitted > 0 else i64(0)
    if made < admitted:
        readmit(s, due, part, first, made)
    for i in range(made):
        Packet(load_handle(burst + 8 * i)).time = s.epoch + load_i64(s.dues + 8 * i)
    if made > 0:
        s.made += made
        s.last_ns = now
    sleep_until_due(pacer, state)
    return made


@stage
def generate(state, burst, n):
    """Make up to ``n`` packets."""
    s = State(state)
    left = s.left
    if left >= 0:
        n = min(n, left)
    if n > 0:
        n = make_paced(state, burst, n) if s.paced != 0 else make(s, burst, n, realtime_ns())
    if left >= 0:
        s.left = left - n
        if left == n:
            s.head.done = 1
    return n
