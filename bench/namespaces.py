"""Network namespaces and virtual interfaces for a bench, made and removed by ``ip``; never an interface of the machine."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.harness import ToolFailed


def missing() -> str | None:
    """Why there can be none, or None."""
    if os.geteuid() != 0:
        return "needs root, for namespaces and interfaces of its own"
    return None if shutil.which("ip") else "not installed: ip (iproute2)"


def call(*words: str, seconds: float = 30.0) -> str:
    """Run a command to its end; what it printed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise ToolFailed(f"{' '.join(words[:8])}: {(done.stderr or done.stdout).strip()[-200:]}")
    return done.stdout


class Space:
    """One namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ip(self, *words: str) -> str:
        """``ip`` inside."""
        return call("ip", "-n", self.name, *words)

    def words(self, *words: str) -> list[str]:
        """The command line that runs ``words`` inside."""
        return ["ip", "netns", "exec", self.name, *words]

    def do(self, *words: str, seconds: float = 30.0) -> str:
        """Run a command inside to its end; what it printed."""
        return call(*self.words(*words), seconds=seconds)

    def veth(self, a: str, b: str, other: "Space | None" = None) -> None:
        """A pair of interfaces that are up and take every frame; the second one may be in another namespace."""
        self.ip("link", "add", a, "type", "veth", "peer", "name", b, "netns", (other or self).name)
        self.up(a)
        (other or self).up(b)

    def up(self, name: str) -> None:
        """Set an interface up, and have it take every frame."""
        self.ip("link", "set", name, "up", "promisc", "on")

    def packets(self, name: str, way: str) -> int:
        """How many packets the kernel counts as received (``rx``) or sent (``tx``) by an interface."""
        told = json.loads(self.ip("-s", "-j", "link", "show", "dev", name))
        return int(told[0]["stats64"][way]["packets"])


@contextmanager
def spaces(*names: str, quiet: bool = True) -> Iterator[Sequence[Space]]:
    """Namespaces that are removed at the end; in ``quiet`` ones no interface says anything of its own (IPv6 does)."""
    mark = f"wsb{os.getpid()}"
    made: list[Space] = []
    try:
        for name in names:
            call("ip", "netns", "add", f"{mark}{name}")
            made.append(Space(f"{mark}{name}"))
            if quiet:
                made[-1].do("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        yield made
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "del", space.name], capture_output=True, check=False)
