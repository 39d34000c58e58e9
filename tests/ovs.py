"""A real Open vSwitch for tests to compare with: its own daemons, in a directory of its own, no root, no interface.

Theory of operation: the datapath is the "dummy" one (the whole userspace datapath without devices).  Frames go in by the
daemon's control socket, many in one command, and come out as pcap records through one FIFO a port.  The daemon takes
frames one after the other and writes each output before it takes the next frame, so a *marker*, sent behind each frame and
put out on every port by a rule above all others, tells on every port which outputs belong to which frame; the one that
comes out of LOCAL tells that all is there.  A mirror that copies markers does no harm.

The rules, tables and ports of the user are his alone but for that one rule: table 0, priority 65535, its own cookie, two
addresses and an EtherType that no test sends.

Source: ovs-vswitchd(8), ovs-ofctl(8), ovs-appctl(8).
"""

import collections
import contextlib
import fcntl
import itertools
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

PROGRAMS = ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "setpriv")
PLACES = "/usr/sbin:/usr/local/sbin:/sbin"  # where the daemons are; not in every user's PATH
SCHEMAS = ("/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema")

LOCAL = 65534  # the bridge's own port
BATCH = 45  # frames on their way at once: a dummy port's queue holds 100, markers included
PATIENCE = 20.0  # seconds without an answer after which the daemon is said to hang
PIPE = 1 << 20  # bytes a FIFO holds; less would let the daemon wait for us while we wait for it

PCAP = bytes.fromhex("d4c3b2a1")
MARK = bytes.fromhex("02ffffff01fe 02ffffff02fe 88b5") + b"wirespeed marker"
MARK_COOKIE = 0xFFFF_FFFF_FFFF_FFFE
MARK_MATCH = "dl_type=0x88b5,dl_dst=02:ff:ff:ff:01:fe,dl_src=02:ff:ff:ff:02:fe"

Sent = tuple[int, bytes]  # a port's number and a frame


def missing() -> str:
    """The first program of Open vSwitch that is not here, or nothing."""
    where = os.environ.get("PATH", "") + ":" + PLACES
    absent = [name for name in PROGRAMS if not shutil.which(name, path=where)]
    if not absent and not any(os.path.exists(schema) for schema in SCHEMAS):
        absent = ["vswitch.ovsschema"]
    return absent[0] if absent else ""


needs_ovs = pytest.mark.skipif(bool(missing()), reason=f"{missing()} is not installed")


class RefusedError(Exception):
    """What the user wrote is refused, by ovs-ofctl as it reads it or by the switch."""


class DiedError(RuntimeError):
    """The switch itself has crashed: it has bugs too."""


