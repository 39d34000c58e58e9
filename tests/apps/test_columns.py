"""A capture as columns, and what pandas, polars, duckdb and pyarrow make of them."""

import gc
import ipaddress
import weakref

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.utils import wrpcap

import wirespeed as ws
from wirespeed.apps import arrow
from wirespeed.net.parse import BITS

PACKETS = [
    Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=53, dport=1024) / b"abc",
    Ether() / IPv6(src="2001:db8::1", dst="2001:db8::2") / TCP(sport=80, dport=99),
    Ether() / ARP(),
    Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=53, dport=1024) / b"defg",
]


@pytest.fixture
def path(tmp_path):
    for i, packet in enumerate(PACKETS):
        packet.time = 1_700_000_000 + i
    wrpcap(str(tmp_path / "in.pcap"), PACKETS)
    return tmp_path / "in.pcap"


def test_every_column_holds_what_the_packets_hold(path):
    table = ws.read(path).table()
    assert (table.time // 10**9).tolist() == [1_700_000_000 + i for i in range(4)]
    assert table.length.tolist() == table.captured.tolist() == [len(p) for p in PACKETS]
    assert table.version.tolist() == [4, 6, 0, 4]
    assert table.proto.tolist() == [17, 6, 0, 17]
    assert table.sport.tolist() == [53, 80, 0, 53]
    assert table.dport.tolist() == [1024, 99, 0, 1024]
    assert table.layers[0] == BITS["eth"] | BITS["ipv4"] | BITS["udp"]
    assert table.layers[1] == BITS["eth"] | BITS["ipv6"] | BITS["tcp"]
    assert table.layers[2] == BITS["eth"] | BITS["arp"]
    assert table.hash[0] == table.hash[3] != table.hash[1]
    assert table.hash[2] == 0
    addresses = [ipaddress.IPv6Address(bytes(a)) for a in table.src]
    assert str(addresses[0].ipv4_mapped) == "10.0.0.1"
    assert str(addresses[1]) == "2001:db8::1"
    assert int(addresses[2]) == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_batches_of_any_size_hold_the_same_rows(path, rows):
    batches = list(ws.read(path, rows=rows))
    assert [len(b) for b in batches] == [min(rows, 4 - i) for i in range(0, 4, rows)]
    assert np.concatenate([b.length for b in batches]).tolist() == [len(p) for p in PACKETS]


def test_a_capture_can_be_read_again(path):
    capture = ws.read(path)
    assert sum(map(len, capture)) == sum(map(len, capture)) == 4


def test_an_open_file_is_read_too(path):
    with open(path, "rb") as file:
        assert len(ws.read(file).table()) == 4


def test_packets_come_with_their_bytes_and_go_to_scapy(path):
    packets = list(ws.read(path).packets())
    assert [bytes(p) for p in packets] == [bytes(p) for p in PACKETS]
    assert packets[0].to_scapy()[UDP].dport == 1024


def test_an_empty_capture_has_columns_without_rows(tmp_path):
    wrpcap(str(tmp_path / "empty.pcap"), [])
    table = ws.read(tmp_path / "empty.pcap").table()
    assert len(table) == 0 and table.length.dtype == np.uint32


def test_a_missing_file_is_told_at_once(tmp_path):
    with pytest.raises(ws.PortError, match=r"missing\.pcap"):
        ws.read(tmp_path / "missing.pcap")


def test_rows_out_of_range_are_refused(path):
    with pytest.raises(ws.GraphError, match="rows must be"):
        ws.read(path, rows=0)


def test_a_column_that_is_not_there_lists_those_that_are(path):
    with pytest.raises(AttributeError, match="no column 'size'; the columns are time, length"):
        ws.read(path).table().size  # noqa: B018


def test_a_damaged_capture_gives_its_good_packets(path, caplog):
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    assert len(ws.read(path).table()) == 3
    assert "in.pcap" in caplog.text
    with pytest.raises(ws.PortError, match="the 3 packets before are good"):
        ws.read(path, strict=True).table()


def test_pyarrow_takes_it_with_types_and_no_copy(path):
    columns = ws.read(path).table()
    table = pyarrow.table(columns)
    assert table.schema.field("time").type == pyarrow.timestamp("ns", "UTC")
    assert table.schema.field("src").type == pyarrow.binary(16)
    assert table["dport"].to_pylist() == [1024, 99, 0, 1024]
    assert table["length"].chunk(0).buffers()[1].address == columns.length.ctypes.data


def test_pandas_polars_and_duckdb_take_it(path):
    capture = ws.read(path, rows=3)
    frame = pandas.DataFrame.from_arrow(capture)
    assert frame["length"].tolist() == [len(p) for p in PACKETS]
    assert frame["time"].dt.year.tolist() == [2023] * 4
    assert polars.DataFrame(capture)["sport"].to_list() == [53, 80, 0, 53]
    assert duckdb.sql("select count(*) from capture where proto = 17").fetchall() == [(2,)]


def test_nothing_is_kept_once_the_consumer_let_go(path):
    columns = ws.read(path).table()
    watched = weakref.ref(columns.length)
    table = pyarrow.table(columns)
    del columns
    gc.collect()
    assert watched() is not None  # the table reads our array
    assert table["length"].to_pylist() == [len(p) for p in PACKETS]
    del table
    gc.collect()
    assert watched() is None


def test_a_stream_that_nobody_takes_is_given_back():
    class Batches:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

    batches = Batches()
    watched = weakref.ref(batches)
    capsule = arrow.stream(batches, {})
    del batches
    gc.collect()
    assert watched() is not None
    del capsule
    gc.collect()
    assert watched() is None


def test_an_error_while_reading_reaches_the_consumer(path):
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Exception, match="the 3 packets before are good"):
        pyarrow.table(ws.read(path, strict=True))
