"""Opening taps and tuns: names, options, what the device is then, and what is said when it cannot be opened."""

import errno
import json
import os
import subprocess
import sys

import pytest

import wirespeed as ws
from tests.lab import laboratory, needs_root
from wirespeed.errors import GraphError, PortError
from wirespeed.ports import port
from wirespeed.ports.tap import queue


@pytest.fixture
def lab():
    with laboratory() as lab:
        yield lab


def opened(word, workers=1):
    """Open a port as a source and close it again, once its device was looked at; the part."""
    part = port(word).open("source", workers)
    part.close()
    return part


def link(lab, space, name):
    (found,) = json.loads(lab.ip(space, "-d", "-j", "address", "show", name))
    return found


@pytest.mark.parametrize(
    "target", ["a" * 16, "a/b", "a b", "a%s", "a%d%d", "..", "a:b", "tap%"], ids=lambda target: repr(target)
)
def test_a_name_that_no_interface_can_have_is_refused_at_once(target):
    with pytest.raises(GraphError, match="try tap:lan"):
        port(f"tap:{target}")


@pytest.mark.parametrize(
    "option, value, wanted",
    [
        ("address", "10.0.0.1", "10.0.0.1/24"),
        ("address", "10.0.0.1/33", "10.0.0.1/24"),
        ("address", "", "10.0.0.1/24"),
        ("mac", "02:00", "six octets"),
        ("mac", "01:00:00:00:00:01", "got '01:00:00:00:00:01', wanted the address of one interface, no group's"),
        ("mac", "00:00:00:00:00:00", "not zero"),
        ("mtu", "67", "from 68 to 65521"),
        ("mtu", "65522", "from 68 to 65521"),
        ("owner", "nobody at all", "user"),
        ("group", "-1", "group"),
        ("up", "perhaps", "yes or no"),
        ("offloads", "some", "yes or no"),
        ("netns", "", "text"),
    ],
)
def test_an_option_that_cannot_be_read_is_refused_at_once(option, value, wanted):
    with pytest.raises(GraphError, match=wanted):
        port("tap:t0", **{option: value})


def test_a_tun_has_no_ethernet_address():
    with pytest.raises(GraphError, match="no option 'mac'"):
        port("tun:n0,mac=02:00:00:00:00:01")


def test_the_device_is_as_the_options_say(lab):
    space = lab.space("a")
    tap = port(
        f"tap:t0,netns={space},address=10.9.0.1/24,fd09::1/64,mac=02:00:00:00:00:07,mtu=9000,persist=yes,owner=nobody,group=7"
    )
    part = tap.open("source", 2)
    part.device.start()
    found = link(lab, "a", "t0")
    assert found["mtu"] == 9000 and found["address"] == "02:00:00:00:00:07" and "UP" in found["flags"]
    assert {"10.9.0.1/24", "fd09::1/64"} <= {f"{a['local']}/{a['prefixlen']}" for a in found["addr_info"]}
    data = found["linkinfo"]["info_data"]
    assert data["type"] == "tap" and data["multi_queue"] and data["vnet_hdr"] and data["persist"] and not data["pi"]
    assert data["user"] == "nobody" and data["numqueues"] == 2
    part.close()


def test_a_device_that_is_not_to_be_up_is_left_down(lab):
    part = port(f"tun:n0,netns={lab.space('a')},up=no").open("source", 1)
    part.device.start()
    found = link(lab, "a", "n0")
    assert "UP" not in found["flags"] and found["linkinfo"]["info_data"]["type"] == "tun"
    part.close()


@pytest.mark.parametrize("word, names", [("tap:", ["tap0", "tap1"]), ("tun:x%dy", ["x0y", "x1y"])])
def test_a_name_with_a_number_left_open_is_told(lab, word, names):
    ports = [port(word, netns=lab.space("a")) for _ in names]
    parts = [p.open("sink", 1) for p in ports]
    assert [p.interface for p in ports] == names
    assert [part.counters()["interface"] for part in parts] == names
    for part in parts:
        part.close()
    assert parts[0].counters()["interface"] == names[0], "also when it is over"


@needs_root
def test_offloads_are_asked_for_and_a_kernel_that_knows_fewer_is_asked_for_those(lab, monkeypatch):
    part = port(f"tap:t0,netns={lab.space('a')}").open("source", 1)
    assert part.device.told.offloads & (queue.TUN_F_CSUM | queue.TUN_F_TSO) == queue.TUN_F_CSUM | queue.TUN_F_TSO
    unknown = 1 << 20
    monkeypatch.setattr(queue, "WANTED", (unknown | queue.TUN_F_CSUM, queue.TUN_F_CSUM, 0))
    assert queue.allow(part.device.fds[0], True) == queue.TUN_F_CSUM
    assert queue.allow(part.device.fds[0], False) == 0
    part.close()