class OpenVSwitch:
    """A bridge ``br0`` with dummy ports 1 to ``ports``; a context manager, and no process is left after it.

    It answers as of OpenFlow 1.5 and drops what no rule matches.  One user at a time.
    """

    def __init__(self, ports: int = 8) -> None:
        self.ports = list(range(1, ports + 1))
        self.deaf: set[int] = (
            set()
        )  # ports that mirrors put their copies into: nothing comes in there, not even a marker
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._taps: dict[int, _Tap] = {}
        self._numbers = itertools.count(1)
        self._control: socket.socket | None = None
        self._directory: Path | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def restart(self) -> None:
        """Begin anew, with nothing of what was configured."""
        self.close()
        self.deaf.clear()
        self._start()

    def close(self) -> None:
        """Kill the daemons and remove everything; may be called twice."""
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
        self._daemons.clear()
        for tap in self._taps.values():
            tap.close()
        self._taps.clear()
        if self._control:
            self._control.close()
            self._control = None
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @property
    def directory(self) -> Path:
        """Where its sockets, its database and its logs are."""
        assert self._directory, "the switch is not running"
        return self._directory

    # What the user configures.

    def flows(self, text: str) -> None:
        """Put the rules of ``text``, a line each, in the place of all rules, in one bundle; groups stay."""
        self._bundle(["flow delete", *_lines("flow", text)])

    def groups(self, text: str) -> None:
        """Put the groups of ``text``, a line each, in the place of all groups; rules that use a removed one go too."""
        self._bundle(["group delete", *_lines("group", text)])

    def program(self, flows: str, groups: str = "") -> None:
        """Replace all rules and all groups in one bundle: either all are accepted or nothing changes."""
        self._bundle(["flow delete", "group delete", *_lines("group", groups), *_lines("flow", flows)])

    def meters(self, text: str) -> None:
        """Put the meters of ``text``, a line each, in the place of all meters; rules that use a removed one go too."""
        self.ofctl("del-meters")
        for line in text.splitlines():
            if line.strip():
                self.ofctl("add-meter", words=[line.strip()])

    def change(self, command: str, text: str, *, strict: bool = False) -> None:
        """``add-flow``, ``mod-flows`` or ``del-flows``: the harness's own rule is put back after those that reach it.

        What was counted so far is settled first, or the switch would count it for the rules that are there then.
        """
        self.settle()
        self.ofctl(command, *(["--strict"] if strict else []), words=[text])
        self.ofctl("add-flow", words=[self._marker])

    def port_state(self, port: int, *, up: bool) -> None:
        """Take a port down or up by OpenFlow, as fast failover groups see it."""
        self.ofctl("mod-port", words=[str(port), "up" if up else "down"])

    def port_flood(self, port: int, *, flood: bool) -> None:
        """Let a port take part in floods, or not: only OpenFlow 1.0 has a word for that."""
        self.ofctl("mod-port", "-O", "OpenFlow10", words=[str(port), "flood" if flood else "no-flood"])

    def ofctl(self, command: str, *options: str, words: Sequence[str] = (), stdin: str | None = None) -> str:
        """Run ``ovs-ofctl OPTIONS COMMAND br0 WORDS``; what is refused raises RefusedError."""
        line = ["-O", "OpenFlow15", "--no-names", *options, command, f"unix:{self.directory}/br0.mgmt", *words]
        done = self._run("ovs-ofctl", *line, stdin=stdin)
        # A change holds for a packet's next miss; what the datapath remembers must be forgotten by hand.
        if not command.startswith("dump"):
            self.settle()
        return done

    def vsctl(self, *words: str) -> str:
        """Run ``ovs-vsctl WORDS`` and wait until the switch has done it."""
        done = self._run("ovs-vsctl", f"--db=unix:{self.directory}/db.sock", *words)
        self.settle()
        return done

    def appctl(self, command: str, *words: str) -> str:
        """What the daemon answers to a command of ``ovs-appctl``."""
        assert self._control, "the switch is not running"
        number = next(self._numbers)
        text, answer = b"", None
        try:
            self._control.sendall(json.dumps({"id": number, "method": command, "params": words}).encode())
        except OSError as error:
            raise DiedError(f"Open vSwitch has died before {command}: {self.log()}") from error
        while answer is None:
            if not (more := self._control.recv(1 << 20)):
                raise DiedError(f"Open vSwitch has died at {command}: {self.log()}")
            text += more
            with contextlib.suppress(ValueError):  # not whole yet
                answer = json.loads(text)
        assert answer["id"] == number
        if answer["error"] is not None:
            raise RefusedError(f"{command}: {answer['error'].strip()}")
        return str(answer["result"])

    def settle(self) -> None:
        """Let what was changed hold for every packet sent from now on, and what was counted be seen."""
        self._turn()  # in which a port's new state is made known from part to part
        # A packet that was under way may put back what a purge beside it took out, so there are two.
        self.appctl("revalidator/purge")
        self._turn()
        self.appctl("revalidator/purge")

    def _turn(self) -> None:
        """Wait until all that was waiting for the daemon's main loop is done: it answers once a turn."""
        for _ in range(3):
            self.appctl("version")

    # Its clock.

    def time_stop(self) -> None:
        """Stop the switch's clock; from now on ``time_warp`` alone moves it."""
        self.appctl("time/stop")

    def time_warp(self, ms: int) -> None:
        """Move the stopped clock on by ``ms`` milliseconds, in steps between which the switch does what is due."""
        self.settle()
        for _ in range(0, ms, 500):
            self.appctl("time/warp", str(min(ms, 500)))
            ms -= 500
        self.settle()

    # Packets.

    def send(self, port: int, frame: bytes) -> list[Sent]:
        """What comes out when ``frame`` goes in at ``port``."""
        return self.exchange([(port, frame)])[0]

    def exchange(self, frames: Sequence[Sent], *, ordered: bool = True) -> list[list[Sent]]:
        """Send frames in this order; what came out for each, by port, in order at each port.

        What comes out of the bridge's own port has the number LOCAL.  Where the switch keeps nothing from one frame to
        the next, ``ordered=False`` is faster: the frames of a port are sent together.
        """
        places = list(range(len(frames)))
        if not ordered:
            places.sort(key=lambda place: frames[place][0])
        out: list[list[Sent]] = [[] for _ in frames]
        for port, run in itertools.groupby(places, key=lambda place: frames[place][0]):
            for batch in _batches(list(run), BATCH):
                for place, outputs in zip(batch, self._batch(port, [frames[place][1] for place in batch])):
                    out[place] = outputs
        return out

    def _batch(self, port: int, frames: list[bytes]) -> list[list[Sent]]:
        """Send a few frames to one port, a marker behind each; what came out for each."""
        numbers = [next(self._numbers) for _ in frames]
        marks = [(MARK + number.to_bytes(8)).hex() for number in numbers]
        if port in self.deaf:
            hearing = next(number for number in self.ports if number not in self.deaf)
            for frame, mark in zip(frames, marks):
                self.appctl("netdev-dummy/receive", f"p{port}", frame.hex())
                self._turn()
                self.appctl("netdev-dummy/receive", f"p{hearing}", mark)
                self._turn()
        else:
            received = (part for frame, mark in zip(frames, marks) for part in (frame.hex(), mark))
            self.appctl("netdev-dummy/receive", f"p{port}", *received)
        deadline = time.monotonic() + PATIENCE
        while self._taps[LOCAL].marked != numbers[-1]:
            ready, _, _ = select.select([tap.fd for tap in self._taps.values()], [], [], 0.1)
            if self._daemons[-1].poll() is not None:
                raise DiedError(f"Open vSwitch has died: {self.log()}")
            if not ready and time.monotonic() > deadline:
                raise RuntimeError(f"Open vSwitch does not answer: {self.log()}")
            for tap in self._taps.values():
                tap.read()
        out: list[list[Sent]] = [[] for _ in frames]
        for number, tap in self._taps.items():
            tap.read()
            for before, frame in tap.take():
                # What came behind the last marker of an earlier batch belongs to this batch's first frame.
                out[max(before + 1 - numbers[0], 0)].append((number, frame))
        return out

    # What it says.

    def dump_flows(self, *options: str, match: str = "") -> list[str]:
        """Its rules as ``ovs-ofctl dump-flows`` writes them, with their counters; without the harness's own."""
        self.settle()
        text = self.ofctl("dump-flows", *options, words=[match] if match else [])
        own = f"cookie={MARK_COOKIE:#x}"
        return [line.strip() for line in text.splitlines() if "actions=" in line and own not in line]

    def counters(self) -> list[tuple[int, int, str]]:
        """Packets, bytes and the text of each rule (as without its counters and times), sorted by text."""
        found = []
        for line in self.dump_flows():
            packets, size = (int(number) for number in re.findall(r"n_(?:packets|bytes)=(\d+)", line))
            text = re.sub(r"(cookie=0x0|duration=[^ ]*|n_(packets|bytes)=\d+|(idle|hard)_age=\d+),? ?", "", line)
            found.append((packets, size, text))
        return sorted(found, key=lambda rule: rule[2])

    def trace(self, flow: str, packet: bytes | None = None) -> str:
        """What ``ofproto/trace`` says of a flow, or of a packet that came in as the flow says."""
        return self.appctl("ofproto/trace", "br0", flow, *([packet.hex()] if packet is not None else []))

    def log(self) -> str:
        """The end of the daemon's log."""
        path = self.directory / "ovs-vswitchd.log"
        return path.read_text()[-2000:] if path.exists() else "no log"

    # Starting it.

    def _start(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="wirespeed-ovs-"))
        here = self._directory
        schema = next(path for path in SCHEMAS if os.path.exists(path))
        self._run("ovsdb-tool", "create", f"{here}/conf.db", schema)
        self._spawn("ovsdb-server", f"{here}/conf.db", f"--remote=punix:{here}/db.sock")
        self._wait_for("db.sock")
        database = f"--db=unix:{here}/db.sock"
        self._run(
            "ovs-vsctl", database, "--no-wait", "init", "--", "set", "Open_vSwitch", ".", "other_config:vlan-limit=2"
        )
        self._spawn(
            "ovs-vswitchd", "--enable-dummy", "--disable-system", "--disable-system-route", f"unix:{here}/db.sock"
        )
        self._wait_for("ovs-vswitchd.ctl")
        words = ["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=dummy", "fail_mode=secure"]
        words += ["--", "set", "Interface", "br0", f"options:tx_pcap={self._tap(LOCAL)}"]
        for port in self.ports:
            words += ["--", "add-port", "br0", f"p{port}", "--", "set", "Interface", f"p{port}", "type=dummy"]
            words += [f"ofport_request={port}", f"options:tx_pcap={self._tap(port)}"]
        self._run("ovs-vsctl", database, *words)
        self._control = socket.socket(socket.AF_UNIX)
        self._control.settimeout(PATIENCE)
        self._control.connect(f"{here}/ovs-vswitchd.ctl")
        # A refusal is an ordinary answer here, and thousands of them are not to fill the disk.
        self.appctl("vlog/set", "file:warn")
        self.appctl("vlog/set", "syslog:off")
        # What 3.1 remembers for many packets at once is at times too wide: it writes the label of the first packet into a
        # later one of which a rule sets another part, say. A decision for each packet is what the rules say.
        self.appctl("upcall/disable-megaflows")
        self.program("")

    def _tap(self, port: int) -> Path:
        path = self.directory / f"out{port}"
        os.mkfifo(path)
        self._taps[port] = _Tap(path)
        return path

    def _spawn(self, program: str, *words: str) -> None:
        """Start a daemon that dies with this process, however that ends."""
        where = [
            f"--unixctl={self.directory}/{program}.ctl",
            f"--log-file={self.directory}/{program}.log",
            "-vconsole:off",
        ]
        self._daemons.append(
            subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *words, *where],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (self.directory / name).exists():
            if self._daemons[-1].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Open vSwitch does not start: {self.log()}")
            time.sleep(0.005)

    def _environment(self) -> dict[str, str]:
        here = str(self.directory)
        path = os.environ.get("PATH", "") + ":" + PLACES
        return {**os.environ, "PATH": path, "OVS_RUNDIR": here, "OVS_LOGDIR": here, "OVS_DBDIR": here}

    def _run(self, *words: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            words,
            env=self._environment(),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )
        if done.returncode:
            if len(self._daemons) == 2 and self._daemons[-1].poll() is not None:
                raise DiedError(f"Open vSwitch has died before {words[0]}: {self.log()}")
            raise RefusedError((done.stderr + done.stdout).strip() or f"{words[0]} ended with {done.returncode}")
        return done.stdout

    def _bundle(self, lines: list[str]) -> None:
        self.ofctl("bundle", words=["-"], stdin="\n".join([*lines, f"flow add {self._marker}"]) + "\n")

    @property
    def _marker(self) -> str:
        ports = ",".join(f"output:{port}" for port in self.ports)
        return f"table=0,priority=65535,cookie={MARK_COOKIE:#x},{MARK_MATCH},actions=in_port,{ports},LOCAL"


