"""Where the control socket of a switch is, and whose it may be.

A socket is in the user's own folder for such things (``XDG_RUNTIME_DIR``), else in ``/tmp`` with the user's number in its
name.  There others could have put one first, so both sides ask the kernel who is at the other end, and talk only to the
same user (or to root).
"""

import os
import re
import socket
import stat
import struct
from pathlib import Path

from wirespeed.errors import GraphError, PortError

DEFAULT_NAME = "switch"
LONGEST = 107  # bytes of a socket's path, sun_path of unix(7) less its end
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CREDENTIALS = struct.Struct("iII")  # struct ucred of unix(7): pid, uid, gid


def path_of(name: str) -> str:
    """The path of the socket of a switch by its name; a name with a slash is a path already."""
    if "/" in name:
        path = name
    elif not _NAME.fullmatch(name):
        raise GraphError(f"a switch's name is letters, digits and _ . -, at most 64, got {name!r}")
    else:
        folder = os.environ.get("XDG_RUNTIME_DIR", "")
        own = folder and os.path.isdir(folder)
        path = f"{folder}/wirespeed-{name}.sock" if own else f"/tmp/wirespeed-{os.getuid()}-{name}.sock"
    if len(os.fsencode(path)) > LONGEST:
        raise GraphError(f"a socket's path has at most {LONGEST} bytes, got {path!r}; give a shorter one")
    return path


def peer_uid(connection: socket.socket) -> int:
    """The user at the other side."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(content)[1]
    return uid


def is_ours(connection: socket.socket) -> bool:
    """Whether the other side is the same user, or root."""
    return peer_uid(connection) in (os.getuid(), 0)


def listen(path: str) -> socket.socket:
    """A socket that listens at a path, for its user alone; one that a dead process has left there is replaced."""
    _make_room(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)  # the file must never be there with more rights, not for a moment
    try:
        server.bind(path)
        server.listen(128)
    except OSError as error:
        server.close()
        raise PortError(f"control socket {path}: {error.strerror}; name another with --control PATH") from None
    finally:
        os.umask(before)
    return server


def _make_room(path: str) -> None:
    """Take away what a dead process left; raise where somebody lives, or something else is."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PortError(f"control socket {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise PortError(f"control socket {path}: something else is there already; name another with --control PATH")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            Path(path).unlink(missing_ok=True)
            return
        except OSError as error:
            raise PortError(f"control socket {path}: {error.strerror}; name another with --control PATH") from None
    raise PortError(f"control socket {path}: a switch listens there already; give this one another --name")


def connect(path: str, timeout: float) -> socket.socket:
    """A connection to the switch that listens at a path."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # A connection that nobody has accepted yet is waited for; with settimeout it would be refused at once.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout) + 1, 0))
    try:
        connection.connect(path)
        connection.settimeout(timeout)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise PortError(f"no switch listens at {path}; start `wirespeed switch`, or name it with --name") from None
    except OSError as error:
        connection.close()
        raise PortError(f"control socket {path}: {error.strerror}") from None
    if not is_ours(connection):
        connection.close()
        raise PortError(f"control socket {path}: it belongs to another user")
    return connection
