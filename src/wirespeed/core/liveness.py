"""Whether a thread lives, of this process or of another: by its number, and by when it began.

A number alone is used again.  Threads of other PID namespaces cannot be told about.
Source: proc_pid_stat(5), whose files exist for threads as well.
"""

from wirespeed.errors import PortError
from wirespeed.jit.libc import thread_id

NONE = ("X", 0)  # what there is of a thread that is not there
_GONE = "ZXx"  # states of what has ended but is still there: zombie, dead
_U4 = 0xFFFFFFFF


def stat(thread: int) -> tuple[str, int]:
    """State, and when it began in clock ticks since the machine did; raises what keeps that from being known."""
    try:
        with open(f"/proc/{thread}/stat", encoding="ascii", errors="replace") as f:
            # Behind the command, which is in parentheses and may contain any: the state is field 3, this one 22.
            fields = f.read().rpartition(")")[2].split()
            return fields[0], int(fields[19])
    except (FileNotFoundError, ProcessLookupError):  # the second when it ends while we read
        return NONE


def owner_word(thread: int | None = None) -> int:
    """What tells a thread from all others, the calling one's when not given: its number, and when it began above it."""
    number = thread_id() if thread is None else thread
    try:
        began = stat(number)[1]
    except OSError as error:
        raise PortError(error.errno, f"when thread {number} began cannot be told: {error.strerror}") from error
    return number | (began & _U4) << 32


def alive(word: int) -> bool:
    """Whether the thread of an :func:`owner_word` has not ended, as far as is known: whom nothing can be told of lives."""
    try:
        state, began = stat(word & _U4)
    except (OSError, IndexError, ValueError):
        return True
    return state not in _GONE and (began & _U4) == word >> 32