class _Tap:
    """The reading end of a port's FIFO of pcap records: frames, and the number of the marker before each."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with contextlib.suppress(OSError):  # beyond what an ordinary user may ask for
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE)
        self.marked = 0
        self._bytes = b""
        self._frames: collections.deque[tuple[int, bytes]] = collections.deque()

    def close(self) -> None:
        os.close(self.fd)

    def read(self) -> None:
        """Take in what is there, without waiting."""
        try:
            more = os.read(self.fd, PIPE)
        except BlockingIOError:
            return
        held = self._bytes + more
        at = 0
        while at + 24 <= len(held):  # no record is shorter
            # Each change of the ports' settings opens the file again, with its header.
            header = held.startswith(PCAP, at)
            end = at + (24 if header else 16 + int.from_bytes(held[at + 8 : at + 12], "little"))
            if end > len(held):
                break
            if not header:
                self._record(held[at + 16 : end])
            at = end
        self._bytes = held[at:]

    def _record(self, frame: bytes) -> None:
        if frame[:12] != MARK[:12]:
            self._frames.append((self.marked, frame))
            return
        # A mirror may have put a tag into a marker's copy, or cut it.
        _, found, number = frame.partition(MARK[14:])
        if found and len(number) >= 8:
            self.marked = max(self.marked, int.from_bytes(number[:8]))

    def take(self) -> Iterable[tuple[int, bytes]]:
        """The frames so far, each with the number of the marker that came before it."""
        while self._frames:
            yield self._frames.popleft()


def _lines(kind: str, text: str) -> list[str]:
    """The lines of a file of rules or groups as lines of a bundle."""
    stripped = (line.strip() for line in text.splitlines())
    return [f"{kind} add {line}" for line in stripped if line and not line.startswith("#")]


def _batches(places: list[int], size: int) -> Iterable[list[int]]:
    for at in range(0, len(places), size):
        yield places[at : at + size]
