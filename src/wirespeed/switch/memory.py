"""The memory that a switch's control path shares with its workers: tables, groups, ports, and the log of changes.

Theory of operation
-------------------
One writer, the control path, under the switch's lock; workers read without locks.  A change is prepared aside and
becomes visible with the number ``version``, written last with release (V1) and read first with acquire (V2): a rule
is there for version v while ``since <= v < until``.  What is no longer visible is given back only after every worker
was seen outside of a burst, or in a later one.

``log[version % LOG]`` says which flows a version changes: those with ``flow & mask == value``.  A cache entry that is a
few versions old is compared with these instead of being thrown away.
"""

from wirespeed.core.arena import LINE
from wirespeed.jit.layout import layout
from wirespeed.switch.fields import WORDS

TABLES = 256
MOST_PORTS = 255  # places of ports; 255 is none
NO_PLACE = 255
LOG = 1024
ALL_CHANGED, SOME_CHANGED, NOTHING_CHANGED = 0, 1, 2
MOST_TABLE = 254

Shared = layout(
    "SwitchShared",
    [
        ("version", "i8"),
        (None, 56),
        # written seldom
        ("tables", "i8"),  # address of TableRecord[TABLES]
        ("groups", "i8"),  # i8[n_groups]: the address of a group's record by its place, or 0
        ("meters", "i8"),  # address of the table of meters
        ("ports", "i8"),  # address of PortRecord[MOST_PORTS + 1]
        ("port_places", "i8"),  # u1[65536]: the place of a port by its number, NO_PLACE for none
        ("mac_table", "i8"),  # address of the MAC table
        ("log", "i8"),  # address of Change[LOG]
        ("mirrors", "i8"),  # address of MirrorRecord[64]
        ("n_ports", "i8"),  # places in use are below this
        ("n_groups", "i8"),
        ("no_group", "i8"),  # address of the record of a group without buckets
        ("local", "i8"),  # the place of port LOCAL, or NO_PLACE
        ("resubmits", "i8"),  # most look-ups of a packet
        ("depth", "i8"),  # most look-ups inside one another
        ("seed", "u8"),  # of hashes
        ("live", "i8"),  # address of the Live that is in force, published before the rules that need it
        ("config", "i8"),  # raised with each change that is not one of rules
        (None, 56),
    ],
)
assert Shared.size % LINE == 0

LiveWord = layout("SwitchLiveWord", [("word", "i8"), ("mask", "u8")])

# Which bits of a flow any rule, action or hash reads: a key is these bits of these words, in this order.
Live = layout(
    "SwitchLive",
    [
        ("shape", "i8"),  # its number: another one, and keys mean something else
        ("k", "i8"),  # words of a key
        ("hashed", "i8"),  # whether the packet's hash is among them
        ("by_port_hash", "i8"),  # whether they are of the flow only, so that a port's own flow hash chooses well
        ("digest", "u8"),  # of the words and masks: a specialised kernel is for one
        *[(f"live{i}", LiveWord) for i in range(WORDS)],
    ],
)
LIVE_WORDS = Live.offset("live0")

# ``miss``: 0 drops, 1 goes on in the next table, 2 tells the controller.
TableRecord = layout("SwitchTable", [("classifier", "i8"), ("miss", "u4"), (None, 4)])
TABLE_RECORD = TableRecord.size

# What a classifier's entry has as its data.  ``flags`` are those of a flow-mod, and:
ONE_OUTPUT = 1 << 16  # its program sends the packet to one port, or does nothing
RuleRecord = layout(
    "SwitchRule",
    [
        ("program", "i8"),  # address of its words
        ("cookie", "u8"),
        ("rule", "u4"),  # the number of its counters
        ("instance", "u4"),  # another number for each version of its actions
        ("table", "u4"),
        ("flags", "u4"),
    ],
)
assert RuleRecord.size == 32

BucketRecord = layout(
    "SwitchBucket",
    [
        ("program", "i8"),  # address of its words, an action set in the order in which it is done
        ("weight", "u4"),
        ("watch_port", "u4"),  # the port's place, or NO_PLACE
        ("watch_group", "u4"),  # the group's place plus one, or 0
        ("counter", "u4"),
    ],
)
BUCKET = BucketRecord.size
GROUP_ALL, GROUP_SELECT, GROUP_INDIRECT, GROUP_FAILOVER = 0, 1, 2, 3

# A group is one block that is never changed: another version of it is another block.
GroupRecord = layout(
    "SwitchGroup",
    [
        ("buckets", "i8"),  # address of BucketRecord[n_buckets], in the same block as all of its addresses
        ("n_buckets", "u4"),
        ("kind", "u4"),
        ("id", "u4"),
        ("counter", "u4"),
        ("slots", "i8"),  # of a select group: u2 per slot, the bucket that a hash chooses
        ("n_slots", "u4"),  # a power of two
        (None, 4),
    ],
)
GROUP = GroupRecord.size

# Flags of a port.
PORT_DOWN, PORT_NO_RECEIVE, PORT_NO_FLOOD, PORT_NO_FORWARD, PORT_NO_PACKET_IN = 1, 4, 16, 32, 64
LINK_DOWN = 256
MIRROR_OUTPUT = 512  # it is a mirror's output: nothing that comes in by it is forwarded
# How a port treats VLANs with NORMAL.
TRUNK, ACCESS, NATIVE_TAGGED, NATIVE_UNTAGGED = 0, 1, 2, 3

PortRecord = layout(
    "SwitchPort",
    [
        ("number", "u4"),  # OpenFlow's
        ("flags", "u4"),
        ("output", "i4"),  # which output of the stage it is, or -1
        ("vlan_mode", "u4"),
        ("tag", "u4"),
        ("present", "u4"),
        ("trunks", "i8"),  # address of a bit for each VLAN, u8[64], or 0 for all
        ("mirrors_in", "u8"),  # a bit for each mirror that selects what comes in by it
        ("mirrors_out", "u8"),
        (None, 16),
    ],
)
PORT = PortRecord.size
assert PORT == LINE

MirrorRecord = layout(
    "SwitchMirror",
    [
        ("present", "u4"),
        ("output", "u4"),  # the port's place, or NO_PLACE where it is a VLAN
        ("out_vlan", "u4"),
        ("snap", "u4"),  # most bytes, or 0
        ("vlans", "i8"),  # address of a bit for each VLAN that it selects, u8[64], or 0 for all
        ("select_all", "u4"),
        (None, 4),
    ],
)
MIRROR = MirrorRecord.size
MOST_MIRRORS = 32
MOST_GROUPS = 1 << 16
MOST_SLOTS = 4096

Change = layout(
    "SwitchChange",
    [
        ("version", "i8"),
        ("kind", "i8"),  # ALL_CHANGED, SOME_CHANGED (flow & mask == value) or NOTHING_CHANGED
        *[(f"value{i}", "u8") for i in range(WORDS)],
        *[(f"mask{i}", "u8") for i in range(WORDS)],
    ],
)
CHANGE = Change.size
CHANGE_VALUES, CHANGE_MASKS = Change.offset("value0"), Change.offset("mask0")
