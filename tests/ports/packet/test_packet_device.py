"""What becomes of a packet port when its interface goes: down, away, renamed, into another namespace, and back."""

import time
from typing import Any

import pytest

import wirespeed as ws
from tests.lab import Lab, ip, laboratory, needs_root
from tests.ports.packet.rig import (
    QUIET,
    await_running,
    capturing,
    counter,
    drops,
    frame,
    near,
    pair,
    pulled,
    raw_socket,
    received,
    sending,
    wait_until,
    whole,
)
from wirespeed.errors import GraphError, PortError

pytestmark = needs_root


def come_back(lab: Lab, *, mtu: int = 1500) -> None:
    """Make the pair of interfaces again, in namespaces that are there."""
    lab.veth("far/x0", "near/x1", mtu=mtu)
    await_running(lab, "far/x0")
    await_running(lab, "near/x1")


def passes_in(lab: Lab, memory: Any, first: int) -> None:
    """Ten frames from the far end come out in memory."""
    sender = raw_socket(lab, "far/x0")
    sent = [frame(n, 64 + n % 900) for n in range(first, first + 10)]
    for each in sent:
        sender.send(each)
    assert [p.data for p in pulled(memory, len(sent))] == sent


def passes_out(lab: Lab, memory: Any, first: int) -> None:
    """Ten frames from memory come out at the far end."""
    receiver = raw_socket(lab, "far/x0", receiving=True)
    sent = [frame(n, 64 + n % 900) for n in range(first, first + 10)]
    memory.push(sent)
    assert received(receiver, len(sent)) == sent


def test_a_source_goes_on_when_the_link_was_down() -> None:
    with laboratory() as lab:
        pair(lab)
        with capturing(near(lab)) as (run, memory):
            passes_in(lab, memory, 0)
            for round in (1, 2, 3):
                changes = counter(run, "link_changes")
                lab.ip("near", "link", "set", "x1", "down")
                wait_until(lambda changes=changes: counter(run, "link_changes") > changes, "down")
                lab.ip("near", "link", "set", "x1", "up")
                await_running(lab, "near/x1")
                await_running(lab, "far/x0")
                passes_in(lab, memory, 100 * round)
        whole(run)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_source_goes_on_when_its_interface_was_deleted_and_made_again(workers: int) -> None:
    with laboratory() as lab:
        pair(lab)
        with capturing(near(lab), workers=workers) as (run, memory):
            passes_in_unordered(lab, memory, 0)
            for round in (1, 2, 3):
                lab.ip("near", "link", "del", "x1")
                time.sleep(0.1)
                come_back(lab, mtu=1500 + round)
                wait_until(lambda round=round: counter(run, "returns") == round, "it is back")
                passes_in_unordered(lab, memory, 100 * round)
        whole(run)


def passes_in_unordered(lab: Lab, memory: Any, first: int) -> None:
    sender = raw_socket(lab, "far/x0")
    sent = [frame(n, 64 + n % 900, dst=bytes([2, 0, 0, 0, 0, n & 0xFF])) for n in range(first, first + 20)]
    for each in sent:
        sender.send(each)
    assert sorted(p.data for p in pulled(memory, len(sent))) == sorted(sent)


def test_a_sink_goes_on_when_its_interface_was_deleted_and_made_again() -> None:
    with laboratory() as lab:
        pair(lab)
        with sending(near(lab)) as (run, memory):
            passes_out(lab, memory, 0)
            for round in (1, 2, 3):
                lab.ip("far", "link", "del", "x0")
                memory.push([frame(n) for n in range(100)])
                wait_until(lambda round=round: drops(run).get("link_down", 0) == 100 * round, "drops")
                come_back(lab)
                wait_until(lambda round=round: counter(run, "returns") == round, "it is back")
                time.sleep(0.2)
                passes_out(lab, memory, 1000 * round)
        report = whole(run)
        assert dict(report.stage("packet:x1").drops) == {"link_down": 300}


def test_a_renamed_interface_is_followed_and_afterwards_one_of_the_old_name() -> None:
    with laboratory() as lab:
        pair(lab)
        with capturing(near(lab)) as (run, memory):
            lab.ip("near", "link", "set", "x1", "down")
            lab.ip("near", "link", "set", "x1", "name", "other")
            lab.ip("near", "link", "set", "other", "up")
            await_running(lab, "far/x0")
            passes_in(lab, memory, 0)
            wait_until(lambda: counter(run, "renamed") == "other", "renamed")
            lab.ip("near", "link", "del", "other")
            come_back(lab)
            wait_until(lambda: counter(run, "returns") == 1, "it is back")
            passes_in(lab, memory, 100)
            assert counter(run, "renamed") == 0
        whole(run)


