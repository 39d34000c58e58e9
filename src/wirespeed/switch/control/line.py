"""Requests and answers: each is one line of JSON, an object.  What comes over the socket is bounded and may be anything."""

import json
import socket
from typing import IO, Any

from wirespeed.errors import GraphError, PeerError, PortError
from wirespeed.switch.control.address import connect

MOST_REQUEST = 64 << 20  # bytes; flows for a full switch
MOST_ANSWER = 1 << 30
TIMEOUT_S = 120.0


def read_line(file: IO[bytes], most: int) -> bytes | None:
    """The next line, or None at the end; raises :class:`PeerError` for one that is too long or has no end."""
    line = file.readline(most + 1)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise PeerError(f"a line of more than {most} bytes" if len(line) > most else "a line without its end")
    return line


def encode(value: dict[str, Any]) -> bytes:
    """A line."""
    return json.dumps(value, separators=(",", ":"), default=str).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """What a line says; raises :class:`PeerError` where that is no object of JSON."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"a line that is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise PeerError(f"a line that is no object, but {type(value).__name__}")
    return value


class Client:
    """A connection to a running switch.  :meth:`ask` raises what the switch refuses as :class:`GraphError`."""

    def __init__(self, path: str, timeout: float = TIMEOUT_S) -> None:
        self.path = path
        self._connection = connect(path, timeout)
        self._file = self._connection.makefile("rb")

    def ask(self, command: str, **about: Any) -> dict[str, Any]:
        """Have a command done; what the switch answers."""
        try:
            self._send(encode({"command": command, **about}))
            line = read_line(self._file, MOST_ANSWER)
        except TimeoutError:
            raise PortError(f"the switch at {self.path} does not answer") from None
        except (ConnectionError, PeerError):
            line = None
        if line is None:
            raise PortError(f"the switch at {self.path} ended the connection")
        answer = decode(line)
        if "error" in answer:
            raise GraphError(str(answer["error"]))
        return answer

    def _send(self, line: bytes) -> None:
        try:
            self._connection.sendall(line)
        except BrokenPipeError:
            pass  # it has hung up; why, it may have said

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def shut(connection: socket.socket) -> None:
    """Have whoever waits at a connection wake up."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
