"""TCP between two hosts, namespaces with the kernel's own stack, through a bridge: ours, testpmd's, OVS's and Linux's.

The bridge's thread is on the measured core; iperf3 may use both.  Packet ports stand behind veth pairs, taps are the
hosts' interfaces themselves.  The hosts' offloads stay at their defaults where the bridge can cope with what they then
send: super-frames whose checksum is still to be computed.  testpmd's and OVS's ports cannot, so for them the hosts send
finished frames (``ethtool -K eth tx off``); the rows ``plain`` have it so for all.
"""

import json
import os
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import namespaces
from bench.harness import Figure, Options, Row, ToolFailed, affinity, interleave, row_name, say
from bench.namespaces import Space
from bench.ours_live import Graph
from bench.ours_live import Live as Ours
from bench.peers import ovs, testpmd_live
from bench.peers.testpmd_live import Live as Testpmd

KINDS = ("packet", "tap")
HOSTS = ("a", "b")
COPES = ("ours", "bridge")  # with super-frames and partial checksums
WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Way:
    """Who forwards between ports of which kind, and whether the hosts send finished frames."""

    kind: str
    side: str
    plain: bool


def missing() -> str | None:
    """Why nothing of this can be measured, or None."""
    absent = next((program for program in ("iperf3", "ethtool", "ping") if not shutil.which(program)), None)
    return f"not installed: {absent}" if absent else None


def run(options: Options, huge: bool) -> Iterator[Row]:
    """A row for each kind of port and each other bridge, and again with finished frames."""
    sides = ["ours", *(("testpmd", "ovs", "bridge") if options.peer else ())]
    reasons = {"testpmd": testpmd_live.missing(), "ovs": ovs.missing()}
    absent = {side: reason for side in sides if (reason := reasons.get(side))}
    wanted = [
        (kind, plain)
        for kind in KINDS
        for plain in (False, True)
        if any(options.wants(_name(kind, plain, side)) for side in (sides[1:] or [None]))
    ]
    for kind, plain in wanted:
        if reason := missing():
            yield Row(_name(kind, plain, None), "Gb/s", None, note=reason)
            continue
        failed = {Way(kind, side, plain or side not in COPES): reason for side, reason in absent.items()}
        ways = [Way(kind, side, plain or side not in COPES) for side in sides if kind == "packet" or side != "bridge"]
        rates: dict[Way, list[float]] = defaultdict(list)
        again: dict[Way, list[int]] = defaultdict(list)

        def once(
            way: Way,
            failed: dict[Way, str] = failed,
            rates: dict[Way, list[float]] = rates,
            again: dict[Way, list[int]] = again,
        ) -> None:
            if way in failed:
                return
            try:
                rate, retransmitted = _measure(way, options, huge)
            except ToolFailed as error:
                failed[way] = f"failed: {error}"
                say(f"{way}: {error}")
                return
            rates[way].append(rate)
            again[way].append(retransmitted)

        interleave(ways, options.runs, once)
        own, *peers = ways
        for way in peers or [own]:
            notes = [f"{one.side}: {failed[one]}" for one in dict.fromkeys((own, way)) if one in failed]
            notes += [f"{one.side} sent {max(again[one])} segments again" for one in (own, way) if any(again[one])]
            if way.plain and not own.plain:
                notes.append(f"{way.side}: the hosts' offloads are off")
            yield Row(
                _name(kind, plain, way.side if peers else None), "Gb/s",
                Figure.of(rates[own]) if rates[own] else None, way.side if peers else None,
                Figure.of(rates[way]) if peers and rates[way] else None, "; ".join(dict.fromkeys(notes)),
            )  # fmt: skip


def _name(kind: str, plain: bool, peer: str | None) -> str:
    return row_name("kernel", "tcp", kind + ("-plain" if plain else ""), peer)


def _measure(way: Way, options: Options, huge: bool) -> tuple[float, int]:
    """Gigabits a second that arrive, and segments that were sent again."""
    with ExitStack() as stack:
        a, b, f = stack.enter_context(namespaces.spaces("a", "b", "f", quiet=False))
        if way.kind == "packet":
            for host, name in ((a, "a0"), (b, "b0")):
                host.veth("eth", name, f)
        stack.enter_context(_forwarding(way, (a, b, f), options.core, huge))
        for number, host in enumerate((a, b), 1):
            if way.plain:
                host.do("ethtool", "-K", "eth", "tx", "off")
            host.ip("address", "add", f"10.9.0.{number}/24", "dev", "eth")
            host.ip("link", "set", "eth", "up")
        _until_heard(a, "10.9.0.2")
        return _iperf(a, b, "10.9.0.2", 0.7 if options.quick else 2.0)


@contextmanager
def _forwarding(way: Way, spaces: tuple[Space, Space, Space], core: int, huge: bool) -> Iterator[None]:
    """Within, what comes in on one side goes out on the other."""
    a, b, f = spaces
    names = ["a0", "b0"]
    with ExitStack() as stack:
        if way.side == "bridge":
            f.ip("link", "add", "bridge", "type", "bridge")
            for name in names:
                f.ip("link", "set", name, "master", "bridge")
            f.ip("link", "set", "bridge", "up")
        elif way.side == "ours":
            taps = [f"tap:eth,netns={host.name}" for host in (a, b)]
            words = taps if way.kind == "tap" else [f"packet:{name}" for name in names]
            stack.enter_context(Ours(f, Graph([words, words[::-1]], core, busy=False)))
        elif way.side == "ovs":
            stack.enter_context(ovs.bridge(f, names, core, taps=way.kind == "tap"))
        else:
            devices = [testpmd_live.device(way.kind, number, name) for number, name in enumerate(names)]
            stack.enter_context(Testpmd(f, "forward", devices, core, huge)).start()
        if way.kind == "tap" and way.side != "ours":
            for host, name in ((a, "a0"), (b, "b0")):
                f.ip("link", "set", name, "netns", host.name)
                host.ip("link", "set", name, "name", "eth")
        yield


def _until_heard(host: Space, address: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            host.do("ping", "-q", "-c", "1", "-W", "1", address)
            return
        except ToolFailed:
            if time.monotonic() > deadline:
                raise ToolFailed("the hosts never heard each other") from None


def _iperf(a: Space, b: Space, address: str, seconds: float) -> tuple[float, int]:
    with affinity(sorted(os.sched_getaffinity(0))):
        server = subprocess.Popen(b.words("iperf3", "-s", "-1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        said = json.loads(
            a.do(
                "iperf3",
                "-J",
                "-c",
                address,
                "-t",
                f"{max(1, round(seconds))}",
                "--connect-timeout",
                "5000",
                seconds=seconds + 20,
            )
        )
    except subprocess.TimeoutExpired:
        raise ToolFailed("iperf3 hung") from None
    finally:
        server.kill()
        server.wait()
    ended = said["end"]
    return ended["sum_received"]["bits_per_second"] / 1e9, int(ended["sum_sent"].get("retransmits", 0))
