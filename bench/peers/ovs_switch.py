"""Open vSwitch's userspace datapath over DPDK: one polling thread on a core, null ports that replay frames, rules given to it.

``replay.c`` beside this, compiled here, makes DPDK's null ports a source of given frames (see there); testpmd with the
same port tells what the port alone costs.  The database, sockets and logs are in a folder that is removed at the end; the
handlers, revalidators and the rest of it have the other core.  Between two measures it is stopped (SIGSTOP), so that the
core is free for what it is compared with.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.harness import ToolFailed, affinity
from bench.peers import ovs, testpmd
from bench.prompt import Prompt
from bench.switch_clock import cpu_ns, thread_of
from bench.traffic import folder

PROGRAM = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
NEEDED = ("ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "gcc", "pkg-config")
SOURCE = Path(__file__).with_name("replay.c")
LIBRARIES = ("-lrte_ethdev", "-lrte_mbuf", "-lrte_eal", "-lpthread")
WAIT_SECONDS = 60.0
MEMORY_MB = 512
PAGES = (
    2 * MEMORY_MB // 2 + 384
)  # Open vSwitch's, testpmd's beside it, and those that our caches take when there are any
SETTINGS = ("emc", "smc", "none")
LOOK_SECONDS = 1.0  # how often a tool that waits for the daemon is asked whether that is still there
IDLE_MS = 3_600_000  # flows stay while it is stopped


def missing() -> str | None:
    """Why it cannot run, or None.  (Debian: openvswitch-switch-dpdk, libdpdk-dev, gcc, pkg-config; root for huge pages.)"""
    if not os.path.exists(PROGRAM):
        return f"not installed: {PROGRAM}"
    absent = next((program for program in NEEDED if not shutil.which(program)), None)
    if absent:
        return f"not installed: {absent}"
    if ovs.missing():
        return ovs.missing()
    if os.geteuid() != 0:
        return "needs root, for huge pages"
    found = subprocess.run(["pkg-config", "--exists", "libdpdk"], stdin=subprocess.DEVNULL, check=False)
    return None if found.returncode == 0 else "not installed: libdpdk (pkg-config does not find it)"


def plugin() -> Path:
    """``replay.c`` compiled for this processor, unless the very same was before."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "libdpdk"], capture_output=True, text=True, check=True
    ).stdout.split()
    flags = [flag for flag in flags if not flag.startswith("-march=")]
    command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", *flags, str(SOURCE), "-Wl,--as-needed", *LIBRARIES]
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    same = "\n".join([SOURCE.read_text(), *command, processor])
    made = folder() / f"replay-{hashlib.sha256(same.encode()).hexdigest()[:12]}.so"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        part = made.with_name(made.name + ".part")
        done = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolFailed(f"gcc ended with {done.returncode}: {done.stderr.strip()[-200:]}")
        part.replace(made)
    return made


@contextmanager
def huge_pages() -> Iterator[None]:
    """Give the machine the huge pages that it needs, beside those that are there for others, and take them back."""
    pages = testpmd.HUGE_PAGES
    before = int(pages.read_text())
    pages.write_text(str(before + PAGES))
    try:
        if int(pages.read_text()) < before + PAGES:
            raise ToolFailed(f"the machine has no {PAGES} huge pages of 2 MB to give")
        yield
    finally:
        pages.write_text(str(max(0, int(pages.read_text()) - PAGES)))


@dataclass(frozen=True)
class Measured:
    """What its polling thread did, and what packets hit.

    ``cycles`` a packet are those that it counts while it has packets, less the share of the time that it was not on its
    core: what else wants the core is not its fault.
    """

    cycles: float
    mpps: float
    simple: float
    emc: float
    smc: float
    megaflow: float
    upcalls: float
    subtables: float


