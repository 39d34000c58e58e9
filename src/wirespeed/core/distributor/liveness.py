"""Whether a thread lives, of this process or of another: by its number, and by when it began.

A number alone is used again.  Threads of other PID namespaces cannot be told about; a distributor and its workers are
in one.
Source: proc_pid_stat(5), whose files exist for threads as well.
"""

from wirespeed.jit.libc import thread_id

_GONE = "ZXx"  # states of what has ended but is still there: zombie, dead
_U4 = 0xFFFFFFFF


def _stat(thread: int) -> tuple[str, int] | None:
    """State, and when it began in clock ticks since the machine did; None when there is none of that number."""
    try:
        with open(f"/proc/{thread}/stat", encoding="ascii", errors="replace") as f:
            # Behind the command, which is in parentheses and may contain any: the state is field 3, this one 22.
            fields = f.read().rpartition(")")[2].split()
            return fields[0], int(fields[19])
    except (OSError, IndexError):  # it may end while we read
        return None


def owner_word(thread: int | None = None) -> int:
    """What tells a thread from all others, the calling one's when not given: its number, and when it began above it."""
    number = thread_id() if thread is None else thread
    found = _stat(number)
    return number | ((found[1] if found else 0) & _U4) << 32


def alive(word: int) -> bool:
    """Whether the thread of an :func:`owner_word` has not ended."""
    found = _stat(word & _U4)
    return found is not None and found[0] not in _GONE and (found[1] & _U4) == word >> 32
