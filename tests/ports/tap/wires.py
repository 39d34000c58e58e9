"""Both ends of a tap in one test: a driver as its program, a packet socket at the kernel's side."""

import contextlib
import socket
import struct

from tests.driver import Driver
from wirespeed.ports import port
from wirespeed.ports.link.namespace import inside

TYPE = 0x88B5  # of local experiments: the kernel sends none of its own


def ethernet(number, size=60):
    """A frame that is told from others by its number."""
    head = b"\x02\0\0\0\0\x02" + b"\x02\0\0\0\0\x01" + struct.pack("!HI", TYPE, number)
    return (head + bytes(i * 7 + number & 0xFF for i in range(size)))[:size]


def quiet(lab, name):
    """A namespace in which the kernel says nothing of its own accord."""
    space = lab.space(name)
    lab.do(name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
    return space


@contextlib.contextmanager
def raw(space, name, kind=TYPE):
    """A packet socket at the kernel's side of an interface."""
    with inside(space), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind)) as s:
        s.bind((name, kind))
        s.settimeout(60)
        yield s


@contextlib.contextmanager
def source(word, pool, workers=1):
    """Drivers of a source, one for each worker."""
    part = port(word).open("source", workers)
    drivers = [Driver(part, pool=pool, worker=k, workers=workers) for k in range(workers)]
    try:
        yield drivers if workers > 1 else drivers[0]
    finally:
        part.close()
        for driver in drivers:
            driver.release()
    assert pool.free_count == pool.size


@contextlib.contextmanager
def sink(word, pool):
    """A driver of a sink."""
    part = port(word).open("sink", 1)
    driver = Driver(part, pool=pool)
    try:
        yield driver
    finally:
        part.close()
        driver.release()
    assert pool.free_count == pool.size