class Datapath:
    """A running switch ``br0``, whose port N gives the frames of the N-th file."""

    def __init__(self, environment: Mapping[str, str], where: Path, process: subprocess.Popen[bytes] | None) -> None:
        self._environment, self._where, self._process = environment, where, process
        self._stopped = False

    def call(self, *words: str, seconds: float = WAIT_SECONDS, text: str | None = None) -> str:
        """Run one of its tools."""
        process = subprocess.Popen(
            words, env=dict(self._environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        until = time.monotonic() + seconds
        try:
            while True:
                try:
                    said, _ = process.communicate(text, timeout=LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    text = None  # it has been handed over
                if self._process and self._process.poll() is not None:
                    raise ToolFailed(f"{PROGRAM} ended with {self._process.returncode}: {self._last_words()}")
                if time.monotonic() > until:
                    raise ToolFailed(f"{words[0]} did not end within {seconds:.0f} s: {self._last_words()}")
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise ToolFailed(f"{words[0]} ended with {process.returncode}: {said[-300:].strip()}")
        return said

    def _last_words(self) -> str:
        log = self._where / "vswitchd.log"
        return " ".join(log.read_text(errors="replace").splitlines()[-2:])[-300:] if log.exists() else "no log"

    def control(self, *words: str) -> str:
        """Ask the daemon itself."""
        return self.call("ovs-appctl", "-t", str(self._where / "vswitchd.ctl"), *words)

    def configure(self, *words: str) -> None:
        """Change its configuration."""
        self.call("ovs-vsctl", f"--db=unix:{self._where}/db.sock", f"--timeout={int(WAIT_SECONDS)}", *words)

    def flows(self, command: str, *words: str, text: str | None = None, seconds: float = WAIT_SECONDS) -> str:
        """Run ovs-ofctl on its bridge."""
        bridge = f"unix:{self._where}/br0.mgmt"
        return self.call("ovs-ofctl", "-O", "OpenFlow15", command, bridge, *words, text=text, seconds=seconds)

    def load(self, rules: Sequence[str]) -> None:
        """Have exactly these rules, and have forgotten what it found by others."""
        self.flows("del-flows")
        self.add(rules)
        self.control("revalidator/purge")

    def add(self, rules: Sequence[str]) -> float:
        """Add rules from a file; the seconds it took."""
        path = self._where / "rules"
        path.write_text("\n".join(rules) + "\n")
        begin = time.perf_counter()
        self.flows("add-flows", str(path), seconds=600.0)
        return time.perf_counter() - begin

    def use(self, setting: str) -> None:
        """Use the exact match cache as it comes, the signature match cache alone, or none."""
        smc = f"other_config:smc-enable={'true' if setting == 'smc' else 'false'}"
        if setting == "emc":
            self.configure(
                "remove",
                "Open_vSwitch",
                ".",
                "other_config",
                "emc-insert-inv-prob",
                "--",
                "set",
                "Open_vSwitch",
                ".",
                smc,
            )
        else:
            self.configure("set", "Open_vSwitch", ".", "other_config:emc-insert-inv-prob=0", smc)

    def measure(self, seconds: float) -> Measured:
        """Count for so long."""
        assert self._process
        polling = thread_of(self._process.pid, "pmd-c")
        self.control("dpif-netdev/pmd-stats-clear")
        began, ran = time.perf_counter_ns(), cpu_ns(self._process.pid, polling)
        time.sleep(seconds)
        ran, took = cpu_ns(self._process.pid, polling) - ran, time.perf_counter_ns() - began
        found = parse(self.control("dpif-netdev/pmd-perf-show", "-nh"))
        return replace(found, cycles=found.cycles * min(1.0, ran / took))

    def pause(self) -> None:
        """Stop all of it where it is, in no time."""
        if self._process and not self._stopped:
            self._process.send_signal(signal.SIGSTOP)
            self._stopped = True

    def go_on(self) -> None:
        """Let it run again."""
        if self._process and self._stopped:
            self._process.send_signal(signal.SIGCONT)
            self._stopped = False


def parse(text: str) -> Measured:
    """What ``pmd-perf-show`` says of a thread."""

    def number(pattern: str) -> float:
        found = re.search(pattern, text)
        return float(found[1]) if found else 0.0

    rate = number(r"Rx packets:\s+\d+\s+\((\d+) Kpps")
    if not rate:
        raise ToolFailed("its polling thread received nothing")
    return Measured(
        number(r"Rx packets:.*?, (\d+) cycles/pkt"),
        rate / 1e3,
        number(r"Simple Match hits:\s+\d+\s+\(\s*([\d.]+)"),
        number(r"EMC hits:\s+\d+\s+\(\s*([\d.]+)"),
        number(r"SMC hits:\s+\d+\s+\(\s*([\d.]+)"),
        number(r"Megaflow hits:\s+\d+\s+\(\s*([\d.]+)"),
        number(r"- Upcalls:\s+\d+\s+\(\s*([\d.]+)"),
        number(r"Megaflow hits:.*?, ([\d.]+) subtbl"),
    )


@contextmanager
def datapath(core: int, sources: Sequence[Path | None]) -> Iterator[Datapath]:
    """Within, a switch with a port for each source: of its frames, or, for None, one that only sends."""
    cores = sorted(os.sched_getaffinity(0))
    other = next((c for c in cores if c != core), core)
    with ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wirespeed-bench-ovs-")))
        for number, path in enumerate(sources, 1):
            if path is not None:
                (where / f"{number}.frames").symlink_to(path)
        environment = os.environ | {f"OVS_{part}DIR": str(where) for part in ("RUN", "LOG", "DB", "SYSCONF")}
        environment |= {"LC_ALL": "C"}
        made = Datapath(environment, where, None)
        schema = next(path for path in ovs.SCHEMAS if os.path.exists(path))
        made.call("ovsdb-tool", "create", str(where / "conf.db"), schema)
        socket = where / "db.sock"
        words = ["ovsdb-server", str(where / "conf.db"), f"--remote=punix:{socket}", f"--unixctl={where}/ovsdb.ctl"]
        stack.enter_context(_daemon(environment, socket, other, words))
        made.configure("--no-wait", "init")
        prefix = f"wirespeed-{os.getpid()}"
        made.configure(
            "--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true",
            f"other_config:dpdk-socket-mem={MEMORY_MB}", f"other_config:pmd-cpu-mask={1 << core:#x}",
            f"other_config:dpdk-lcore-mask={1 << other:#x}", f"other_config:max-idle={IDLE_MS}",
            f"other_config:dpdk-extra=--no-pci --in-memory --no-telemetry --file-prefix={prefix}",
        )  # fmt: skip
        control = where / "vswitchd.ctl"
        words = [PROGRAM, f"unix:{socket}", f"--unixctl={control}", f"--log-file={where}/vswitchd.log"]
        process = stack.enter_context(_daemon(environment | _replaying(where), control, None, words))
        made = Datapath(environment, where, process)
        stack.callback(made.go_on)
        made.configure("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure")
        made.configure("set", "bridge", "br0", "other_config:mac-table-size=65536")
        for number, path in enumerate(sources, 1):
            arguments = f"net_null{number},size=64" + ("" if path else ",no-rx=1")
            made.configure(
                "add-port", "br0", f"p{number}", "--", "set", "Interface", f"p{number}", "type=dpdk",
                f"options:dpdk-devargs={arguments}", f"ofport_request={number}",
            )  # fmt: skip
        _wait_for([where / f"{number}.on" for number, path in enumerate(sources, 1) if path])
        yield made


def _replaying(where: Path) -> dict[str, str]:
    """What a program needs in its environment to replay frames in this folder."""
    return {"LD_PRELOAD": str(plugin()), "WIRESPEED_REPLAY": str(where)}


def _wait_for(paths: Sequence[Path]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(path.exists() for path in paths):
        if time.monotonic() > deadline:
            raise ToolFailed("its ports did not begin to replay")
        time.sleep(0.02)


@contextmanager
def _daemon(
    environment: Mapping[str, str], socket: Path, core: int | None, words: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs within, once its socket is there."""
    with affinity({core} if core is not None else os.sched_getaffinity(0)):
        process = subprocess.Popen(
            [*words, "-vconsole:off", "-vsyslog:off"], env=dict(environment), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ToolFailed(f"{Path(words[0]).name} did not begin to listen")
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Port(Prompt):
    """A testpmd on one replaying port: what the port costs, without a switch."""

    def __init__(self, core: int, source: Path) -> None:
        cores = sorted(os.sched_getaffinity(0))
        other = next((c for c in cores if c != core), core)
        self._folder = tempfile.TemporaryDirectory(prefix="wirespeed-bench-port-")
        where = Path(self._folder.name)
        (where / "1.frames").symlink_to(source)
        super().__init__(
            testpmd.PROGRAM,
            [
                "env", *(f"{name}={value}" for name, value in _replaying(where).items()), "stdbuf", "-oL",
                testpmd.PROGRAM, "--no-pci", "--no-telemetry", "--in-memory", "--lcores", f"0@{other},1@{core}",
                "--vdev", "net_null1,size=64", "--vdev", "net_null2,size=64,no-rx=1",
                "--", "--interactive", "--nb-cores=1", "--no-flush-rx", "--record-core-cycles",
            ],
        )  # fmt: skip
        _wait_for([where / "1.on"])

    def measure(self, seconds: float) -> float:
        """Cycles a packet from one port to the other."""
        self.say("set portlist 0,1", "set fwd io", "start")
        self.wait(r"io packet forwarding packets/burst=.*\n")
        time.sleep(seconds)
        self.say("stop")
        counted = self.wait(r"CPU cycles/packet=[\d.]+ \(total cycles=(\d+) / total \S+ packets=(\d+)\)")
        self.wait(r"MHz Clock\n")
        return int(counted[1]) / int(counted[2])

    def _end(self) -> None:
        super()._end()
        self._folder.cleanup()
