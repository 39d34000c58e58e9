"""Processes for the tests of shared pools: forks of one that has loaded everything and has no pool open.

A test starts a job by its name; the job may say things, which the test reads as answers.  Jobs end with their nursery.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections import defaultdict, deque

import numpy as np

import wirespeed as ws
from tests.core.test_pool import churn
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import WirespeedError

ROOM = HEADROOM + 64
PATIENCE_S = 60


class Child:
    """A process that does a job."""

    def __init__(self, nursery, pid):
        self.nursery, self.pid = nursery, pid
        self.pidfd = os.pidfd_open(pid)

    def answer(self):
        """What it says next."""
        return self.nursery.answer(self.pid)

    def kill(self):
        """Kill it, and wait until it is known to be gone."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.join()

    def join(self):
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), "a process does not end"
        os.close(self.pidfd)


class Nursery:
    """Starts jobs in processes of their own."""

    def __init__(self):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        code = f"from tests.core.pool_peers import serve; serve({theirs.fileno()})"
        self.process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self.said = defaultdict(deque)
        self.answer(0)  # it is ready

    def start(self, job, *arguments, fds=()):
        socket.send_fds(self.socket, [json.dumps([job, arguments]).encode()], list(fds))
        return Child(self, self.answer(0))

    def answer(self, pid):
        while not self.said[pid]:
            who, word = json.loads(self.socket.recv(1 << 16))
            self.said[who].append(word)
        word = self.said[pid].popleft()
        assert not (isinstance(word, dict) and "failed" in word), word["failed"]
        return word

    def unread(self):
        """What processes have said and nobody has read."""
        while select.select([self.socket], [], [], 0)[0]:
            who, word = json.loads(self.socket.recv(1 << 16))
            self.said[who].append(word)
        return [word for words in self.said.values() for word in words]

    def close(self):
        self.socket.close()
        self.process.wait(PATIENCE_S)


def end_with_parent():
    """Have the kernel kill this process when its parent ends (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def load():
    """Load every kernel that jobs need."""
    with PacketPool(40, ROOM, shared=True) as pool, pool.open_cache(4) as cache, ws.Ring(16, shared=True) as ring:
        for n in (1, 2, 9):
            cache.free(cache.alloc(n))
        churn(cache.address, np.empty(64, np.int64).ctypes.data, 0, 1)
        ring.enqueue_bulk(cache.alloc(2).astype(np.uint64))
        pool.reclaim(ring.dequeue_burst(2))
        pool.recover()


def serve(number):
    """The nursery's own life."""
    end_with_parent()
    load()
    there = socket.socket(fileno=number)
    send(there, 0, "ready")
    while True:
        message, fds, _, _ = socket.recv_fds(there, 1 << 16, 4)
        if not message:
            os._exit(0)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        job, arguments = json.loads(message)
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            try:
                JOBS[job](lambda word: send(there, os.getpid(), word), fds, *arguments)
            except BaseException:
                send(there, os.getpid(), {"failed": traceback.format_exc()})
            os._exit(0)
        send(there, 0, pid)
        for fd in fds:
            os.close(fd)


def send(there, pid, word):
    there.send(json.dumps([pid, word]).encode())


def attach(fds, name, who):
    return PacketPool.attach(fd=fds[0], member_name=who) if fds else PacketPool.attach(name, member_name=who)


def rest():
    while True:
        signal.pause()


def look(say, fds, name):
    """Say what the pool looks like from here, and leave it."""
    with attach(fds, name, "looker") as pool:
        peers = [(peer.pid, peer.name, peer.alive) for peer in pool.peers()]
        say([pool.address, pool.size, pool.room, pool.free_count, peers])


def refused(say, fds, name):
    """Say what attaching raises."""
    try:
        attach(fds, name, "")
    except (WirespeedError, OSError) as error:
        say([type(error).__name__, str(error)])


def keep(say, fds, name, limit, freed, kept):
    """Have some free packets in a cache and some in hand; say which."""
    pool = attach(fds, name, "keeper")
    cache = pool.open_cache(limit, name="kept")
    cache.free(cache.alloc(freed))
    handles = cache.alloc(kept)
    say([len(cache), handles.tolist()])
    rest()


def forked(say, fds, name):
    """A fork of a process with a pool has none, and can attach by itself."""
    with attach(fds, name, "parent") as pool, pool.open_cache(4, name="parent's") as cache:
        cache.free(cache.alloc(1))
        before = len(cache)
        child = os.fork()
        if child == 0:
            words = []
            for use in (cache.alloc, pool.alloc, pool.audit):
                try:
                    use()
                except ws.GraphError as error:
                    words.append(str(error))
            pool.close()
            with attach(fds, name, "child") as own, own.open_cache(2) as mine:
                mine.free(mine.alloc(3))
                words.append([own.address == pool._shared.address, len(own.peers())])
            say(words)
            os._exit(0)
        os.waitpid(child, 0)
        say([child, len(cache) == before, len(pool.peers())])


def text_of(handle):
    p = Packet.at(handle)
    return ctypes.string_at(p.buffer + p.data, p.length)


def write(handle, text):
    p = Packet.at(handle)
    ctypes.memmove(p.buffer + p.data, text, len(text))
    p.length = p.total = p.wire = len(text)


def exchange(say, fds, name, wanted, seed, out_name, in_name):
    """Send packets, which the other writes to and sends back; do the same with the other's, until told to end."""
    chance = np.random.default_rng(seed)
    mine = b"from %d" % os.getpid()
    sent = freed = 0
    seen = []
    with attach(fds, name, f"exchanger {seed}") as pool, pool.open_cache(8) as cache:
        ours, theirs = (ws.Ring.attach(ring) for ring in (out_name, in_name))
        while not ours.is_shut_down:
            if sent < wanted:
                handles = cache.alloc(int(chance.integers(1, 6)))
                for handle in handles.tolist():
                    write(handle, mine)
                assert ours.enqueue_bulk(handles.astype(np.uint64)) == len(handles)
                sent += len(handles)
            for handle in theirs.dequeue_burst(8, timeout_s=0.001).tolist():
                text = text_of(handle)
                if text.endswith(b"back"):
                    assert text == mine + b" back", text
                    cache.free([handle])
                    freed += 1
                else:
                    seen.append(int(text.split()[1]))
                    write(handle, text + b" back")
                    assert ours.enqueue(handle)
            if sent >= wanted and sent == freed:
                say(sent)
                wanted = sent = 0  # once
        say([sorted(set(seen)), len(seen)])
        ours.close()
        theirs.close()


def stir(say, fds, name, seed, limit):
    """Take and give packets for ever; say so when another writes to one that is ours."""
    pool = attach(fds, name, f"worker {seed}")
    cache = pool.open_cache(limit, name="stirred")
    scratch = np.empty(64, np.int64)
    say(cache.address)
    while True:
        if clashes := churn(cache.address, scratch.ctypes.data, 20_000, seed):
            say({"clashes": clashes})


def mend(say, fds, name):
    """Recover the pool."""
    pool = attach(fds, name, "mender")
    say("ready")
    pool.recover()
    rest()


JOBS = {
    "exchange": exchange, "forked": forked, "keep": keep, "look": look, "mend": mend, "refused": refused, "stir": stir,
}  # fmt: skip
