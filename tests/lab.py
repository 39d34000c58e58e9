"""Network namespaces and virtual interfaces for tests, made and removed by ``ip``; what needs root skips without it."""

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator

import pytest

LIVE = os.geteuid() == 0 and shutil.which("ip") is not None and os.path.exists("/dev/net/tun")
needs_root = pytest.mark.skipif(not LIVE, reason="live interfaces need root, ip and /dev/net/tun")


class Lab:
    """Namespaces of one test: ``lab.space("a")`` is the full name of the one called a."""

    def __init__(self) -> None:
        self.mark = f"ws{uuid.uuid4().hex[:6]}"
        self.spaces: list[str] = []

    def space(self, name: str) -> str:
        """The name of a namespace of this lab; made, with its loopback up, when first asked for."""
        full = f"{self.mark}{name}"
        if full not in self.spaces:
            ip("netns", "add", full)
            self.spaces.append(full)
            # Duplicate address detection and router solicitations are traffic that no test asked for.
            self.do(
                name,
                "sysctl",
                "-qw",
                "net.ipv6.conf.default.accept_dad=0",
                "net.ipv6.conf.default.router_solicitations=0",
            )
            ip("-n", full, "link", "set", "lo", "up")
        return full

    def veth(self, a: str, b: str, *, up: bool = True, mtu: int = 1500) -> None:
        """A pair of interfaces, each written ``space/name``."""
        (space_a, name_a), (space_b, name_b) = (end.split("/") for end in (a, b))
        ip(
            "-n", self.space(space_a), "link", "add", name_a, "mtu", str(mtu), "type", "veth",
            "peer", "name", name_b, "mtu", str(mtu), "netns", self.space(space_b),
        )  # fmt: skip
        if up:
            for end in (a, b):
                self.ip(end.split("/")[0], "link", "set", end.split("/")[1], "up")
            for end in (a, b):
                self._wait_until_up(end)

    def _wait_until_up(self, end: str) -> None:
        """The kernel drops what is sent until a worker of its own has seen the carrier of both ends."""
        space, name = end.split("/")
        until = time.monotonic() + 10
        while " UP " not in self.ip(space, "-br", "link", "show", "dev", name):
            assert time.monotonic() < until, f"{end} did not come up within 10 s"
            time.sleep(0.01)

    def ip(self, name: str, *words: str) -> str:
        """``ip`` inside a namespace."""
        return ip("-n", self.space(name), *words)

    def address(self, end: str, *addresses: str) -> None:
        """Give an interface, ``space/name``, addresses such as 10.0.0.1/24."""
        space, name = end.split("/")
        for address in addresses:
            self.ip(space, "address", "add", address, "dev", name, *(["nodad"] if ":" in address else []))

    def do(self, name: str, *words: str, timeout: float = 60, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside a namespace to its end."""
        return subprocess.run(self.words(name, *words), capture_output=True, text=True, timeout=timeout, check=check)

    def words(self, name: str, *words: str) -> list[str]:
        """The command line that runs ``words`` inside a namespace."""
        return ["ip", "netns", "exec", self.space(name), *words]

    @contextlib.contextmanager
    def background(self, name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs inside a namespace while the block does; killed at its end."""
        process = subprocess.Popen(
            self.words(name, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def close(self) -> None:
        """Remove all namespaces, and with them their interfaces."""
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def ip(*words: str) -> str:
    """Run ``ip``; its output.  An error shows what it said."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def laboratory() -> Iterator[Lab]:
    """A lab that is removed at the end; skips the test where there can be none."""
    if not LIVE:
        pytest.skip("live interfaces need root, ip and /dev/net/tun")
    made = Lab()
    try:
        yield made
    finally:
        made.close()
