"""``wirespeed run`` on live interfaces: captures with a filter and rotation, replays, and bridges both ways."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapNgReader, RawPcapReader

from tests.cli.terminal import PATH, PATIENCE_S, ROOT
from tests.lab import Lab, laboratory, needs_root
from wirespeed.ports.link.namespace import inside

DEMO = ROOT / "src" / "wirespeed" / "data" / "demo.pcap"
COUNTED = '''
import wirespeed as ws

Counts = ws.layout("Counts", [("seen", "u8")])


@ws.function(state=Counts)
def counted(pkt, my):
    """Count what passes."""
    my.seen += 1
    return ws.FORWARD
'''
SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h
pytestmark = needs_root


@contextmanager
def command(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that runs meanwhile; a test ends it with a signal and reads its report."""
    environment = {**os.environ, "PYTHONPATH": PATH}
    process = subprocess.Popen(
        [sys.executable, "-m", "wirespeed", "run", "--no-live", *words],
        cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    """The report of a command that is interrupted, which is its usual end."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "books balanced" in out
    return out


def cable(lab: Lab) -> None:
    """Host a, whose only interface leads to one that ports stand on."""
    lab.veth("a/eth", "f/a0")
    lab.address("a/eth", "10.7.0.1/24")
    lab.ip("a", "neighbour", "add", "10.7.0.2", "lladdr", "02:00:00:00:00:02", "dev", "eth")


def say(lab: Lab, message: bytes, port: int) -> None:
    """Have host a send a datagram."""
    with inside(lab.space("a")):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.sendto(message, ("10.7.0.2", port))


def records(folder: Path) -> list[bytes]:
    """The frames of all captures in a folder, one file after the other."""
    files = sorted(folder.glob("*.pcapng"))
    return [data for file in files for data, *_ in RawPcapNgReader(str(file))]


def test_a_capture_has_what_matches_in_files_of_a_size(tmp_path: Path) -> None:
    with laboratory() as lab:
        cable(lab)
        words = (f"packet:a0,netns={lab.space('f')}", "pcap:out.pcapng,rotate_size=16kB", "--filter", "udp port 7001")
        with command(*words, cwd=tmp_path) as process:
            deadline = time.monotonic() + PATIENCE_S
            while not any(b"ready?" in file.read_bytes() for file in tmp_path.glob("*.pcapng")):
                assert time.monotonic() < deadline, "nothing was captured"
                say(lab, b"ready?", 7001)
                time.sleep(0.1)
            for number in range(60):
                say(lab, b"other", 7002)
                say(lab, number.to_bytes(2, "big") * 500, 7001)
            report = ended(process)
    datagrams = [bytes(Ether(frame)[UDP].payload) for frame in records(tmp_path)]
    assert [d for d in datagrams if d != b"ready?"] == [n.to_bytes(2, "big") * 500 for n in range(60)]
    assert len(list(tmp_path.glob("*.pcapng"))) > 3, report


def test_a_replay_arrives_frame_by_frame(tmp_path: Path) -> None:
    shutil.copy(DEMO, tmp_path / "in.pcap")
    with laboratory() as lab:
        lab.veth("a/eth", "f/a0", mtu=2000)
        with inside(lab.space("a")):
            there = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        with there:
            there.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            there.bind(("eth", 3))
            there.settimeout(PATIENCE_S)
            words = ("pcap:in.pcap,count=200", f"packet:a0,netns={lab.space('f')}")
            with command(*words, cwd=tmp_path) as process:
                out, err = process.communicate(timeout=PATIENCE_S)
                assert process.returncode == 0 and "200 packets" in out, out + err
            sent = [data for data, *_ in RawPcapReader(str(tmp_path / "in.pcap"))][:200]
            untagged = [frame for frame in sent if frame[12:14] not in (b"\x81\x00", b"\x88\xa8")]
            got = []
            while len(got) < len(untagged):
                frame = there.recv(65536)
                if frame in untagged:
                    got.append(frame)
    assert got == untagged and len(got) > 100


def test_a_bridge_goes_both_ways_through_one_function(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    with laboratory() as lab:
        cable(lab)
        lab.ip("a", "neighbour", "del", "10.7.0.2", "dev", "eth")
        words = (
            f"packet:a0,netns={lab.space('f')}",
            "counted.py",
            f"tap:eth,netns={lab.space('b')},address=10.7.0.2/24",
        )
        with command(*words, "--both", cwd=tmp_path) as process:
            deadline = time.monotonic() + PATIENCE_S
            while lab.do("a", "ping", "-q", "-c", "1", "-W", "1", "10.7.0.2", check=False).returncode:
                assert time.monotonic() < deadline and process.poll() is None, "host b was never heard"
                time.sleep(0.1)
            done = lab.do("a", "ping", "-q", "-c", "20", "-i", "0.01", "10.7.0.2")
            assert " 0% packet loss" in done.stdout
            report = ended(process)
    seen = [int(line.rpartition(" ")[2]) for line in report.splitlines() if "counted seen" in line]
    assert len(seen) == 2 and min(seen) >= 20, report
