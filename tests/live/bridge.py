"""Two hosts, each the kernel's own stack in a namespace, and a bridge of ours between them.

Each host has one interface, ``eth``.  Behind it stands a port: of a packet or xdp port it is one end of a veth pair,
whose other end is in the namespace of the bridge; of a tap port it is the tap itself.  Nothing about offloads is
changed: what the kernel hands over by default is what the ports must cope with.
"""

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab import Lab, laboratory

HOSTS = ("a", "b")
PROGRAMS = ("iperf3", "ping", "nstat", "ethtool")
KERNEL = "kernel"  # the kind of bridge that is Linux's own: what every test here holds for, whoever forwards
PATIENCE_S = 60.0
Join = Callable[[Lab, Any, Any], list[Any]]


@dataclass
class Bridge:
    """A laboratory with hosts ``a`` and ``b``, joined; ``running`` is our run, None where the kernel forwards."""

    lab: Lab
    kinds: tuple[str, str]
    running: Any

    def address(self, host: str, version: int = 4) -> str:
        """The address of a host."""
        number = HOSTS.index(host) + 1
        return f"10.7.0.{number}" if version == 4 else f"fd07::{number}"

    def set_up(self, host: str) -> None:
        """Set a host's interface up and give it its addresses."""
        self.lab.ip(host, "link", "set", "eth", "up")
        self.lab.address(f"{host}/eth", f"{self.address(host, 4)}/24", f"{self.address(host, 6)}/64")

    def lose_and_make_again(self, host: str) -> None:
        """Delete a host's interface, and have one of its name."""
        self.lab.ip(host, "link", "del", "eth")
        if self.kinds[HOSTS.index(host)] != "tap":
            self.lab.veth(f"{host}/eth", f"f/{host}0")
            if self.running is None:
                self.lab.ip("f", "link", "set", f"{host}0", "master", "bridge")
        deadline = time.monotonic() + PATIENCE_S
        while self.lab.do(host, "ip", "link", "show", "eth", check=False).returncode:  # a tap is made by its port
            assert time.monotonic() < deadline, "the tap was not made again"
            time.sleep(0.05)
        self.set_up(host)
        other = HOSTS[1 - HOSTS.index(host)]
        self.lab.ip(other, "neighbour", "flush", "dev", "eth")  # it remembers an address that is gone

    def interfaces(self) -> Iterator[tuple[str, str]]:
        """Every interface of the way, with its namespace's name."""
        for kind, host in zip(self.kinds, HOSTS):
            yield host, "eth"
            if kind != "tap":
                yield "f", f"{host}0"

    def set_mtu(self, mtu: int) -> None:
        """Set the MTU of every interface of the way."""
        for space, name in self.interfaces():
            self.lab.ip(space, "link", "set", name, "mtu", str(mtu))

    def counters(self, host: str) -> dict[str, int]:
        """The counters of a host's stack since it was made (nstat's names)."""
        said = json.loads(self.lab.do(host, "nstat", "-aszj").stdout)
        counts: dict[str, int] = said["kernel"]
        return counts

    def ping(self, version: int, *words: str, count: int = 3) -> subprocess.CompletedProcess[str]:
        """Ping host b from host a."""
        words = ("ping", f"-{version}", "-q", "-c", str(count), "-i", "0.01", "-W", "5", *words)
        return self.lab.do("a", *words, self.address("b", version), check=False)

    def wait_for(self, version: int, *words: str) -> None:
        """Ping host b until it is heard: a link needs a moment to come up."""
        deadline = time.monotonic() + PATIENCE_S
        while self.ping(version, "-W", "0.3", *words, count=1).returncode:
            assert time.monotonic() < deadline, f"host b was never heard: {self.running and self.running.report()}"

    def iperf(self, *words: str) -> dict[str, Any]:
        """What iperf3 says at its end of a transfer from host a to host b (with ``-R``, the other way)."""
        with self.lab.background("b", "iperf3", "-s", "-1", "--forceflush") as server:
            assert server.stdout is not None
            while "listening" not in (line := server.stdout.readline()):
                assert line, f"the server ended: {server.stderr and server.stderr.read()}"
            done = self.lab.do(
                "a", "iperf3", "-J", "-c", self.address("b"), "--connect-timeout", "5000", *words,
                timeout=PATIENCE_S, check=False,
            )  # fmt: skip
        said: dict[str, Any] = json.loads(done.stdout or "{}")
        assert done.returncode == 0, said.get("error", done.stderr)
        ended: dict[str, Any] = said["end"]
        return ended


@contextlib.contextmanager
def bridged(kinds: tuple[str, str], join: Join | None = None, workers: int = 1) -> Iterator[Bridge]:
    """Two hosts joined by ports of two kinds, or by the kernel; all is gone at the end.

    ``join`` makes the chains between the two ports, which else are the shortest ones.
    """
    for program in PROGRAMS:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    with laboratory() as lab:
        for kind, host in zip(kinds, HOSTS):
            lab.space(host)
            if kind != "tap":
                lab.veth(f"{host}/eth", f"f/{host}0")
                for space, name in ((host, "eth"), ("f", f"{host}0")) if workers > 1 else ():
                    lab.do(space, "ethtool", "-L", name, "rx", str(workers), "tx", str(workers))
        with forwarding(lab, kinds, join or straight, workers) as running:
            made = Bridge(lab, kinds, running)
            for host in HOSTS:
                made.set_up(host)
            for version in (4, 6):
                made.wait_for(version)
            yield made


@contextlib.contextmanager
def forwarding(lab: Lab, kinds: tuple[str, str], join: Join, workers: int) -> Iterator[Any]:
    """Within, what comes in on either side goes out on the other; yields the run, where it is one of ours."""
    if kinds == (KERNEL, KERNEL):
        lab.ip("f", "link", "add", "bridge", "type", "bridge")
        for name in ("a0", "b0", "bridge"):
            lab.ip("f", "link", "set", name, *(["up"] if name == "bridge" else ["master", "bridge"]))
        yield None
        return
    import wirespeed as ws

    a, b = (ws.port(port_word(lab, kind, host)) for kind, host in zip(kinds, HOSTS))
    with ws.start(*join(lab, a, b), workers=workers) as running:
        yield running


def straight(lab: Lab, a: Any, b: Any) -> list[Any]:
    """What comes in on either side goes out on the other as it is."""
    return [a >> b, b >> a]


def port_word(lab: Lab, kind: str, host: str) -> str:
    """The port behind a host's interface."""
    return f"tap:eth,netns={lab.space(host)}" if kind == "tap" else f"{kind}:{host}0,netns={lab.space('f')}"
