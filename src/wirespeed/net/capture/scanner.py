"""Finding the next packets of a capture, whatever its format: the one way in for ports and for Python.

A scan that meets a compressed stream says so and rests until somebody has put a decompressor before it.  Order pairs:
S1, the releasing store of ``container`` after the last look at the window, pairs with the acquiring load of who takes
over its bytes; S2, the one that clears it, with that of the scan.
"""

import numpy as np

from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import bswap32, call_stage, load_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.capture import container
from wirespeed.net.capture import scan as scans
from wirespeed.net.capture.format import SECTION, u32_at
from wirespeed.net.capture.pcap import FILE_HEADER, begin, is_pcap, scan_pcap
from wirespeed.net.capture.pcapng import scan_pcapng
from wirespeed.net.capture.scan import (
    CUT_SHORT,
    EMPTY,
    ENTRIES,
    NOT_A_CAPTURE,
    PCAPNG,
    READ_ERROR,
    UNKNOWN,
    Scan,
    complain,
    mark,
    spoil,
)
from wirespeed.net.capture.scan import (
    TRAILER as TRAILER_DIFFERS,
)
from wirespeed.net.capture.window import ENDED, GOT, STREAM, pass_over, refill, rewind

u32, i64 = np.uint32, np.int64
MAGIC = 4  # bytes that tell the format
REFILLS = 16  # chunks that one call looks through for a packet, so that a worker is never away for long


@kernel
def recognize(s):
    """Tell the format by the first bytes in the window; False when more of them are needed or they are of none."""
    w = s.window
    here = w.end - w.at
    if here < MAGIC:
        return False
    magic = load_u32(w.at)
    if magic == SECTION and s.pcapng != 0:
        s.format = PCAPNG
        s.scanner = s.pcapng
        return True
    other = bswap32(magic)
    if is_pcap(magic) or is_pcap(other):
        if here >= FILE_HEADER:
            s.scanner = s.pcap
            begin(s, w.at, magic if is_pcap(magic) else other, u32(not is_pcap(magic)))
        return here >= FILE_HEADER
    kind = container.tell(magic)
    if kind != container.PLAIN:
        store_release(s, "container", u32(kind))  # S1
    else:
        spoil(s, NOT_A_CAPTURE, w.at, i64(0), i64(bswap32(magic)))
    return False


@kernel
def land(s):
    """Get past what is passed over, and look at its last bytes; False when more are needed."""
    w = s.window
    if not pass_over(w) or w.end - w.at < s.tail:
        return False
    if s.trailer != 0:
        if i64(u32_at(w.at, s.swapped)) != s.trailer:
            complain(s, TRAILER_DIFFERS, w.at, i64(0), s.trailer)
    w.at += s.tail
    s.tail = 0
    return True


@kernel
def conclude(s):
    """Note how the bytes ended, now that no more will come."""
    w = s.window
    if w.errno != 0:
        spoil(s, READ_ERROR, w.end, i64(0), i64(0))
        s.damage.errno = w.errno
    elif s.tail != 0:
        spoil(s, CUT_SHORT, w.end, i64(0), i64(s.format))
        s.damage.offset = s.start
    elif w.end != w.at:
        spoil(s, CUT_SHORT, w.at, i64(0), i64(s.format))
    elif s.format == UNKNOWN:
        spoil(s, EMPTY, w.at, i64(0), i64(0))


@kernel
def look(scan):
    """Find the packets whose records lie whole in the window; return how many."""
    s = Scan(scan)
    if s.tail != 0 and not land(s):
        return i64(0)
    if s.format == UNKNOWN and not recognize(s):
        return i64(0)
    return call_stage(s.scanner, scan, s.entries, i64(ENTRIES))


@kernel
def find(scan):
    """Find the next packets: ``first`` and ``count`` then tell the entries.  Return how many; 0 for none as yet.

    The entries found before are gone.  Whether any more can come is what :func:`over` says.
    """
    s = Scan(scan)
    s.first = 0
    s.count = 0
    for _ in range(REFILLS):
        if s.damage.what != 0 or load_acquire(s, "container") != 0:  # pairs with S2
            break
        n = look(scan)
        if n > 0:
            s.packets += n
            s.count = n
            return n
        if s.damage.what != 0 or s.container != 0:
            break
        got = refill(s.window)
        if got == ENDED:
            conclude(s)
        if got != GOT:
            break
    return i64(0)


@kernel
def container_met(scan):
    """The container that the bytes turned out to be in, if any; the scan then rests until :func:`resume`."""
    return load_acquire(Scan(scan), "container")  # pairs with S1


@kernel
def resume(scan, fd):
    """Go on from the beginning with what is unpacked into the pipe ``fd``."""
    s = Scan(scan)
    s.window.fd = fd
    s.window.source = STREAM
    store_release(s, "container", u32(0))  # S2


@kernel(inline=True)
def over(s):
    """Whether this pass will give no more packets than the entries that are there."""
    return s.damage.what != 0 or s.window.ended != 0


@kernel
def restart(s):
    """Begin another pass.  Interfaces get the same numbers again; what was wrong in the first pass stays noted."""
    rewind(s.window)
    d = s.damage
    if d.what != 0:
        mark(s.before, i64(d.what), d.offset, d.packet, d.detail)
        s.before.errno = d.errno
        d.what = 0
    s.passes += 1
    s.format = UNKNOWN
    s.packets = 0
    s.tail = 0
    s.interfaces = 0
    s.known = 0
    s.sections = 0
    s.notes_used = 0
    s.last_section = 0


def init(scan: int, memory: int, fd: int, source: int, *, begin: int = 0, pcapng: bool = True) -> None:
    """Make the zeroed ``Scan`` at an address ready for any format, or, known not to be needed, without pcapng.

    It uses the ``scan.MEMORY`` zeroed bytes at ``memory``.
    """
    scans.init(scan, memory, fd, source, begin)
    s = Scan.at(scan)
    s.pcap = scan_pcap.address
    s.pcapng = scan_pcapng.address if pcapng else 0
