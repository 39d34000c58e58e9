"""Ctrl-C while machine code is made is raised behind it, and never inside."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from wirespeed.jit.interrupt import Deferral


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_what_comes_within_is_raised_by_leaving_the_outermost():
    deferred, seen = Deferral(), []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), deferred:
        with deferred:
            interrupt()
            seen.append("inner")
        seen.append("outer")
    assert seen == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is before
    with deferred:
        pass  # nothing is left over


def test_an_error_within_is_not_lost_to_an_interrupt():
    with pytest.raises(KeyboardInterrupt) as caught, Deferral():
        interrupt()
        raise ValueError("what happened first")
    assert isinstance(caught.value.__context__, ValueError)


def test_another_thread_defers_nothing():
    deferred, handlers = Deferral(), []

    def work():
        with deferred:
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


def test_interrupts_that_are_ignored_stay_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Deferral():
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)


PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
from wirespeed.jit.kernel import on_compile
from wirespeed.core import ring
from wirespeed.ports.null import receive
count = 0
def begins(name):
    global count
    count += 1
    if count == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGINT)
on_compile(begins)
try:
    receive.address
    print("no interrupt", count)
except KeyboardInterrupt:
    print("interrupted")
print("address", receive.address != 0)
"""


def test_a_compilation_that_is_interrupted_ends_before_it_is_told(tmp_path):
    words = [sys.executable, "-c", PROGRAM, "1"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=os.environ | {"WIRESPEED_CACHE": str(tmp_path)}
    )
    assert (done.stdout, done.stderr) == ("interrupted\naddress True\n", "")


def test_a_second_interrupt_ends_the_process():
    program = (
        "import os, signal\nfrom wirespeed.jit.interrupt import Deferral\nwith Deferral():\n"
        "    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)\n    print('still here')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
