"""The XDP program: which frames of a queue go to its socket, and which go on to the kernel.

Theory of operation
-------------------
A program is assembled here from what the user wants, a few instructions for each *rule*.  It reads the type of the frame,
behind up to two VLAN tags, and, where a rule asks for it, the IP protocol and the two ports, into registers; then it
compares.  What a rule of ``leave`` matches goes on to the kernel; of the rest, all goes to the socket of its queue, or
what a rule of ``take`` matches.  A queue without a socket has all of its frames go on to the kernel.

A rule with a port means either port, and no later fragment, which has none.  IPv6 extension headers are not walked: a
rule of a protocol matches where that protocol's header follows the IPv6 header at once.

*Source:* Documentation/bpf/standardization/instruction-set.rst, include/uapi/linux/bpf.h.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from wirespeed.ports.options import Wanted

# Opcodes: class | size or operation | mode or source (instruction-set.rst, "Instruction classes").
LOAD_U8, LOAD_U16, LOAD_U32, LOAD_IMM64 = 0x71, 0x69, 0x61, 0x18
MOVE, MOVE_IMM, ADD, ADD_IMM, AND_IMM, SHIFT_LEFT_IMM = 0xBF, 0xB7, 0x0F, 0x07, 0x57, 0x67
JUMP, JUMP_EQ_IMM, JUMP_NE_IMM, JUMP_GT, CALL, EXIT = 0x05, 0x15, 0x55, 0x2D, 0x85, 0x95
PSEUDO_MAP_FD = 1
REDIRECT_MAP = 51  # enum bpf_func_id
XDP_PASS = 2  # enum xdp_action
# struct xdp_md
DATA, DATA_END, RX_QUEUE_INDEX = 0, 4, 16
# What is in which register once the frame is parsed: those that calls leave alone.
CONTEXT, PROTOCOL, SOURCE_PORT, TARGET_PORT = 6, 7, 8, 9
TYPE, NONE = 5, 0x10000  # no type, protocol or port

ETHER_IPV4, ETHER_IPV6, ETHER_TAG, ETHER_SERVICE_TAG = 0x0800, 0x86DD, 0x8100, 0x88A8
TYPES = {"arp": 0x0806, "ip": ETHER_IPV4, "ip6": ETHER_IPV6, "lldp": 0x88CC}
PROTOCOLS = {"icmp": 1, "icmp6": 58, "tcp": 6, "udp": 17, "sctp": 132}
EXAMPLE = "arp,icmp,tcp/22"


class Rule(NamedTuple):
    """What a frame must have: an Ethernet type, or an IP protocol and perhaps a port."""

    ether: int | None
    protocol: int | None
    port: int | None


def rules(value: Any) -> tuple[Rule, ...]:
    """Parse ``arp,icmp,tcp/22``: names of types and protocols, ports behind a slash, ``ether/0x88cc``, ``proto/47``."""
    words = value.split(",") if isinstance(value, str) else list(value)
    return tuple(_rule(str(word).strip().lower()) for word in words)


def _rule(word: str) -> Rule:
    name, slash, number = word.partition("/")
    wanted = Wanted(
        f"a list of {', '.join(TYPES)}, icmp, icmp6, tcp, udp, sctp, tcp/22, ether/0x88cc, proto/47", EXAMPLE
    )
    if not slash and name in TYPES:
        return Rule(TYPES[name], None, None)
    if not slash and name in PROTOCOLS:
        return Rule(None, PROTOCOLS[name], None)
    try:
        value = int(number, 0)
    except ValueError:
        raise wanted from None
    if name == "ether" and 0x600 <= value <= 0xFFFF:
        return Rule(value, None, None)
    if name == "proto" and 0 <= value <= 255:
        return Rule(None, value, None)
    if name in ("tcp", "udp", "sctp") and 0 <= value <= 0xFFFF:
        return Rule(None, PROTOCOLS[name], value)
    raise wanted


class Assembler:
    """Instructions with labels to jump to."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int | str, int]] = []
        self._labels: dict[str, int] = {}
        self._names = 0

    def add(self, opcode: int, to: int = 0, source: int = 0, offset: int | str = 0, value: int = 0) -> None:
        """One instruction; an offset that is text is a label."""
        self._code.append((opcode, to, source, offset, value))

    def load_map(self, to: int, map_fd: int) -> None:
        """A map's address, an instruction of two words."""
        self.add(LOAD_IMM64, to, PSEUDO_MAP_FD, 0, map_fd)
        self.add(0)

    def label(self, name: str) -> None:
        """Where jumps to ``name`` go."""
        self._labels[name] = len(self._code)

    def fresh(self) -> str:
        """A label that is not used yet."""
        self._names += 1
        return f"label {self._names}"

    def assemble(self) -> bytes:
        """The program: 8 bytes for each word (struct bpf_insn)."""
        code = b""
        for at, (opcode, to, source, offset, value) in enumerate(self._code):
            jump = self._labels[offset] - at - 1 if isinstance(offset, str) else offset
            code += struct.pack("=BBhi", opcode, to | source << 4, jump, value)
        return code


