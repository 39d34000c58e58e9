"""What a filter costs a packet: ours, compiled to machine code, beside libpcap's ``bpf_filter`` over the same frames.

Each side has its own compiler's program of an expression, and a loop of its own, compiled, over the same frames in
memory, on one core; both have to match the same number of frames. ``64B`` is UDP over IPv4 alone, which a core learns to
predict, ``mixed`` has TCP, UDP, IPv6, tags and ARP in random order.
"""

from collections import defaultdict
from collections.abc import Iterator

from bench.harness import Figure, Options, Row, ToolFailed, affinity, row_name, say
from bench.peers import libpcap

PEER = "libpcap"
ROUNDS = 9  # for each of the runs asked for
CASES = {
    "ip": "ip",
    "udp": "udp",
    "port": "port 53",
    "tcp-port": "tcp port 80",
    "host": "host 10.0.0.1",
    "vlan": "vlan and tcp",
    "flags": "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and net 192.168.0.0/16",
    "complex": "tcp port 80 and not vlan and (host 10.0.0.1 or net 192.168.0.0/16)",
    "payload": "ip and tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420",
}


def run(options: Options) -> Iterator[Row]:
    """Measure each expression over each kind of traffic."""
    from bench import filter_loops
    from wirespeed.jit import bpf
    from wirespeed.net import filter as pcap_filter

    reason = libpcap.missing() if options.peer else None
    theirs = None
    if options.peer and not reason:
        try:
            theirs = libpcap.Libpcap()
            say(theirs.version)
        except ToolFailed as error:
            reason = f"failed: {error}"
    if reason:
        say(reason)
    peer = PEER if options.peer else None
    traffic = {"64B": filter_loops.udp64(), "mixed": filter_loops.mixed()}
    with affinity({options.core}):
        for case, expression in CASES.items():
            code = bpf.compile(pcap_filter.compile(expression).instructions)
            program = theirs.compile(expression) if theirs else None
            for variant, frames in traffic.items():
                name = row_name("filter", case, variant, peer)
                if not options.wants(name):
                    continue
                samples: dict[str, list[float]] = defaultdict(list)
                note = reason or ""
                frames.measure(code.address)  # the first pass of a side meets cold caches and an untaught predictor
                if theirs and program:
                    theirs.measure(program, frames.places, frames.n)
                for _ in range(options.runs * ROUNDS):
                    took, ours = frames.measure(code.address)
                    samples["ours"].append(took / frames.n)
                    if theirs and program:
                        took, found = theirs.measure(program, frames.places, frames.n)
                        samples["theirs"].append(took / frames.n)
                        if found != ours:
                            note = f"ours matches {ours} of {frames.n}, theirs {found}"
                their = Figure.of(samples["theirs"]) if samples["theirs"] else None
                yield Row(name, "cycles/packet", Figure.of(samples["ours"]), peer, their, note, {"filter": expression})
