"""Python's own queues and two from elsewhere, one producer and one consumer; ``python -m bench.peers.queues NAME ITEMS``.

*Theory of operation.* A message is an integer, a list of integers, or as many 64-bit words as bytes; a name says which,
and how many items one call hands over. Where the queue itself does not copy a list, a fresh one goes each time, for two
threads cannot go on using the same. Everything else is left out that a program could do without: there is no pickling
of bytes, and no message is made in the loop that could be made before. Bounds are those the libraries come with.

The consumer takes the time from its first message to its last. In a queue without a bound the producer may be ahead by
then, up to a switch of the interpreter's lock, so there is a second figure, from the moment the producer was let go.

Producer and consumer have a core each, and with them the threads that a library starts on its side: the feeder of
``multiprocessing.Queue``, the input and output of ZeroMQ. Everything runs in a process that can be killed: a peer that
hangs is a failed row.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

from bench.harness import ToolFailed
from bench.peers.limited import run_whole

SECONDS = 60.0
WORD = bytes(8)

# A child that shares the open queue needs nothing pickled. Nothing else runs in the process when it is made.
CONTEXT = multiprocessing.get_context("fork")

Put = Callable[[Any], object]
Get = Callable[[], Any]


@dataclass(frozen=True)
class Channel:
    """The two ends of a queue; each is opened by the thread or the process that uses it.

    ``messages`` are to be handed over, so many of them; ``count`` tells how many items are in what the consumer got,
    where that need not be what the producer put in.
    """

    messages: Callable[[int], Iterable[Any]]
    open_put: Callable[[], Put]
    open_get: Callable[[], Get]
    count: Callable[[Any], int] | None = None


@dataclass(frozen=True)
class Peer:
    """A queue and how it is used: ``burst`` items a call, between two threads or two processes."""

    name: str
    between: Literal["threads", "processes"]
    burst: int
    items: int  # About half a second's worth.
    channel: Callable[[int, Path], Channel]
    module: str = ""
    package: str = ""


@dataclass(frozen=True)
class Rate:
    """Items a second, from the first message received to the last, and from the producer's start to the last."""

    received: float
    since_start: float


def _integers(count: int) -> Iterable[int]:
    return range(count)


def _fresh_lists(burst: int) -> Callable[[int], Iterable[list[int]]]:
    return lambda count: map(list, repeat(list(range(burst)), count))


def _one_list(burst: int) -> Callable[[int], Iterable[list[int]]]:
    return lambda count: repeat(list(range(burst)), count)


def _words(burst: int) -> Callable[[int], Iterable[bytes]]:
    return lambda count: repeat(WORD * burst, count)


def _simple_queue(burst: int, _: Path) -> Channel:
    between: queue.SimpleQueue[Any] = queue.SimpleQueue()
    return Channel(_integers if burst == 1 else _fresh_lists(burst), lambda: between.put, lambda: between.get)


def _process_queue(burst: int, _: Path) -> Channel:
    between: multiprocessing.Queue[Any] = CONTEXT.Queue()
    return Channel(_integers if burst == 1 else _one_list(burst), lambda: between.put, lambda: between.get)


def _pipe(_burst: int, _: Path) -> Channel:
    reader, writer = CONTEXT.Pipe(duplex=False)
    return Channel(_integers, lambda: writer.send, lambda: reader.recv)


def _pipe_bytes(burst: int, _: Path) -> Channel:
    reader, writer = CONTEXT.Pipe(duplex=False)
    return Channel(_words(burst), lambda: writer.send_bytes, lambda: reader.recv_bytes)


def _zeromq(burst: int, folder: Path) -> Channel:
    zmq = importlib.import_module("zmq")
    address = f"ipc://{folder}/queue"

    def open_put() -> Put:
        socket = zmq.Context().socket(zmq.PUSH)
        socket.connect(address)
        put: Put = socket.send
        return put

    def open_get() -> Get:
        socket = zmq.Context().socket(zmq.PULL)
        socket.bind(address)
        get: Get = socket.recv
        return get

    return Channel(_words(burst), open_put, open_get)


def _faster_fifo(burst: int, _: Path) -> Channel:
    between = importlib.import_module("faster_fifo").Queue()
    return Channel(_integers if burst == 1 else _one_list(burst), lambda: between.put, lambda: between.get)


def _faster_fifo_many(burst: int, _: Path) -> Channel:
    between = importlib.import_module("faster_fifo").Queue()
    get: Get = functools.partial(between.get_many, max_messages_to_get=burst)
    return Channel(_one_list(burst), lambda: between.put_many, lambda: get, count=len)


def _faster_fifo_bytes(burst: int, _: Path) -> Channel:
    # Bytes are themselves; its pickling would only cost.
    between = importlib.import_module("faster_fifo").Queue(dumps=bytes, loads=bytes)
    return Channel(_words(burst), lambda: between.put, lambda: between.get)