def program(map_fd: int, take: Sequence[Rule] | None, leave: Sequence[Rule]) -> bytes:
    """The program for a map of sockets.  ``take`` None takes all that is not left."""
    a = Assembler()
    a.add(MOVE, CONTEXT, 1)
    if leave or take is not None:
        _parse(a)
        _compare(a, leave, "pass")
        if take is not None:
            _compare(a, take, "redirect")
            a.add(JUMP, offset="pass")
    a.label("redirect")
    a.load_map(1, map_fd)
    a.add(LOAD_U32, 2, CONTEXT, RX_QUEUE_INDEX)
    a.add(MOVE_IMM, 3, value=XDP_PASS)  # what happens when the queue has no socket
    a.add(CALL, value=REDIRECT_MAP)
    a.add(EXIT)
    if leave or take is not None:  # the verifier refuses instructions that nothing leads to
        a.label("pass")
        a.add(MOVE_IMM, 0, value=XDP_PASS)
        a.add(EXIT)
    return a.assemble()


def _network(value: int) -> int:
    """A 16-bit number as the machine reads it out of a frame."""
    return int(struct.unpack("=H", struct.pack(">H", value))[0])


def _need(a: Assembler, base: int, size: int, otherwise: str) -> None:
    """Go on only where ``size`` bytes from the pointer in ``base`` are in the frame (register 3 is its end)."""
    a.add(MOVE, 0, base)
    a.add(ADD_IMM, 0, value=size)
    a.add(JUMP_GT, 0, 3, otherwise)


def _parse(a: Assembler) -> None:
    """Type, protocol and ports of the frame into their registers; 1 is the pointer that moves along."""
    for register in (TYPE, PROTOCOL, SOURCE_PORT, TARGET_PORT):
        a.add(MOVE_IMM, register, value=NONE)
    a.add(LOAD_U32, 1, CONTEXT, DATA)
    a.add(LOAD_U32, 3, CONTEXT, DATA_END)
    _need(a, 1, 14, "parsed")
    a.add(LOAD_U16, TYPE, 1, 12)
    a.add(ADD_IMM, 1, value=14)
    for _ in range(2):
        tag, behind = a.fresh(), a.fresh()
        a.add(JUMP_EQ_IMM, TYPE, 0, tag, _network(ETHER_TAG))
        a.add(JUMP_NE_IMM, TYPE, 0, behind, _network(ETHER_SERVICE_TAG))
        a.label(tag)
        _need(a, 1, 4, "parsed")
        a.add(LOAD_U16, TYPE, 1, 2)
        a.add(ADD_IMM, 1, value=4)
        a.label(behind)
    a.add(JUMP_EQ_IMM, TYPE, 0, "ipv6", _network(ETHER_IPV6))
    a.add(JUMP_NE_IMM, TYPE, 0, "parsed", _network(ETHER_IPV4))
    _need(a, 1, 20, "parsed")
    a.add(LOAD_U8, PROTOCOL, 1, 9)
    a.add(LOAD_U16, 2, 1, 6)
    a.add(AND_IMM, 2, value=_network(0x1FFF))  # RFC 791, 3.1: the fragment offset
    a.add(JUMP_NE_IMM, 2, 0, "parsed", 0)
    a.add(LOAD_U8, 2, 1, 0)
    a.add(AND_IMM, 2, value=0xF)
    a.add(SHIFT_LEFT_IMM, 2, value=2)
    a.add(ADD, 1, 2)
    a.add(JUMP, offset="ports")
    a.label("ipv6")
    _need(a, 1, 40, "parsed")
    a.add(LOAD_U8, PROTOCOL, 1, 6)
    a.add(ADD_IMM, 1, value=40)
    a.label("ports")
    _need(a, 1, 4, "parsed")
    a.add(LOAD_U16, SOURCE_PORT, 1, 0)
    a.add(LOAD_U16, TARGET_PORT, 1, 2)
    a.label("parsed")


def _compare(a: Assembler, wanted: Sequence[Rule], target: str) -> None:
    """Jump to ``target`` when one of the rules matches."""
    for rule in wanted:
        behind = a.fresh()
        if rule.ether is not None:
            a.add(JUMP_EQ_IMM, TYPE, 0, target, _network(rule.ether))
        elif rule.port is None:
            a.add(JUMP_EQ_IMM, PROTOCOL, 0, target, rule.protocol or 0)
        else:
            a.add(JUMP_NE_IMM, PROTOCOL, 0, behind, rule.protocol or 0)
            a.add(JUMP_EQ_IMM, SOURCE_PORT, 0, target, _network(rule.port))
            a.add(JUMP_EQ_IMM, TARGET_PORT, 0, target, _network(rule.port))
        a.label(behind)