def test_an_interface_that_was_moved_away_and_back_is_found_again() -> None:
    with laboratory() as lab:
        pair(lab)
        lab.do("else", "sysctl", "-qw", *QUIET)
        with sending(near(lab)) as (run, memory):
            passes_out(lab, memory, 0)
            lab.ip("near", "link", "set", "x1", "netns", lab.space("else"))
            memory.push([frame(n) for n in range(50)])
            wait_until(lambda: drops(run).get("link_down", 0) == 50, "drops")
            lab.ip("else", "link", "set", "x1", "netns", lab.space("near"))
            lab.ip("near", "link", "set", "x1", "up")
            await_running(lab, "near/x1")
            wait_until(lambda: counter(run, "returns") == 1, "it is back")
            time.sleep(0.2)
            passes_out(lab, memory, 100)
        whole(run)


def test_a_namespace_that_is_deleted_and_made_again_under_its_name() -> None:
    with laboratory() as lab:
        pair(lab)
        with capturing(near(lab)) as (run, memory), sending(near(lab)) as (other, out):
            passes_in(lab, memory, 0)
            # The ports' sockets keep the namespace, so it is the interface that has to go as well.
            ip("netns", "del", lab.space("near"))
            lab.spaces.remove(lab.space("near"))
            lab.ip("far", "link", "del", "x0")
            wait_until(lambda: counter(run, "link_changes") and counter(other, "link_changes"), "it is gone")
            out.push([frame(n) for n in range(20)])
            wait_until(lambda: drops(other).get("link_down", 0) == 20, "drops")
            lab.do("near", "sysctl", "-qw", *QUIET)
            come_back(lab)
            wait_until(lambda: counter(run, "returns") == counter(other, "returns") == 1, "they are back")
            time.sleep(0.2)
            passes_in(lab, memory, 100)
            passes_out(lab, out, 200)
        whole(run)
        whole(other)


def test_a_larger_mtu_is_received_without_a_new_ring() -> None:
    with laboratory() as lab:
        pair(lab, mtu=1500)
        with capturing(near(lab)) as (run, memory):
            passes_in(lab, memory, 0)
            for end in ("near/x1", "far/x0"):
                space, name = end.split("/")
                lab.ip(space, "link", "set", name, "mtu", "9000")
            sender = raw_socket(lab, "far/x0")
            sent = [frame(n, 9014 - 100 * n) for n in range(20)]
            for each in sent:
                sender.send(each)
            assert [p.data for p in pulled(memory, len(sent))] == sent
        whole(run)


def test_a_run_ends_while_its_interface_is_gone() -> None:
    with laboratory() as lab:
        pair(lab)
        with capturing(near(lab)) as (run, _), sending(near(lab)) as (other, _):
            lab.ip("near", "link", "del", "x1")
            time.sleep(0.2)
        whole(run)
        whole(other)


def test_an_interface_that_is_not_there_is_told_with_those_that_are() -> None:
    with laboratory() as lab:
        pair(lab)
        for make in (lambda p: p >> ws.port("null:"), lambda p: ws.port("null:") >> p):
            with pytest.raises(PortError, match=r"eth9: there is no such interface; there are lo, x1"):
                ws.run(make(ws.port("packet:eth9", netns=lab.space("near"))))
            with pytest.raises(PortError, match="network namespace nowhere"):
                ws.run(make(ws.port("packet:x1", netns="nowhere")))
        with pytest.raises(GraphError, match="write packet:eth0"):
            ws.port("packet:")


def test_a_port_may_begin_while_its_link_is_down() -> None:
    with laboratory() as lab:
        pair(lab)
        lab.ip("near", "link", "set", "x1", "down")
        for workers in (1, 2):
            with capturing(near(lab), workers=workers) as (run, memory):
                lab.ip("near", "link", "set", "x1", "up")
                await_running(lab, "near/x1")
                await_running(lab, "far/x0")
                passes_in_unordered(lab, memory, 0)
                lab.ip("near", "link", "set", "x1", "down")
            whole(run)
