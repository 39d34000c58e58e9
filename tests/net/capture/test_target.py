"""Targets: paths, descriptors, FIFOs and sockets are opened, and what cannot be is said in a sentence."""

import errno
import os
import socket

import pytest

from wirespeed.errors import PortError
from wirespeed.net.capture.target import number_of, open_sink, open_source


@pytest.mark.parametrize(
    ("target", "number"),
    [("-", 7), ("fd=0", 0), ("fd=12", 12), ("/dev/fd/3", 3), ("/proc/self/fd/4", 4), ("/dev/stdin", 0),
     ("/dev/stdout", 1), ("fd=", None), ("fd=x", None), ("in.pcap", None), ("./-", None)],
)  # fmt: skip
def test_descriptors_are_told_from_paths(target, number):
    assert number_of(target, 7) == number


def test_a_file_is_opened_at_its_beginning(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    target = open_source(str(path))
    assert (target.regular, target.begin, os.read(target.fd, 9)) == (True, 0, b"hello")
    target.close()
    target.close()


def test_a_given_descriptor_is_read_from_where_it_is_and_stays_open(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    with path.open("rb", buffering=0) as file:
        file.seek(2)
        target = open_source(f"fd={file.fileno()}")
        assert (target.regular, target.begin) == (True, 2)
        target.close()
        assert file.read() == b"llo"


def test_a_fifo_is_opened_for_reading_without_its_writer(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    target = open_source(str(path))
    writer = os.open(path, os.O_WRONLY)
    os.write(writer, b"x")
    assert not target.regular
    assert os.read(target.fd, 9) == b"x"
    os.close(writer)
    target.close()


@pytest.mark.parametrize("opened", [open_source, open_sink])
def test_a_unix_socket_is_connected_to(tmp_path, opened):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        target = opened(path)
        peer, _ = server.accept()
        with peer:
            peer.send(b"in")
            os.write(target.fd, b"out")
            assert (os.read(target.fd, 9), peer.recv(9)) == (b"in", b"out")
            assert not target.regular
        target.close()


def test_a_socket_where_nobody_listens_is_refused(tmp_path):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        with pytest.raises(PortError, match="nobody listens"):
            open_source(path)


@pytest.mark.parametrize("opened", [open_source, open_sink])
def test_what_is_not_there_is_refused_with_its_error(opened):
    with pytest.raises(
        PortError, match=r"cannot \w+ /no/such/file: No such file or directory; check the path"
    ) as caught:
        opened("/no/such/file")
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("opened", [open_source, open_sink])
def test_a_directory_is_refused(opened, tmp_path):
    with pytest.raises(PortError, match="directory"):
        opened(str(tmp_path))


@pytest.mark.parametrize("opened", [open_source, open_sink])
def test_a_descriptor_that_is_not_open_is_refused(opened):
    with pytest.raises(PortError, match="give a descriptor that is open"):
        opened("fd=987654")


def test_a_descriptor_open_the_wrong_way_is_refused():
    reader, writer = os.pipe()
    try:
        with pytest.raises(PortError, match="open for reading"):
            open_source(f"fd={writer}")
        with pytest.raises(PortError, match=r"writing|Permission|Bad file"):
            open_sink(f"fd={reader}")
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("opened", [open_source, open_sink])
def test_a_terminal_is_refused(opened):
    master, slave = os.openpty()
    try:
        with pytest.raises(PortError, match="is a terminal"):
            opened(f"fd={slave}")
    finally:
        os.close(master)
        os.close(slave)


def test_a_file_is_written_anew_with_the_usual_permissions(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old content")
    target = open_sink(str(path))
    assert target.regular and path.read_bytes() == b""
    target.close()
    other = tmp_path / "new"
    mask = os.umask(0o027)
    open_sink(str(other)).close()
    os.umask(mask)
    assert other.stat().st_mode & 0o777 == 0o640


def test_a_socket_given_for_writing_is_put_back_as_it_was():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        target = open_sink(f"fd={ours.fileno()}")
        assert os.get_blocking(ours.fileno()) is False
        target.close()
        assert os.get_blocking(ours.fileno()) is True


def test_a_pipe_given_for_writing_keeps_its_own_flags():
    reader, writer = os.pipe()
    target = open_sink(f"fd={writer}")
    assert os.get_blocking(writer) is True
    assert os.get_blocking(target.fd) is False
    target.close()
    os.close(reader)
    os.close(writer)


def test_refused_targets_leave_no_descriptor_open(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for target in (str(tmp_path), "/no/such/file", "fd=987654"):
            for opened in (open_source, open_sink):
                with pytest.raises(PortError):
                    opened(target)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_being_read_is_not_written_over(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"precious")
    reading = [open_source(str(path)), open_source(str(path))]
    with pytest.raises(PortError, match="is being read or written, by this run or another one; give another name"):
        open_sink(str(path))
    assert path.read_bytes() == b"precious"
    for target in reading:
        target.close()
    open_sink(str(path)).close()
    assert path.read_bytes() == b""


def test_a_file_is_written_by_one_at_a_time_and_may_be_read_meanwhile(tmp_path):
    path = str(tmp_path / "a")
    writing = open_sink(path)
    with pytest.raises(PortError, match="is being read or written"):
        open_sink(path)
    open_source(path).close()
    writing.close()