def test_a_device_that_another_program_has_open_is_busy(lab):
    word = f"tap:t0,netns={lab.space('a')}"
    first = port(word).open("source", 1)
    with pytest.raises(PortError, match="in use by another program or port") as raised:
        port(word).open("source", 1)
    assert raised.value.errno == errno.EBUSY
    first.close()
    opened(word)


def test_an_interface_of_another_kind_is_named_as_such(lab):
    lab.veth("a/v0", "b/v1")
    for kind in ("tap", "tun"):
        with pytest.raises(PortError, match=f"v0: there is an interface of that name which is no {kind}"):
            opened(f"{kind}:v0,netns={lab.space('a')}")
    lab.ip("a", "tuntap", "add", "n0", "mode", "tun")
    with pytest.raises(PortError, match="n0: there is an interface of that name which is no tap"):
        opened(f"tap:n0,netns={lab.space('a')}")
    opened(f"tun:n0,netns={lab.space('a')}")


def test_a_device_of_one_queue_is_for_one_worker_and_one_of_several_for_any_number(lab):
    space = lab.space("a")
    lab.ip("a", "tuntap", "add", "dev", "solo", "mode", "tap")
    with pytest.raises(PortError, match=r"a single queue, got 2 workers.*multi_queue"):
        opened(f"tap:solo,netns={space}", 2)
    opened(f"tap:solo,netns={space}", 1)
    lab.ip("a", "tuntap", "add", "dev", "many", "mode", "tap", "multi_queue")
    for workers in (2, 1):
        opened(f"tap:many,netns={space}", workers)


def test_a_namespace_that_is_not_there_is_named():
    with pytest.raises(PortError, match="network namespace there_is_none"):
        opened("tap:t0,netns=there_is_none")


def test_a_device_that_cannot_be_handed_over_is_not_left_behind(lab):
    space = lab.space("a")
    with pytest.raises(PortError, match="there_is_none"):
        opened(f"tap:t0,netns={space},move_to=there_is_none")
    assert "t0" not in lab.ip("a", "link", "show")


@pytest.mark.parametrize("owner", [2**32 - 1, 2**40])
def test_an_owner_that_there_cannot_be_is_told(lab, owner):
    with pytest.raises(PortError, match="got owner"):
        opened(f"tap:t0,netns={lab.space('a')},owner={owner}")


def test_one_port_in_two_runs_at_once_is_refused(lab):
    tap = port(f"tap:t0,netns={lab.space('a')}")
    part = tap.open("source", 1)
    with pytest.raises(GraphError, match="another run"):
        tap.open("source", 1)
    with pytest.raises(GraphError, match="2 workers"):
        tap.open("sink", 2)
    part.close()
    tap.open("source", 2).close()


def test_a_port_runs_many_times(lab):
    tap = ws.port(f"tap:t0,netns={lab.space('a')}")
    for _ in range(3):
        report = ws.run(ws.port("null:count=100,size=60") >> tap)
        assert report.balanced and report.packets == 100


def run_python(code, *before):
    """What a Python that is started by the words ``before`` says of an error."""
    words = [*before, sys.executable, "-c", f"import wirespeed as ws\n{code}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stderr.splitlines()[-1]


@needs_root
def test_without_the_kernels_control_device_the_error_says_how_to_get_it(lab):
    said = run_python(
        "ws.port('tap:t0').open('source', 1)",
        "unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "sh",
    )  # fmt: skip
    assert "PortError" in said and "/dev/net/tun" in said and "modprobe tun" in said


@needs_root
def test_without_the_right_the_error_names_it_and_a_device_of_ones_own_needs_none(lab):
    dropped = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    enter = ["ip", "netns", "exec", lab.space("a")]
    said = run_python("ws.port('tap:t0').open('source', 1)", *enter, *dropped)
    assert "PortError" in said and "CAP_NET_ADMIN is missing" in said
    lab.ip("a", "tuntap", "add", "mine", "mode", "tap", "user", str(os.geteuid()))
    lab.ip("a", "link", "set", "mine", "up")
    code = "part = ws.port('tap:mine').open('source', 1); part.device.start(); raise SystemExit(part.device.told)"
    assert "interface='mine'" in run_python(code, *enter, *dropped)
    said = run_python(code.replace("tap:mine", "tap:mine,mtu=1234"), *enter, *dropped)
    assert "PortError" in said and "CAP_NET_ADMIN is missing" in said