ZEROMQ = ("zmq", "pyzmq")
FASTER_FIFO = ("faster_fifo", "faster-fifo")
PEERS = {
    peer.name: peer
    for peer in (
        Peer("SimpleQueue.1", "threads", 1, 4_000_000, _simple_queue),
        Peer("SimpleQueue.list.32", "threads", 32, 25_000_000, _simple_queue),
        Peer("SimpleQueue.list.512", "threads", 512, 50_000_000, _simple_queue),
        Peer("multiprocessing.Queue.1", "processes", 1, 70_000, _process_queue),
        Peer("multiprocessing.Queue.list.32", "processes", 32, 1_500_000, _process_queue),
        Peer("multiprocessing.Pipe.1", "processes", 1, 90_000, _pipe),
        Peer("multiprocessing.Pipe.bytes.1", "processes", 1, 120_000, _pipe_bytes),
        Peer("multiprocessing.Pipe.bytes.32", "processes", 32, 3_200_000, _pipe_bytes),
        Peer("pyzmq.bytes.1", "processes", 1, 400_000, _zeromq, *ZEROMQ),
        Peer("pyzmq.bytes.32", "processes", 32, 7_000_000, _zeromq, *ZEROMQ),
        Peer("faster_fifo.1", "processes", 1, 70_000, _faster_fifo, *FASTER_FIFO),
        Peer("faster_fifo.list.32", "processes", 32, 1_500_000, _faster_fifo, *FASTER_FIFO),
        Peer("faster_fifo.many.32", "processes", 32, 120_000, _faster_fifo_many, *FASTER_FIFO),
        Peer("faster_fifo.bytes.1", "processes", 1, 90_000, _faster_fifo_bytes, *FASTER_FIFO),
        Peer("faster_fifo.bytes.32", "processes", 32, 3_000_000, _faster_fifo_bytes, *FASTER_FIFO),
    )
}


def missing(name: str) -> str | None:
    """Why a peer cannot run, or None."""
    peer = PEERS[name]
    return None if not peer.module or importlib.util.find_spec(peer.module) else f"not installed: {peer.package}"


def run(name: str, cores: Sequence[int], items: int | None = None, seconds: float = SECONDS) -> Rate:
    """Hand ``items`` over in a process of its own, the producer on the first core, the consumer on the second."""
    return run_script("bench.peers.queues", name, items or PEERS[name].items, cores, seconds)


def run_script(module: str, name: str, items: int, cores: Sequence[int], seconds: float) -> Rate:
    """What a module prints that hands ``items`` over by the queue ``name``, in a process of its own."""
    command = [sys.executable, "-m", module, name, str(items), "--cores", ",".join(map(str, cores))]
    printed = json.loads(run_whole(command, cores, seconds))
    return Rate(printed["received"], printed["since_start"])


def hand_over(peer: Peer, items: int, cores: Sequence[int]) -> Rate:
    """Produce in a thread or a process, consume here; both stay on their core."""
    producing, consuming = cores
    calls = max(items // peer.burst, 2)
    with tempfile.TemporaryDirectory() as folder:
        channel = peer.channel(peer.burst, Path(folder))
        if peer.between == "threads":
            go, done = threading.Event(), threading.Event()
            thread = threading.Thread(
                target=_produce, args=(channel, calls, producing, go.wait, done.wait), daemon=True
            )
            thread.start()
            rate = _consume(peer, channel, calls, consuming, go.set)
            done.set()
            thread.join()
        else:
            start, end = CONTEXT.Event(), CONTEXT.Event()
            process = CONTEXT.Process(
                target=_produce, args=(channel, calls, producing, start.wait, end.wait), daemon=True
            )
            process.start()
            rate = _consume(peer, channel, calls, consuming, start.set)
            end.set()
            process.join()
        return rate


def _produce(channel: Channel, calls: int, core: int, go: Callable[[], object], done: Callable[[], object]) -> None:
    """Put so many messages, and stay till they are taken: threads of a library may still be sending them."""
    os.sched_setaffinity(0, {core})
    put = channel.open_put()
    messages = channel.messages(calls)
    go()
    for message in messages:
        put(message)
    done()


def _consume(peer: Peer, channel: Channel, calls: int, core: int, go: Callable[[], object]) -> Rate:
    os.sched_setaffinity(0, {core})
    get = channel.open_get()
    (expected,) = deque(channel.messages(calls), maxlen=1)
    clock = time.perf_counter
    go()
    start = clock()
    message = get()
    first = clock()
    after = 0
    if channel.count is None:
        for _ in repeat(None, calls - 1):
            message = get()
        after = (calls - 1) * peer.burst
    else:
        after = calls * peer.burst - channel.count(message)
        left = after
        while left > 0:
            message = get()
            left -= channel.count(message)
        expected, message = expected[-1], message[-1]
    last = clock()
    if message != expected:
        raise ToolFailed(f"{peer.name}: the last message is {message!r:.40}, not {expected!r:.40}")
    return Rate(after / (last - first), calls * peer.burst / (last - start))


def _main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.queues")
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("items", type=int)
    parser.add_argument("--cores", default="0,1", help="the producer's and the consumer's: 0,1")
    options = parser.parse_args(arguments)
    rate = hand_over(PEERS[options.name], options.items, [int(core) for core in options.cores.split(",")])
    print(json.dumps({"received": rate.received, "since_start": rate.since_start}))


if __name__ == "__main__":
    _main(sys.argv[1:])
