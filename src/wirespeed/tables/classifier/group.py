"""What a classifier's groups have in common; a look-up searches one after the other.

A group is a tuple (``slots.py``) or a set of prefixes (``prefixes.py``); each entry is in one group.  These are the fields
with which the record of either begins; they are the writer's.
"""

TUPLE, PREFIXES = 0, 1

GROUP = [
    ("priority", "i8"),  # no entry's is higher; -1 when there is none
    ("length", "i8"),  # entries
    ("removed", "i8"),  # entries of the highest priority that went since ``priority`` was exact
    ("following", "i8"),  # another group, or 0
    ("chains", "i8"),
    ("used", "i8"),  # slots with a chain or a tombstone
    ("tombstone", "i8"),  # address of an entry that is never visible
    ("number", "u4"),  # never given to two groups of a classifier; odd for a set of prefixes
    ("kind", "u2"),  # TUPLE or PREFIXES
    ("most", "u2"),  # entries of a chain, or 0 for any number
]
