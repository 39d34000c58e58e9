"""Who listens at the control socket of a switch.

Theory of operation
-------------------
A thread accepts, and each connection has a thread of its own, so that one who says nothing, or takes no answer, holds up
nobody.  Whatever a request is, it is answered: an error is a sentence, and the switch goes on.  What is no line at all is
told so and hung up on.

Thread rules: requests of different connections take turns at the switch's own lock.
"""

import logging
import os
import socket
import threading
from typing import Any

from wirespeed.errors import PeerError, WirespeedError
from wirespeed.switch.control.address import is_ours, listen
from wirespeed.switch.control.line import MOST_REQUEST, decode, encode, read_line, shut
from wirespeed.switch.control.request import Desk

MOST_CLIENTS = 32
SEND_S = 30.0  # after so long, a client that takes no answer is hung up on
log = logging.getLogger("wirespeed")


class Server:
    """Listens at ``path`` until it is closed; a context manager.  ``desk`` does what is asked."""

    def __init__(self, desk: Desk, path: str) -> None:
        self.desk, self.path = desk, path
        self._socket = listen(path)
        self._inode = os.stat(path).st_ino
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="wirespeed control", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                full = self._closed or len(self._clients) >= MOST_CLIENTS
                if not full and is_ours(connection):
                    thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                    self._clients[connection] = thread
                    thread.start()
                    continue
            connection.settimeout(0)
            why = f"there are {MOST_CLIENTS} clients already" if full else "this switch belongs to another user"
            _send(connection, {"error": why})
            connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as file:
                self._answer_all(connection, file)
        except OSError:
            pass  # it has hung up, or takes nothing
        finally:
            with self._lock:
                self._clients.pop(connection, None)

    def _answer_all(self, connection: socket.socket, file: Any) -> None:
        while not self._closed:
            try:
                connection.settimeout(None)
                line = read_line(file, MOST_REQUEST)
            except PeerError as error:
                _send(connection, {"error": f"got {error}, wanted a line of JSON"})
                return
            if line is None:
                return
            connection.settimeout(SEND_S)
            connection.sendall(encode(self.answer(line)))

    def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to a request, whatever that is."""
        try:
            return self.desk.do(decode(line))
        except PeerError as error:
            return {"error": f"got {error}, wanted an object of JSON with a command"}
        except WirespeedError as error:
            return {"error": str(error)}
        except Exception as error:  # a fault of ours must not end a switch that forwards
            log.exception("control socket")
            return {"error": f"a fault of the switch: {type(error).__name__}: {error}"}

    def close(self) -> None:
        """Listen no more, hang up on all, and take the socket away.  Closing twice is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            clients = list(self._clients)
            threads = list(self._clients.values())
        shut(self._socket)
        self._socket.close()
        for connection in clients:
            shut(connection)
        for thread in (self._thread, *threads):
            thread.join(SEND_S)
        try:
            if os.stat(self.path).st_ino == self._inode:  # another switch may have it by now
                os.unlink(self.path)
        except OSError:
            pass

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def _send(connection: socket.socket, answer: dict[str, Any]) -> None:
    try:
        connection.sendall(encode(answer))
    except OSError:
        pass
