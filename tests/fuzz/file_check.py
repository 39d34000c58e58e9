"""What must hold for any bytes whatever that are taken for a capture file; a kernel that checks it for a batch of them.

Each file is scanned twice.  Once it is there as a whole, right before a page that nobody may touch, so that a byte read
too far ends the process.  Once it comes in pieces through a window that is smaller than most of its records.  Both
times the same packets and the same damage must be found; and every packet is parsed.
"""

import numpy as np

from tests.fuzz.inputs import INPUT, Input
from wirespeed.jit.intrinsics import copy, crc32c, fill, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.capture.format import LARGEST_FRAME
from wirespeed.net.capture.scan import ENTRY, Entry, Scan
from wirespeed.net.capture.scanner import find
from wirespeed.net.capture.window import FRONT, make_room
from wirespeed.net.checksum import crc32c_bytes
from wirespeed.net.dissect import dissect
from wirespeed.net.flow import five_tuple
from wirespeed.net.layer import MAX_LAYERS
from wirespeed.net.verdict import verdict

i64, u32, u64 = np.int64, np.uint32, np.uint64

WINDOW = 512  # bytes that are taken at a time where a file comes in pieces
MOST_INTERFACES = 512  # that an input can have, each being 20 bytes and more

FileBench = layout(
    "FuzzFileBench",
    [
        ("whole", "i8"),  # address of a Scan
        ("pieces", "i8"),  # address of another
        ("template", "i8"),  # address of a Scan as it is at the beginning
        ("other_template", "i8"),
        ("high", "i8"),  # address of a page that nobody may touch
        ("records", "i8"),  # address of Layer[MAX_LAYERS]
        ("state", "i8"),  # address of a State
        ("progress", "i8"),  # address of an i8 that survives the process: the number of the input under way
        ("violated", "i8"),  # the invariant that the last input broke, or 0
    ],
)

State = layout("FuzzFileState", [("digest", "u4"), (None, 4), ("packets", "i8")])
SCAN = Scan.size

INVARIANTS = (
    "none",
    "a packet lies inside of the bytes that were read",
    "a packet is not larger than the largest",
    "a packet is of an interface that there is",
    "a scan comes to its end",
    "packets are counted",
    "damage lies inside of the file",
    "a file has the same packets in pieces as it has as a whole",
    "a file has the same damage in pieces as it has as a whole",
    "a file has the same faults in pieces as it has as a whole",
)
INSIDE, SIZE, INTERFACE, END, COUNT, PLACE, PACKETS, DAMAGE, FAULTS = (i64(n) for n in range(1, len(INVARIANTS)))


@kernel(inline=True)
def digest_entry(e, seed):
    """What an entry says and the bytes it points to, as a continued CRC."""
    seed = crc32c(crc32c(seed, u64(e.time)), u64(e.captured) | u64(e.wire) << u64(32))
    seed = crc32c(seed, u64(e.link) | u64(e.swapped) << u64(16) | u64(e.interface) << u64(32))
    seed = crc32c_bytes(seed, e.address, i64(e.captured))
    return crc32c_bytes(seed, e.options, i64(e.options_size))


@kernel
def parse(f, e):
    """Parse the packet of an entry, for what reading too far would do."""
    length = i64(e.captured)
    n = dissect(e.address, length, i64(e.link), f.records, i64(MAX_LAYERS))
    for i in range(n):
        verdict(e.address, length, f.records, i)
    five_tuple(e.address, length, i64(e.link))


@kernel
def take(f, s, n, state):
    """Check and digest ``n`` entries; the invariant broken, or 0."""
    w, entry = s.window, s.entries
    for _ in range(n):
        e = Entry(entry)
        end = max(e.address + i64(e.captured), e.options + i64(e.options_size))
        if e.address < w.base - FRONT or end > w.end or (e.options_size != 0 and e.options < w.base - FRONT):
            return INSIDE
        if i64(e.captured) > LARGEST_FRAME:
            return SIZE
        if s.interfaces > 0 and i64(e.interface) >= s.known:
            return INTERFACE
        state.digest = digest_entry(e, state.digest)
        state.packets += 1
        parse(f, e)
        entry += ENTRY
    return i64(0)


@kernel(inline=True)
def feed(w, data, size, fed, step):
    """Give the window the next piece of a file; return how much of it the window has had."""
    run = min(step, size - fed, make_room(w))
    copy(w.end, data + fed, run)
    w.end += run
    w.offset += run
    if fed == size:
        w.ended = 1
    return fed + run


@kernel
def drain(f, scan, data, size, step):
    """Scan a file to its end, ``step`` bytes at a time; the invariant broken, or 0.  A ``step`` of 0: it is all there."""
    s = Scan(scan)
    w = s.window
    state = State(f.state)
    state.digest = 0
    state.packets = 0
    fed = i64(0)
    for _ in range(2 * size + 64):
        n = find(scan)
        if n > 0:
            broken = take(f, s, n, state)
            if broken != 0:
                return broken
        elif s.damage.what != 0 or s.container != 0 or w.ended != 0:
            return COUNT if s.packets != state.packets else PLACE if s.damage.offset > size else i64(0)
        elif step > 0:
            fed = feed(w, data, size, fed, step)
        else:
            w.ended = 1
    return END


@kernel
def prepare(scan, template, base, limit):
    """Begin a scan anew, through a window from ``base`` to ``limit``."""
    copy(scan, template, SCAN)
    w = Scan(scan).window
    w.base = base
    w.at = base
    w.end = base
    w.limit = limit
    fill(Scan(scan).local, 0, i64(4 * MOST_INTERFACES))


@kernel(inline=True)
def same_mark(one, two):
    return one.what == two.what and one.offset == two.offset and one.packet == two.packet and one.detail == two.detail


@kernel
def compare(whole, pieces, digest, count, state):
    """The invariant broken by two scans of one file, or 0."""
    if count != state.packets or digest != state.digest:
        return PACKETS
    if not same_mark(whole.damage, pieces.damage) or whole.container != pieces.container:
        return DAMAGE
    if whole.faults != pieces.faults or not same_mark(whole.fault, pieces.fault):
        return FAULTS
    return i64(0)


@kernel
def check_file(f, data, size, number):
    """The number of the invariant that a file breaks, or 0."""
    whole, pieces, state = Scan(f.whole), Scan(f.pieces), State(f.state)
    base = f.high - size
    prepare(f.whole, f.template, base, f.high)
    copy(base, data, size)
    w = whole.window
    w.end = f.high
    w.offset = size
    broken = drain(f, f.whole, data, size, i64(0))
    if broken != 0:
        return broken
    digest, count = state.digest, state.packets
    base = Scan(f.other_template).window.base
    prepare(f.pieces, f.other_template, base, base + WINDOW)
    broken = drain(f, f.pieces, data, size, 1 + number % 97)
    return broken if broken != 0 else compare(whole, pieces, digest, count, state)


@kernel
def check(bench, batch, n):
    """Check ``n`` inputs; return how many are sound before the first that is not."""
    f = FileBench(bench)
    for i in range(n):
        given = Input(batch + INPUT * i)
        store_i64(f.progress, given.number)
        f.violated = check_file(f, given.bytes, i64(given.size), given.number)
        if f.violated != 0:
            return i
    return n
