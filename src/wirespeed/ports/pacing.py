"""When packet number k is due, for sources with a rate: the generator, and the capture port at a rate.

Theory of operation
-------------------
Every due time is reckoned from one anchor, the time of the first packet, never from the packet before: with the
interval as an exact fraction of nanoseconds, packet k is due at ``anchor + floor(k * interval)``.  A kernel keeps the
whole nanoseconds and the rest of that product and adds to both, so nothing is ever rounded twice and nothing overflows,
however many packets there are.  A source that was held up is late and catches up; its schedule does not move.

A rate in packets takes each packet for one unit, a rate in bits each byte of its frame, and, where a rate is that of a
line, so many bytes more for each (``overhead``): on Ethernet 24, for preamble, check sequence and gap.  A source calls
:func:`begin` once it can send, then for each packet compares :func:`due` with the clock and calls :func:`advance`;
:func:`sleep_until_due` tells the worker when to come back.  That is ``WAKING_NS`` earlier, for a sleep ends late: by the
timer's slack, 50 us, and what it takes to wake a thread.  The rest is waited for awake, so that gaps of a few
microseconds are held, where the core is not another's at that moment.  Workers that share a rate get :func:`share` of it.

A fraction whose denominator exceeds 2^40 is replaced by the nearest one that does not: over 2^33 packets that is less
than 2^-7 ns.  A frame counts for at most 2^22 bytes (4 MB, more than any real one), so that the products fit.
"""

from fractions import Fraction

import numpy as np

from wirespeed.core.stage import Head
from wirespeed.errors import GraphError
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.ports import options
from wirespeed.ports.options import Option, Rate

i64 = np.int64
SECOND_NS = 10**9
MOST_BYTES = 1 << 22
WAKING_NS = 80_000
FINEST = 1 << 40
SLOWEST_BPS = 1  # slower, and one large frame would take longer than 64 bits of nanoseconds
SLOWEST_PPS = Fraction(1, 10**9)
# IEEE 802.3: 7 bytes of preamble, 1 of delimiter, 4 of check sequence, 12 of gap.
ETHERNET_OVERHEAD = 24
OVERHEAD = Option(
    "bytes",
    "0",
    "bytes that a rate in bits counts for each frame beside its own; wire: the 24 of Ethernet",
    options.either(options.count(0, 1024, "24"), "wire"),
)


Pacer = layout(
    "Pacer",
    [
        ("due", "i8"),  # when the next packet is due, on the monotonic clock; before begin(): since the anchor
        ("part", "i8"),  # the rest of that, in units of 1/fraction ns
        ("whole", "i8"),  # the interval of one unit: whole nanoseconds
        ("rest", "i8"),  # and the rest, in units of 1/fraction ns
        ("fraction", "i8"),
        ("bytewise", "i8"),  # 1: a unit is a byte, 0: a packet
        ("overhead", "i8"),  # bytes that a frame counts for beside its own
        ("anchor", "i8"),  # when the first packet was due; 0: not begun
    ],
)


@kernel(inline=True)
def begin(pacer, now):
    """Set the anchor, the first time it is called."""
    if pacer.anchor == 0:
        pacer.anchor = now
        pacer.due += now


@kernel(inline=True)
def advance(pacer, size):
    """Go on to the packet after one of ``size`` bytes."""
    units = min(i64(size), i64(MOST_BYTES)) + pacer.overhead if pacer.bytewise != 0 else i64(1)
    part = pacer.part + units * pacer.rest
    fraction = pacer.fraction
    due = pacer.due + units * pacer.whole
    if part >= fraction:
        due += part // fraction
        part = part % fraction
    pacer.due = due
    pacer.part = part


@kernel(inline=True)
def sleep_until(when, state):
    """Tell the worker that this source has nothing to do before ``when``: it is to be awake a little earlier."""
    Head(state).due_ns = max(when - WAKING_NS, i64(1))


@kernel(inline=True)
def sleep_until_due(pacer, state):
    """Tell the worker that this source has nothing to do before its next packet is due."""
    sleep_until(pacer.due, state)


def overhead(value: int | str) -> int:
    """What the option of that name says, in bytes."""
    return ETHERNET_OVERHEAD if value == "wire" else int(value)


def interval(rate: Rate) -> Fraction:
    """Nanoseconds between the units of a rate (packets, or bytes), as exactly as a pacer keeps them."""
    exact = SECOND_NS / rate.value if rate.unit == "pps" else 8 * SECOND_NS / rate.value
    return exact.limit_denominator(FINEST)


def due(rate: Rate, units: int) -> int:
    """Nanoseconds from the anchor at which the packet is due before which ``units`` packets, or bytes, were sent."""
    return units * interval(rate) // 1


def share(rate: Rate, workers: int) -> Rate:
    """The rate of each of ``workers`` that together keep ``rate``."""
    return Rate(rate.value / workers, rate.unit)


def check(rate: Rate) -> None:
    """Raise :class:`GraphError` for a rate whose due times 64 bits of nanoseconds cannot hold."""
    slowest = SLOWEST_PPS if rate.unit == "pps" else SLOWEST_BPS
    if rate.value < slowest:
        raise GraphError(f"rate must be at least {float(slowest):g}{rate.unit}, got {rate}; give a faster one")


def check_overhead(name: str, overhead: int, rate: Rate | None) -> None:
    """Raise :class:`GraphError` for an overhead that would count for nothing."""
    if overhead and (rate is None or rate.unit != "bps"):
        got = f"rate={rate}" if rate else "no rate"
        raise GraphError(f"{name} got overhead and {got}, wanted a rate in bits, for which it counts; add rate=10Gbps")


def achieved(rate: Rate, packets: int, size: int, elapsed_ns: int) -> str:
    """The rate at which ``packets``, of ``size`` bytes together, came, for a report; empty while it cannot be told.

    ``elapsed_ns`` is from the first one to the last, so one packet's share does not count.
    """
    if packets < 2 or elapsed_ns <= 0:
        return ""
    units = packets if rate.unit == "pps" else 8 * size
    return str(Rate(Fraction(units * (packets - 1) * SECOND_NS, packets * elapsed_ns), rate.unit))


def init(address: int, rate: Rate, *, after: Fraction | int = 0, overhead: int = 0) -> None:
    """Make the zeroed memory at ``address`` a pacer of ``rate`` whose first packet is due ``after`` units of it."""
    one = interval(rate)
    first = after * one
    pacer = Pacer.at(address)
    pacer.fraction = one.denominator
    pacer.whole, pacer.rest = divmod(one.numerator, one.denominator)
    pacer.due = first // 1
    pacer.part = (first % 1) * one.denominator // 1
    pacer.bytewise = rate.unit == "bps"
    pacer.overhead = overhead
