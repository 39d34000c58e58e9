"""A worker's own part of a switch: its cache, its paths, and where it works."""

from wirespeed.core.stage import Head
from wirespeed.jit.layout import layout
from wirespeed.switch.cache import Cache
from wirespeed.switch.path import Paths

MEMOS = 1 << 15
Memo = layout(
    "SwitchMemo",
    [
        ("instance", "u4"),  # of a rule
        ("place", "u4"),  # of the port that the packet came in by
        ("path", "i8"),  # its number
        ("config", "i8"),  # of Shared, when the path was made
        ("folds", "u8"),  # of Paths, then
    ],
)
MEMO = Memo.size

State = layout(
    "SwitchState",
    [
        ("head", Head),
        ("code", "i8"),  # of the stage that does the work: the generic one, or a specialised one
        ("check", "i8"),  # whether what it finds is compared with what the generic one does
        ("shared", "i8"),  # address of Shared
        ("keys", "i8"),  # u8[WORDS] for each packet of a burst
        ("buckets", "i8"),  # i8 for each: the bucket that its key belongs to
        ("flow", "i8"),  # u8[WORDS]
        ("translation", "i8"),  # address of Translation
        ("execution", "i8"),  # address of Execution
        ("shape", "i8"),  # of what is in the cache
        ("memos", "i8"),  # address of Memo[MEMOS]: the paths of rules with one output, by their instance
        ("memo", "i8"),  # address of the one to be written behind a translation, or 0
        ("instance", "u4"),  # whose it will be
        (None, 4),
        ("next_entries", "i8"),  # address of a larger memory for the cache, or 0; the worker takes it and writes 0
        ("next_mask", "u8"),  # buckets less one
        ("translate", "i8"),  # addresses of what is compiled apart
        ("execute", "i8"),
        ("cache", Cache),
        ("paths", Paths),
        # written by the worker, read by the control path
        ("passes", "u8"),  # odd while the worker is inside
        ("version", "i8"),  # that of the burst it is in, or was in last
        ("translated", "u8"),  # flows that went through the tables
        ("uncached", "u8"),  # and of these, too long for a path of their own
        ("checked", "u8"),
        ("differences", "u8"),
        (None, 16),
    ],
)
assert State.size % 64 == 0
