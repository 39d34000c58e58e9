"""The kernel that runs filter programs, and the checks before it, against plain Python and against Linux itself.

Linux takes a filter on any socket, so that a pair of Unix datagram sockets is enough to have it check a program, and to
run it over a frame: what does not match never arrives.
"""

import ctypes
import random
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.filter.explore import explore
from tests.net.frames import Edge
from wirespeed.net import filter as pcap_filter
from wirespeed.net.filter import FilterError, Instruction, interpret
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.check import CODES, validate
from wirespeed.net.filter.interpreter import image, run

i64 = np.int64
SO_ATTACH_FILTER = 26  # include/uapi/asm-generic/socket.h
EXPRESSIONS = (
    "tcp port 80 or 90 and not vlan",
    "ip[ip[0] & 15] + 4 > len / 3 and ip[2:2] * 0x12345678 / 3 % 1000 ^ 5 != 77",
    "ip6 host fe80::1 or icmp6[icmp6type] = icmp6-echo or arp host 10.0.0.1",
    "vxlan 5 or geneve and udp port 53",
    "ether[4:4] * ether[8:4] = ether[12:4] * ether[0:4] or ether[0] / ether[1] > 3 or ether[2] % ether[3] = 1",
    "vlan and vlan 7 and ip multicast",
    "mpls 9 and mpls and host 1.2.3.4",
    "decnet src 10.5",
)
LOOPS_AND_SHIFTS = (
    "ip6 protochain 17 or ip protochain 6",
    "(ether[0] << ether[1]) + (ether[2:4] >> ether[3]) - -ether[4] | 6 & 2 != 9",
)


@pytest.fixture(scope="module")
def edge() -> Edge:
    return Edge()


def ran(program: np.ndarray, edge: Edge, frame: bytes, wire: int) -> int:
    """What the kernel returns for a frame behind whose last byte no memory can be read."""
    at = edge.high(frame)
    return int(run(i64(program.ctypes.data), i64(len(program)), i64(at), i64(len(frame)), i64(wire)))


def frames(expression: str) -> Iterator[bytes]:
    """Frames that lead a filter down its different ways, whole and cut."""
    program = pcap_filter.compile(expression).instructions
    chance = random.Random(expression)
    for frame, _, ends in explore(program, [bytes(200), chance.randbytes(200)], 400):
        yield frame
        for end in ends:
            yield from (frame[: max(end - 1, 0)], frame[:end])


@pytest.mark.parametrize("expression", (*EXPRESSIONS, *LOOPS_AND_SHIFTS))
def test_the_kernel_returns_what_the_reference_does(expression: str, edge: Edge) -> None:
    program = pcap_filter.compile(expression, snaplen=77)
    code = image(program)
    answers = set()
    for frame in frames(expression):
        want = interpret(program, frame, 200)
        assert ran(code, edge, frame, 200) == want, frame.hex()
        answers.add(want)
    assert answers == {0, 77}


def attached(program: bytes, n: int) -> tuple[socket.socket, socket.socket] | None:
    """Two sockets, the second with a filter; None if Linux does not take the program."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(Program(n, program)))
    except OSError:
        sender.close()
        receiver.close()
        return None
    receiver.setblocking(False)
    return sender, receiver


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_linux_lets_through_what_the_reference_does(expression: str) -> None:
    program = pcap_filter.compile(expression)
    pair = attached(program.to_bytes(), len(program))
    assert pair
    sender, receiver = pair
    answers = set()
    with sender, receiver:
        for frame in frames(expression):
            if not frame:
                continue
            sender.send(frame)
            try:
                got = receiver.recv(1000) == frame
            except BlockingIOError:
                got = False
            assert got == bool(interpret(program, frame)), frame.hex()
            answers.add(got)
    assert answers == {True, False}


INSTRUCTIONS = st.builds(
    Instruction,
    st.sampled_from(sorted(CODES)) | st.integers(0, 0xFFFF),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([0, 1, 2, 3, 15, 16, 31, 32, 0xFFFFF004, 0xFFFFF040, 0xFFFFFFFF, 0x80000000]),
)
LAST = st.sampled_from([Instruction(op.RET | op.K, 0, 0, 9), Instruction(op.RET | op.A, 0, 0, 0)])


@given(st.lists(INSTRUCTIONS, max_size=5), LAST | INSTRUCTIONS)
def test_linux_takes_the_programs_that_the_check_takes(body: list[Instruction], last: Instruction) -> None:
    program = [*body, last]
    packed = b"".join(pcap_filter.program.SOCK_FILTER.pack(*one) for one in program)
    pair = attached(packed, len(program))
    try:
        validate(program)
    except FilterError:
        assert pair is None
    else:
        assert pair is not None
        for end in pair:
            end.close()


@given(st.lists(INSTRUCTIONS, max_size=8), LAST, st.binary(max_size=40))
def test_any_checked_program_runs_within_its_frame_and_to_its_end(
    edge: Edge, body: list[Instruction], last: Instruction, frame: bytes
) -> None:
    program = (*body, last)
    try:
        validate(program, loops=True)
    except FilterError:
        return
    result = ran(image(program), edge, frame, len(frame))
    try:
        validate(program)
    except FilterError:
        return  # It may go back, for ever in the reference.
    assert result == interpret(program, frame)


def test_a_program_that_would_never_end_returns_nothing(edge: Edge) -> None:
    back = (
        Instruction(op.LD | op.IMM, 0, 0, 1),
        Instruction(op.JMP | op.JA, 0, 0, 0xFFFFFFFE),
        Instruction(op.RET | op.K, 0, 0, 5),
    )
    assert ran(image(back), edge, bytes(60), 60) == 0
