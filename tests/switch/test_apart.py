"""A switch that begins before all of its code is compiled, as on a machine whose kernel cache is empty."""

import threading

import pytest

import wirespeed as ws
from tests.switch.test_switch import Bench, balanced, finish, frame
from wirespeed.jit import ahead
from wirespeed.switch import apart

EDIT = "actions=mod_dl_src:02:00:00:00:00:99,output:3"


@pytest.fixture
def compiling(monkeypatch):
    """Execution counts as being compiled elsewhere until the event is set."""
    done = threading.Event()
    monkeypatch.setattr(ahead, "is_under_way", lambda wanted: wanted is apart.execution and not done.is_set())
    yield done
    done.set()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_needs_no_execution_goes_on_and_the_rest_waits(compiling, workers):
    with Bench() as bench:
        bench.switch.add_flow("priority=9,ip,nw_dst=10.0.0.1,actions=output:2")
        bench.switch.add_flow(f"priority=8,ip,nw_dst=10.0.0.2,{EDIT}")
        with ws.start(*bench.switch.chains(), workers=workers) as run:
            bench.input.push([frame(n) for n in range(100)])
            assert sorted(bench.pull(2, 100)) == list(range(100))
            bench.input.push([frame(n, 2) for n in range(100, 110)])
            assert not bench.outputs[3].pull(1, timeout=0.3), "nothing leaves that was not worked on"
            bench.switch.add_flow("priority=7,ip,nw_dst=10.0.0.3,actions=output:4")  # no change waits for it
            compiling.set()
            assert sorted(bench.pull(3, 10)) == list(range(100, 110))
            finish(bench, run)
        report = run.report()
    balanced(report)
    assert report.received == 110 and report.dropped == 0


def test_a_run_may_be_over_before_it_is_there(compiling):
    with Bench() as bench:
        bench.switch.add_flow("actions=output:2")
        with ws.start(*bench.switch.chains()) as run:
            bench.input.push([frame(n) for n in range(10)])
            assert bench.pull(2, 10) == list(range(10))
            finish(bench, run)
        balanced(run.report())
        compiling.set()
        with ws.start(ws.port("generator:count=1,size=64") >> ws.port("null:")) as other:
            other.wait()
