"""The control socket: whose it is, what it answers, and that nothing sent to it ends the switch."""

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import wirespeed as ws
from wirespeed.errors import GraphError, PortError
from wirespeed.switch.control import line as lines
from wirespeed.switch.control.address import LONGEST, path_of
from wirespeed.switch.control.line import Client
from wirespeed.switch.control.request import Desk
from wirespeed.switch.control.server import MOST_CLIENTS, Server
from wirespeed.switch.control.specialiser import Specialiser
from wirespeed.switch.switch import Switch


@pytest.fixture
def switch() -> Iterator[Switch]:
    with Switch(memory=1 << 28) as switch:
        for number in (1, 2, 3):
            switch.add_port(number, ws.port("null:"), name=f"p{number}")
        yield switch


@pytest.fixture
def server(switch: Switch, tmp_path: Path) -> Iterator[Server]:
    with Server(Desk(switch), str(tmp_path / "s.sock")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.path) as client:
        yield client


def test_the_socket_is_for_its_user_alone_and_goes_with_the_server(switch: Switch, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with Server(Desk(switch), str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_a_socket_is_in_the_users_own_folder_or_has_his_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert path_of("lab") == f"{tmp_path}/wirespeed-lab.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert path_of("lab") == f"/tmp/wirespeed-{os.getuid()}-lab.sock"
    assert path_of("./lab") == "./lab"
    for name in ("", "a b", "x" * 65):
        with pytest.raises(GraphError, match="letters, digits"):
            path_of(name)
    with pytest.raises(GraphError, match=f"at most {LONGEST} bytes"):
        path_of("/" + "x" * LONGEST)


def test_a_socket_that_a_dead_process_left_is_replaced(switch: Switch, tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    dead = f"import os, socket; s = socket.socket(socket.AF_UNIX); s.bind({path!r}); s.listen(); os._exit(0)"
    subprocess.run([sys.executable, "-c", dead], check=True)
    assert os.path.exists(path)
    with Server(Desk(switch), path), Client(path) as client:
        assert client.ask("stats")["rules"] == 0


def test_a_socket_at_which_somebody_listens_is_left_to_him(server: Server, switch: Switch) -> None:
    with pytest.raises(PortError, match="a switch listens there already"):
        Server(Desk(switch), server.path)
    with Client(server.path) as client:
        assert client.ask("stats")["rules"] == 0


def test_what_is_no_socket_is_not_taken_away(switch: Switch, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    path.write_text("mine")
    with pytest.raises(PortError, match="something else is there already"):
        Server(Desk(switch), str(path))
    assert path.read_text() == "mine"


def test_without_a_switch_a_client_is_told_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(PortError, match=r"no switch listens at .*start `wirespeed switch`"):
        Client(str(tmp_path / "s.sock"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may look into, as those of tests are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_is_refused_on_both_sides(switch: Switch, open_folder: Path) -> None:
    ours, theirs = str(open_folder / "ours"), str(open_folder / "theirs")
    ask = (
        "import os, socket; os.setgid(65534); os.setuid(65534)\n"
        f"s = socket.socket(socket.AF_UNIX); s.connect({ours!r}); print(s.recv(1000).decode())"
    )
    with Server(Desk(switch), ours):
        kept_out = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
        assert "PermissionError" in kept_out.stderr
        os.chmod(ours, 0o666)
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == {"error": "this switch belongs to another user"}
    serve = (
        f"import os, socket; s = socket.socket(socket.AF_UNIX); s.bind({theirs!r})\n"
        "os.setgid(65534); os.setuid(65534); s.listen(); print('ready', flush=True); s.accept()"
    )
    with subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        with pytest.raises(PortError, match="it belongs to another user"):
            Client(theirs)


def test_rules_are_added_changed_dumped_and_removed(client: Client, switch: Switch) -> None:
    assert client.ask("flow add", text="priority=7,tcp,actions=output:2\n# none\nudp,actions=output:p3\n")["n"] == 2
    assert client.ask("flow mod", text="udp,actions=drop")["n"] == 1
    shown = client.ask("flow dump", stats=False)["flows"]
    assert shown == ["udp actions=drop", "priority=7,tcp actions=output:2"]
    assert "n_packets=0" in client.ask("flow dump", text="tcp")["flows"][0]
    assert client.ask("flow del", text="tcp", strict=True)["n"] == 0
    assert client.ask("flow del", text="priority=7,tcp", strict=True)["n"] == 1
    done = client.ask("flow replace", text="udp,actions=output:1\narp,actions=output:2")
    assert done == {"added": 1, "changed": 1, "removed": 0}
    assert client.ask("flow del", text="table=255")["n"] == 2 and switch.store.length == 0


def test_a_file_with_a_wrong_line_changes_nothing_and_the_line_is_named(client: Client, switch: Switch) -> None:
    with pytest.raises(GraphError, match=r"flows.txt, line 3: no field 'ipp'"):
        client.ask("flow add", text="ip,actions=drop\n\nipp,actions=drop", where="flows.txt")
    assert switch.store.length == 0


def test_a_file_may_say_for_each_line_what_is_to_be_done(client: Client) -> None:
    client.ask("flow add", text="ip,actions=drop\narp,actions=drop")
    assert client.ask("flow add", text="delete ip\nadd udp,actions=drop\nmodify arp,actions=output:1")["n"] == 3
    assert sorted(client.ask("flow dump", stats=False)["flows"]) == ["arp actions=output:1", "udp actions=drop"]


def test_groups_and_meters_come_back_as_they_were_given(client: Client) -> None:
    group = "group_id=1,type=select,bucket=bucket_id:0,weight:2,actions=output:2,bucket=bucket_id:1,actions=output:3"
    assert client.ask("group add", text=group)["n"] == 1
    (found,) = client.ask("group dump")["groups"]
    assert found["text"] == group and [b["packets"] for b in found["buckets"]] == [0, 0]
    client.ask("group mod", text="group_id=1,type=all,bucket=output:3")
    assert "type=all" in client.ask("group dump")["groups"][0]["text"]
    assert client.ask("meter add", text="meter=4 pktps bands=type=drop rate=100")["n"] == 1
    (meter,) = client.ask("meter dump")["meters"]
    assert meter["text"] == "meter=4 pktps bands=\ntype=drop rate=100" and meter["bands"] == [
        {"packets": 0, "bytes": 0}
    ]
    client.ask("flow add", text="in_port=1,actions=meter:4,group:1")
    assert client.ask("meter del", meter=4)["n"] == 1
    assert client.ask("flow dump")["flows"] == []
    assert client.ask("group del")["n"] == 1


def test_the_mac_table_is_shown_filled_and_emptied(client: Client) -> None:
    client.ask("fdb add", port="p2", mac="02:00:00:00:00:01", vlan=10)
    entry = {"port": "2", "vlan": 10, "mac": "02:00:00:00:00:01", "age": 0, "static": True}
    assert client.ask("fdb show")["entries"] == [entry]
    client.ask("fdb del", mac="02:00:00:00:00:01", vlan=10)
    assert client.ask("fdb show")["entries"] == [] and client.ask("fdb flush")["n"] == 0
    with pytest.raises(GraphError, match="no entry for 02:00:00:00:00:01 in VLAN 0"):
        client.ask("fdb del", mac="2:0:0:0:0:1")


def test_ports_are_shown_with_their_settings_which_can_be_changed(client: Client, switch: Switch) -> None:
    client.ask("port mod", port="p3", config={"no_flood": True, "down": True})
    assert [port["config"] for port in client.ask("port show")["ports"]] == [[], [], ["down", "no-flood"]]
    for wrong in ({"config": "down"}, {"config": {"fast": True}}):
        with pytest.raises(GraphError):
            client.ask("port mod", port="1", **wrong)
    with pytest.raises(GraphError, match="no port 9"):
        client.ask("port mod", port="9", config={"down": True})


def test_a_trace_is_told_over_the_socket_too(client: Client) -> None:
    client.ask("flow add", text="ip,actions=output:2")
    answer = client.ask("trace", flow="in_port=1,ip")
    assert answer["differences"] == [] and "result: out port 2" in answer["lines"]
    with pytest.raises(GraphError, match="in hexadecimal"):
        client.ask("trace", frame="xyz", in_port=1)
    with pytest.raises(GraphError, match="give in_port"):
        client.ask("trace", frame="00" * 20)


@pytest.mark.parametrize(
    "sent",
    [
        b"\n", b"{\n", b"[]\n", b"7\n", b"null\n", b"\xff\xfe\n", b'{"command": 7}\n', b'{"command": "rm"}\n', b"{}\n",
        b'{"command": "flow add"}\n', b'{"command": "flow add", "text": 7}\n', b'{"command": "group del", "group_id": "x"}\n',
        b'{"command": "meter del", "meter": true}\n', b'{"command": "port mod", "port": "1", "config": {"a": 1}}\n',
        b'{"command": "flow add", "text": "' + b"(" * 5000 + b'"}\n', b"[" * 100_000 + b"\n", b'{"a": 1' + b"0" * 9999 + b"}\n",
    ],
)  # fmt: skip
def test_whatever_is_sent_is_answered_and_the_switch_goes_on(server: Server, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(server.path)
        connection.sendall(sent + b'{"command": "stats"}\n')
        with connection.makefile("rb") as file:
            assert json.loads(file.readline())["error"]
            assert json.loads(file.readline())["rules"] == 0


def test_a_line_that_is_too_long_is_refused_and_hung_up_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.switch.control.server.MOST_REQUEST", 1000)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.path)
        connection.sendall(b"x" * 1001)
        with connection.makefile("rb") as file:
            assert json.loads(file.readline()) == {"error": "got a line of more than 1000 bytes, wanted a line of JSON"}
            assert file.readline() == b""


def test_half_a_line_and_a_silent_client_hold_up_nobody(server: Server, client: Client) -> None:
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
        silent.connect(server.path)
        half.connect(server.path)
        half.sendall(b'{"comm')
        assert client.ask("stats")["rules"] == 0
    assert client.ask("stats")["rules"] == 0


def test_more_clients_than_there_may_be_are_told_so(server: Server) -> None:
    held = [Client(server.path) for _ in range(MOST_CLIENTS)]
    for one in held:
        one.ask("stats")
    with (
        Client(server.path) as late,
        pytest.raises((GraphError, PortError), match=r"clients already|ended the connection"),
    ):
        late.ask("stats")
    for one in held:
        one.close()


def test_many_clients_at_once_each_get_their_own_answers(server: Server, switch: Switch) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        with Client(server.path) as own:
            for i in range(20):
                own.ask("flow add", text=f"table={number},priority={i},actions=output:1")
            shown = own.ask("flow dump", text=f"table={number}")["flows"]
            if len(shown) != 20:
                wrong.append((number, shown))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and switch.store.length == 160


def test_a_server_that_closes_hangs_up_on_all(switch: Switch, tmp_path: Path) -> None:
    server = Server(Desk(switch), str(tmp_path / "s.sock"))
    client = Client(server.path)
    client.ask("stats")
    server.close()
    server.close()
    with pytest.raises(PortError, match="ended the connection"):
        client.ask("stats")
    client.close()


def test_an_answer_is_one_line_whatever_is_in_it() -> None:
    assert lines.decode(lines.encode({"text": "a\nb", "n": 1})) == {"text": "a\nb", "n": 1}
    assert lines.encode({"text": "a\nb"}).count(b"\n") == 1


class Specialised:
    """Stands for a switch in what a specialiser asks of it, and compiles nothing."""

    def __init__(self) -> None:
        self.store = self.live = self
        self.shape, self.shapes = 0, []
        self.on_shape = None
        self.wait, self.fails = threading.Event(), False

    def specialise(self) -> None:
        self.shapes.append(self.shape)
        self.wait.set()
        if self.fails:
            raise GraphError("not these")


def test_shapes_that_come_at_once_are_compiled_once_and_the_last_one_always() -> None:
    switch = Specialised()
    with Specialiser(switch, quiet_s=0.05) as specialiser:
        assert switch.wait.wait(30)
        switch.wait.clear()
        for shape in range(1, 6):
            switch.shape = shape
            switch.on_shape()
        assert switch.wait.wait(30)
    assert switch.shapes[0] == 0 and switch.shapes[-1] == 5 and len(switch.shapes) < 6
    assert specialiser.current and switch.on_shape is None


def test_what_cannot_be_compiled_is_told_and_the_next_shape_is_tried() -> None:
    switch = Specialised()
    switch.fails = True
    with Specialiser(switch, quiet_s=0.01) as specialiser:
        assert switch.wait.wait(30)
        switch.fails = False
        switch.wait.clear()
        switch.shape = 1
        switch.on_shape()
        assert switch.wait.wait(30)
    assert switch.shapes == [0, 1] and specialiser.failed == "" and specialiser.compiled == 1


def test_one_that_never_began_ends_at_once() -> None:
    switch = Specialised()
    Specialiser(switch, begin=False).close()
    assert switch.shapes == []
