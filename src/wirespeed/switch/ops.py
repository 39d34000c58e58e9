"""What is to be done with a packet, as 64-bit words: made by :mod:`wirespeed.switch.translate`, done by the executor.

An op is one word, ``code | words << 16 | argument << 32``, and as many more words as its code has.  Ops are in the
order in which they are done, on the packet as it then is; END ends them.  What is known only when the packet is
there (a meter, the MAC table, the VLAN of a port, mirrors) is looked up by the executor.
"""

END = 0
OUT = 1  # argument: the port's place; word: most bytes, or 0
EDIT = 2  # argument: a word of the flow; words: value and mask, in place: those header bits become these
PUSH_VLAN = 3  # argument: its type; word: its control information
POP_VLAN = 4
PUSH_MPLS = 5  # argument: its type; word: its label stack entry
POP_MPLS = 6  # argument: the type of what is behind
DEC_TTL = 7
DEC_MPLS_TTL = 8
METER = 9  # argument: its place; a packet that it does not pass is dropped
NORMAL = 10  # as a learning switch does
CONTROLLER = (
    11  # argument: most bytes; words: reason | table << 8 | number of what else is to be told << 32, cookie, metadata
)
CLONE = 12  # the words behind it, which ``words`` counts, are done with a copy
DROP = 13  # argument: why, a number of the stage's own drop reasons; the last op of a path that sends nothing

# Why a packet was told to a controller, OpenFlow 1.5.1, 7.4.1.
NO_MATCH, ACTION, INVALID_TTL, ACTION_SET_REASON, GROUP_REASON = 0, 1, 2, 3, 4
