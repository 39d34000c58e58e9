"""Open vSwitch's userspace datapath in a namespace: a bridge of ports of the kernel's interfaces, or of taps it makes.

It has a database, sockets and logs of its own in a folder that is removed at the end.  Without DPDK its main thread
polls such ports.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.harness import ToolFailed, affinity
from bench.namespaces import Space

PROGRAMS = ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl")
SCHEMAS = ("/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema")
WAIT_SECONDS = 15.0


def missing() -> str | None:
    """Why it cannot run, or None."""
    absent = next((program for program in PROGRAMS if not shutil.which(program)), None)
    if absent:
        return f"not installed: {absent}"
    return None if _schema() else "not installed: vswitch.ovsschema"


def _schema() -> str | None:
    return next((path for path in SCHEMAS if os.path.exists(path)), None)


@contextmanager
def bridge(space: Space, ports: Sequence[str], core: int, *, taps: bool = False) -> Iterator[None]:
    """Within, a learning switch joins the ports on a core; ``taps``: it makes them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wirespeed-bench-ovs-")))
        environment = {
            **os.environ,
            **{f"OVS_{part}DIR": str(folder) for part in ("RUN", "LOG", "DB", "SYSCONF")},
        }

        def call(*words: str) -> None:
            done = subprocess.run(
                space.words(*words), env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
            )
            if done.returncode:
                raise ToolFailed(
                    f"{words[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-200:].strip()}"
                )

        socket = folder / "db.sock"
        call("ovsdb-tool", "create", str(folder / "conf.db"), str(_schema()))
        stack.enter_context(
            _daemon(
                space, environment, socket, None,
                ["ovsdb-server", str(folder / "conf.db"), f"--remote=punix:{socket}",
                 f"--unixctl={folder}/ovsdb.ctl", "-vconsole:off", "-vsyslog:off"],
            )
        )  # fmt: skip
        vsctl = ["ovs-vsctl", f"--db=unix:{socket}", f"--timeout={int(WAIT_SECONDS)}"]
        call(*vsctl, "--no-wait", "init")
        control = folder / "vswitchd.ctl"
        stack.enter_context(
            _daemon(
                space, environment, control, core,
                ["ovs-vswitchd", f"unix:{socket}", f"--unixctl={control}", "-vconsole:off", "-vsyslog:off"],
            )
        )  # fmt: skip
        call(*vsctl, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
        for port in ports:
            kind = ["--", "set", "interface", port, "type=tap"] if taps else []
            call(*vsctl, "add-port", "br0", port, *kind)
        yield


@contextmanager
def _daemon(
    space: Space, environment: Mapping[str, str], socket: Path, core: int | None, words: Sequence[str]
) -> Iterator[None]:
    """A program that runs within, once its socket is there."""
    with affinity({core} if core is not None else os.sched_getaffinity(0)):
        process = subprocess.Popen(
            space.words(*words), env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ToolFailed(f"{words[0]} did not begin to listen")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        try:
            process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
