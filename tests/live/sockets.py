"""Plain sockets inside namespaces: whole frames as they are on the wire, and small messages that go to and fro."""

import contextlib
import socket
import struct
import threading

from tests.lab import Lab
from wirespeed.ports.link.namespace import inside

SOL_PACKET, PACKET_AUXDATA, ETH_P_ALL = 263, 8, 0x0003  # include/uapi/linux/if_packet.h, if_ether.h
VLAN_VALID, TPID_VALID = 1 << 4, 1 << 6  # TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID
AUXDATA = struct.Struct("=IIIHHHH")  # struct tpacket_auxdata
PATIENCE_S = 20.0


def frame_socket(lab: Lab, host: str) -> socket.socket:
    """A socket for whole frames on the interface of a host, which is told of tags that the kernel took off."""
    with inside(lab.space(host)):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.bind(("eth", ETH_P_ALL))
    made.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    made.settimeout(PATIENCE_S)
    return made


def receive_frame(source: socket.socket, source_address: bytes) -> bytes:
    """The next frame from an Ethernet address, with the outer tag back where it was."""
    while True:
        data, extra, _, came = source.recvmsg(65536, 256)
        if data[6:12] != source_address or came[2] == socket.PACKET_OUTGOING:
            continue
        for level, kind, said in extra:
            if (level, kind) != (SOL_PACKET, PACKET_AUXDATA):
                continue
            status, _, _, _, _, tci, tpid = AUXDATA.unpack(said[: AUXDATA.size])
            if status & VLAN_VALID:
                data = data[:12] + struct.pack(">HH", tpid if status & TPID_VALID else 0x8100, tci) + data[12:]
        return data


def send_file(
    lab: Lab, sender: str, receiver: str, address: str, data: bytes, ports: tuple[int, int] | None = None
) -> bytes:
    """Send bytes over one TCP connection; what has arrived at its end.

    ``ports`` are the one that is called and the one that answers, where somebody on the way makes one of the other.
    """
    called, answering = ports or (0, 0)
    with inside(lab.space(receiver)):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket.create_server((address, answering), family=family)
    with inside(lab.space(sender)):
        client = socket.socket(server.family)
    client.settimeout(PATIENCE_S)
    server.settimeout(PATIENCE_S)
    with server, client:
        client.connect((address, called or server.getsockname()[1]))
        connection, _ = server.accept()
        sending = threading.Thread(target=_send_whole, args=(client, data))
        sending.start()
        with connection:
            connection.settimeout(PATIENCE_S)
            got = bytearray()
            while piece := connection.recv(1 << 20):
                got += piece
        sending.join()
    return bytes(got)


def _send_whole(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(TimeoutError):  # what did not arrive tells
        client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def ping_pong(lab: Lab, address: str, messages: list[bytes]) -> list[bytes]:
    """Send small messages over one TCP connection from host a, each after the answer to the last; the answers."""
    with inside(lab.space("b")):
        server = socket.create_server((address, 0))
    with server:
        answering = threading.Thread(target=_answer, args=(server, [len(m) for m in messages]))
        answering.start()
        try:
            with inside(lab.space("a")):
                client = socket.socket()
            with client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.settimeout(PATIENCE_S)
                client.connect(server.getsockname())
                answers = []
                for message in messages:
                    client.sendall(message)
                    answers.append(_exactly(client, len(message)))
                return answers
        finally:
            server.settimeout(0.01)  # so that a server whose client never came does not wait on
            answering.join()


def _answer(server: socket.socket, sizes: list[int]) -> None:
    server.settimeout(PATIENCE_S)
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return
    with connection:
        connection.settimeout(PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in sizes:
            connection.sendall(_exactly(connection, size)[::-1])


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = connection.recv(size - len(got))
        assert piece, "the other side has hung up"
        got += piece
    return got
