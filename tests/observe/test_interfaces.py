"""What is told of interfaces and of obstacles: read from the kernel's answers, of which none is believed blindly."""

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab import laboratory, needs_root
from wirespeed.errors import PortError
from wirespeed.observe import netlink, obstacles
from wirespeed.observe.interfaces import seen
from wirespeed.observe.netlink import ATTRIBUTE, attributes


def packed(*pairs: tuple[int, bytes]) -> bytes:
    return b"".join(
        ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4) for kind, value in pairs
    )


def test_attributes_come_by_their_numbers_without_the_bits_above() -> None:
    assert attributes(packed((3, b"eth0\0"), (4 | 0x8000, b"\x01\x02"), (7, b""))) == {
        3: b"eth0\0",
        4: b"\x01\x02",
        7: b"",
    }


@given(st.binary(max_size=64))
def test_whatever_stands_there_is_read_within_its_bounds(block: bytes) -> None:
    assert sum(map(len, attributes(block).values())) <= len(block)


def test_an_attribute_that_is_cut_short_ends_the_reading() -> None:
    whole = packed((1, b"abcd"), (2, b"efgh"))
    assert attributes(whole[:-1]) == {1: b"abcd"}
    assert attributes(struct.pack("=HH", 3, 1) + whole) == {}


def test_the_loopback_is_seen() -> None:
    (lo,) = [one for one in seen() if one.name == "lo"]
    assert lo.carries and lo.queues[0] >= 1 and lo.attached == ""
    assert lo.mtu == int(Path("/sys/class/net/lo/mtu").read_text())


def test_a_family_that_the_kernel_has_not_is_an_empty_answer() -> None:
    assert list(netlink.generic("no such family", 1)) == []


def test_a_namespace_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PortError, match="no-such-space"):
        seen("no-such-space")


@needs_root
def test_every_interface_of_many_is_seen() -> None:
    with laboratory() as lab:
        for number in range(40):
            lab.veth(f"a/x{number}", f"a/y{number}", up=False)
        lab.ip("a", "link", "add", "bridge0", "type", "bridge")
        found = {one.name: one for one in seen(lab.space("a"))}
    assert set(found) == {"lo", "bridge0", *(f"{end}{number}" for end in "xy" for number in range(40))}
    assert found["bridge0"].kind == "bridge" and not found["bridge0"].up
    assert all(one.kind == "veth" and "native" in one.xdp for name, one in found.items() if name[0] in "xy")


def test_a_port_that_says_itself_what_is_in_its_way_is_believed() -> None:
    class Own:
        NEEDS = "a moon"

        @staticmethod
        def obstacle() -> str:
            return "there is no moon"

    assert obstacles.obstacle("packet", Own) == "there is no moon"
    assert obstacles.needs("packet", Own) == "a moon"
    assert obstacles.obstacle("null", object) is None


@pytest.mark.parametrize(("code", "words"), [
    (errno.EPERM, "CAP_NET_RAW is missing"), (errno.EAFNOSUPPORT, "this kernel has no"), (errno.EMFILE, "Too many open"),
])  # fmt: skip
def test_a_socket_that_does_not_open_says_why(code: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **more: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(socket, "socket", refuse)
    for kind in ("packet", "xdp"):
        said = obstacles.obstacle(kind, object)
        assert said is not None and words in said


@pytest.mark.parametrize(("code", "words"), [
    (errno.ENOENT, "there is no /dev/net/tun: modprobe tun"), (errno.EACCES, "cannot be opened: Permission denied"),
])  # fmt: skip
def test_a_device_that_does_not_open_says_why(code: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **more: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    said = obstacles.obstacle("tap", object)
    assert said is not None and words in said
