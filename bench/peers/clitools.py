"""The command-line tools in C: tcpdump, capinfos, editcap, tcprewrite and tshark."""

import os

from bench.peers import Tool

# No packet of the captures has this port, so the filter runs over every packet and nothing is printed or written.
NOWHERE = "udp and dst port 53"
# The flows of the captures have eight ports in turn, of which this is the first.
EIGHTH = "udp and dst port 2000"
# As root tcpdump would change to a user of its own, who may not read the captures.
AS_WE_ARE = ["-Z", "root"] if os.geteuid() == 0 else []

TOOLS = (
    Tool(
        "tcpdump",
        "tcpdump",
        {"count": lambda source, _: ["tcpdump", *AS_WE_ARE, "-r", str(source), "-w", "/dev/null", NOWHERE]},
        repeats=3,
        remark="a filter that matches nothing; no flow table",
    ),
    Tool(
        "tcpdump-eighth",
        "tcpdump",
        {"count": lambda source, _: ["tcpdump", *AS_WE_ARE, "-r", str(source), "-w", "/dev/null", EIGHTH]},
        repeats=3,
        remark="a filter that every eighth packet passes, to /dev/null; no flow table",
    ),
    Tool(
        "capinfos",
        "capinfos",
        {"count": lambda source, _: ["capinfos", "-c", str(source)]},
        repeats=3,
        remark="counts packets only",
    ),
    Tool(
        "tshark",
        "tshark",
        {"count": lambda source, _: ["tshark", "-n", "-q", "-r", str(source), "-z", "conv,udp"]},
        shares=(20_000, 100_000),
        quick_shares=(5_000, 20_000),
        remark="its table of conversations",
    ),
    Tool(
        "editcap",
        "editcap",
        {"rewrite": lambda source, target: ["editcap", "-F", "pcap", str(source), str(target)]},
        remark="copies; changes nothing",
    ),
    Tool(
        "tcprewrite",
        "tcprewrite",
        {
            "rewrite": lambda source, target: [
                "tcprewrite", "--ttl=-1", f"--infile={source}", f"--outfile={target}"
            ]
        },
        remark="--ttl=-1",
    ),
    Tool(
        "tcprewrite-dmac",
        "tcprewrite",
        {
            "rewrite": lambda source, target: [
                "tcprewrite", "--enet-dmac=02:00:00:00:00:05", f"--infile={source}", f"--outfile={target}"
            ]
        },
        remark="--enet-dmac; no checksum to mend",
    ),
)  # fmt: skip
