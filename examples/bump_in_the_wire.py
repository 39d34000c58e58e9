"""A bump in the wire: two interfaces become one cable, on which a function says what passes.

sudo python bump_in_the_wire.py packet:eth1 packet:eth2   (tap:lan0, xdp:eth1 and others will do as well; Ctrl-C ends it)
"""

import sys

import wirespeed as ws

FRAME = bytes.fromhex("020000000002 020000000001 0800 45000028 00000000 4006f97e c0a80001 c0a80002")
PORTS = {"telnet": bytes.fromhex("d4310017"), "ssh": bytes.fromhex("d4310016")}  # who calls, and what is called
Counts = ws.layout("Counts", [("passed", "u8"), ("stopped", "u8")])


@ws.function(state=Counts)
def verdict(pkt, my):
    """Stop telnet, whoever calls, and let all else pass."""
    if pkt.tcp.dport == 23 or pkt.tcp.sport == 23:
        my.stopped += 1
        return ws.DROP
    my.passed += 1
    return ws.FORWARD


def cable(one, other):
    """Both directions, each with counts of its own."""
    return one >> verdict >> other, other >> verdict.bind() >> one


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(ws.run(*cable(*map(ws.port, sys.argv[1:])), until=ws.interrupted))
    else:  # without interfaces, and without root: a program at either end
        one, other = ws.port("memory:one"), ws.port("memory:other")
        with ws.start(*cable(one, other)) as running:
            one.push([FRAME + ports + bytes(16) for ports in PORTS.values()])
            print(len(other.pull(timeout=5)), "of", len(PORTS), "passed")
        print(running.report())
