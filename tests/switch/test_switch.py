"""A whole switch in a run: what comes in leaves where the rules say, is counted by rule, and no change loses a packet."""

import time
from collections import Counter

import pytest

import wirespeed as ws
from tests.switch.wild_frames import damaged_frames, whole_frames
from wirespeed.errors import GraphError
from wirespeed.switch import action as a
from wirespeed.switch.groups import Bucket, Group
from wirespeed.switch.state import State
from wirespeed.switch.switch import Switch
from wirespeed.tables.meter import Band

PATIENCE = 30.0


def frame(number: int, dst: int = 1, size: int = 60) -> bytes:
    """An UDP frame to 10.0.0.``dst`` that carries a number."""
    udp = (1000).to_bytes(2) + (2000).to_bytes(2) + (size - 34).to_bytes(2) + bytes(2)
    ip = b"\x45\0" + (size - 14).to_bytes(2) + bytes(4) + b"\x40\x11" + bytes(2) + bytes([10, 0, 0, 9, 10, 0, 0, dst])
    return (bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]) + ip + udp + number.to_bytes(8)).ljust(size, b"\0")


def number_of(packet) -> int:
    return int.from_bytes(packet.data[42:50])


class Bench:
    """A switch whose port 1 is fed by the test, and whose ports 2 and on are looked at."""

    def __init__(self, outputs: int = 3, **options) -> None:
        self.switch = Switch(**options)
        self.input = ws.port("memory:in")
        self.outputs = {n: ws.port(f"memory:out{n}") for n in range(2, 2 + outputs)}
        self.switch.add_port(1, receive=self.input)
        for number, port in self.outputs.items():
            self.switch.add_port(number, transmit=port)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *exc) -> None:
        self.switch.close()
        for port in (self.input, *self.outputs.values()):
            port.close()

    def pull(self, number: int, n: int) -> list[int]:
        """The numbers of the next ``n`` frames that leave a port."""
        found: list[int] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < n and time.monotonic() < deadline:
            found += map(number_of, self.outputs[number].pull(n - len(found), timeout=0.5))
        assert len(found) == n
        return found

    def counts(self) -> dict[int, tuple[int, int]]:
        return {one.rule.cookie: (one.packets, one.bytes) for one in self.switch.flows()}


def balanced(report) -> None:
    assert report.balanced and report.finished, str(report)


@pytest.fixture
def bench():
    with Bench() as made:
        yield made


def finish(bench: Bench, run):
    bench.input.close_input()
    run.wait()
    balanced(run.report())
    return run.report()


def test_frames_leave_by_the_port_that_their_rule_names_in_order_and_are_counted(bench: Bench) -> None:
    bench.switch.add_flow("cookie=1,priority=9,ip,nw_dst=10.0.0.1,actions=output:2")
    bench.switch.add_flow("cookie=2,priority=9,ip,nw_dst=10.0.0.2,actions=output:3,output:2")
    bench.switch.add_flow("cookie=3,priority=1,ip,actions=drop")
    with ws.start(bench.switch) as run:
        sent = [(i, 1 + i % 3, 60 + i % 50) for i in range(3000)]
        bench.input.push([frame(*one) for one in sent], timeout=PATIENCE)
        assert bench.pull(2, 2000) == [i for i, dst, _ in sent if dst in (1, 2)]
        assert bench.pull(3, 1000) == [i for i, dst, _ in sent if dst == 2]
        report = finish(bench, run)
    for cookie in (1, 2, 3):
        sizes = [size for _, dst, size in sent if dst == cookie]
        assert bench.counts()[cookie] == (len(sizes), sum(sizes))
    assert {name: n for name, n in report.stage("switch").drops.items() if n} == {"no_action": 1000}


def test_no_packet_that_is_pushed_behind_a_change_sees_the_rule_as_it_was(bench: Bench) -> None:
    switch = bench.switch
    switch.add_flow("cookie=1,ip,actions=output:2")
    with ws.start(switch) as run:
        for i in range(60):
            bench.input.push([frame(i)], timeout=PATIENCE)
            assert bench.pull(2, 1) == [i]
            how = i % 6
            if how == 0:
                switch.mod_flows("ip,actions=output:3")
            elif how == 1:
                switch.add_flow("cookie=2,priority=40000,ip,nw_dst=10.0.0.1,actions=output:3")
            elif how == 2:
                switch.add_flow("cookie=1,ip,actions=output:3")
            elif how == 3:
                with switch.bundle():
                    switch.del_flows("ip")
                    switch.add_flow("cookie=3,priority=5,udp,tp_dst=2000,actions=output:3")
            elif how == 4:
                switch.replace_flows(["cookie=4,priority=7,udp,tp_src=1000/0xff00,actions=output:3"])
            else:
                switch.add_flow("cookie=5,priority=65535,in_port=1,dl_vlan=7,actions=drop")  # another shape of keys
                switch.add_flow("cookie=6,priority=65534,ipv6,ipv6_src=::1,actions=drop")
                switch.mod_flows("ip,actions=resubmit(,9)")
                switch.add_flow("cookie=7,table=9,actions=output:3")
            bench.input.push([frame(1000 + i)], timeout=PATIENCE)
            assert bench.pull(3, 1) == [1000 + i]
            switch.replace_flows(["cookie=1,ip,actions=output:2"])
        finish(bench, run)


def test_changes_while_traffic_flows_lose_nothing_and_every_packet_is_counted_once(bench: Bench) -> None:
    switch = bench.switch
    sent = 60_000
    switch.add_flow("cookie=1,priority=1,ip,actions=output:2")
    frames = [frame(i, 1 + i % 200) for i in range(1000)]
    total = Counter()
    switch.on_flow_removed = lambda removed: total.update(packets=removed.stats.packets, bytes=removed.stats.bytes)
    with ws.start(switch) as run:
        pushed = pulled = changes = 0
        while pulled < sent:
            if pushed < sent:
                pushed += bench.input.push(frames[: sent - pushed])
            for _ in range(10):
                dst = changes % 200
                if changes % 3:
                    switch.add_flow(f"cookie=9,priority=9,ip,nw_dst=10.0.0.{dst},actions=output:{2 + changes % 2}")
                else:
                    switch.del_flows(f"cookie=9/-1,ip,nw_dst=10.0.0.{dst}")
                changes += 1
            pulled += len(bench.outputs[2].pull()) + len(bench.outputs[3].pull())
        finish(bench, run)
    assert sum(one.packets for one in switch.flows()) + total["packets"] == sent
    assert sum(one.bytes for one in switch.flows()) + total["bytes"] == 60 * sent


def test_two_workers_count_together_and_keep_each_flow_in_order() -> None:
    with Switch() as switch:
        check = ws.port("checker:")
        switch.add_port(1, receive=ws.port("generator:trailer=yes,flows=64,size=64,count=200000"))
        switch.add_port(2, transmit=check)
        switch.add_flow("cookie=1,priority=5,udp,actions=output:2")
        with ws.start(switch, workers=2) as run:
            run.wait()
            balanced(run.report())
        [stats] = switch.flows()
        assert (stats.packets, stats.bytes) == (200_000, 64 * 200_000)
        assert (check.received, check.lost, check.duplicates, check.reordered) == (200_000, 0, 0, 0)


def test_what_is_specialised_while_it_runs_does_the_same(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    """Every packet's key and path are compared with those that the generic way gives."""
    switch, added = bench.switch, bench.switch.add_state
    states: list[int] = []

    def check(address: int) -> None:
        added(address)
        State.at(address).check = 1
        states.append(address)

    monkeypatch.setattr(switch, "add_state", check)
    rules = [
        "priority=9,tcp,tp_dst=80,actions=output:2", "priority=8,udp6,actions=output:3",
        "priority=8,ip,nw_dst=10.0.0.0/8,nw_ttl=3,actions=dec_ttl,output:2", "priority=7,dl_vlan=5,actions=pop_vlan,output:3",
        "priority=7,mpls,actions=pop_mpls:0x0800,resubmit(,3)", "table=3,ip,nw_src=10.1.2.3,actions=output:4",
        "priority=6,arp,arp_op=2,actions=output:4", "priority=5,ip,actions=resubmit(7,4)",
        "table=4,in_port=7,ip,actions=set_field:10.0.0.1->ip_dst,resubmit(,5)", "table=5,ip,nw_dst=10.0.0.1,actions=output:4",
        "priority=0,actions=output:3",
    ]  # fmt: skip
    switch.add_flows(rules)
    frames = [*whole_frames(), *damaged_frames(9, 400)]
    sent = 0
    with ws.start(switch) as run:
        for turn in range(40):
            if turn == 10:
                switch.specialise()
            sent += bench.input.push(frames, timeout=PATIENCE)
            switch.add_flow(f"table=5,priority={turn},ip,nw_dst=10.0.0.{turn % 3},actions=output:{2 + turn % 3}")
            switch.add_flow(
                f"table=4,priority={turn},in_port={5 + turn % 4},nw_proto=6,ip,actions=output:{2 + turn % 3}"
            )
            switch.del_flows(f"table=5,ip,nw_dst=10.0.0.{(turn + 1) % 3}")
            if turn == 25:
                switch.add_flow("priority=60000,in_port=4,tcp,tcp_flags=+syn,actions=drop")  # another shape
            for port in bench.outputs.values():
                port.pull()
        deadline = time.monotonic() + PATIENCE
        while switch.worker_counters()["checked"] < sent and time.monotonic() < deadline:
            for port in bench.outputs.values():
                port.pull(timeout=0.01)
        counters = switch.worker_counters()
        assert counters["checked"] == sent
        assert counters["differences"] == 0
        assert counters["cache_hits"] + counters["cache_refreshed"] + counters["cache_misses"] == sent
        bench.input.close_input()
        while not run.wait(0.01):
            for port in bench.outputs.values():
                port.pull()
        balanced(run.report())


def test_groups_meters_and_ports_change_while_packets_flow(bench: Bench) -> None:
    switch = bench.switch
    switch.add_group(Group(1, "indirect", (Bucket((a.output(2),)),)))
    switch.add_flow("cookie=1,ip,actions=group:1")
    with ws.start(switch) as run:
        bench.input.push([frame(1)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [1]
        assert switch.group_stats(1) == ((1, 60), [(1, 60)])
        switch.mod_group(Group(1, "all", (Bucket((a.output(3),)), Bucket((a.output(4),)))))
        bench.input.push([frame(2)], timeout=PATIENCE)
        assert (bench.pull(3, 1), bench.pull(4, 1)) == ([2], [2])
        assert switch.group_stats(1) == ((1, 60), [(1, 60), (1, 60)])
        switch.mod_group(Group(1, "ff", (Bucket((a.output(2),), watch_port=2), Bucket((a.output(3),), watch_port=3))))
        switch.mod_port(2, down=True)
        bench.input.push([frame(3)], timeout=PATIENCE)
        assert bench.pull(3, 1) == [3]
        switch.mod_port(2, down=False)
        bench.input.push([frame(4)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [4]
        with pytest.raises(GraphError, match="no setting"):
            switch.mod_port(2, upside_down=True)
        switch.mod_port(2, no_forward=True)
        switch.mod_port(2, no_forward=False)
        assert switch.del_group(1) == 1
        switch.add_flow("cookie=2,ip,actions=output:2")
        bench.input.push([frame(5)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [5]
        switch.add_meter(1, [Band(rate=1, burst=1)], packets=True)
        switch.add_flow("cookie=2,ip,actions=meter:1,output:2")
        bench.input.push([frame(i) for i in range(6, 106)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [6]
        assert switch.del_meter(1) == 1
        assert switch.flows() == []
        switch.add_mirror("all", select_all=True, output_port=4)
        switch.add_flow("cookie=3,ip,actions=output:2")
        bench.input.push([frame(200)], timeout=PATIENCE)
        while (last := bench.pull(2, 1)) != [200]:
            assert last[0] < 106
        assert bench.pull(4, 1)[0] is not None
        switch.remove_mirror("all")
        finish(bench, run)


def test_a_mirror_that_is_added_to_a_known_path_gets_its_copies(bench: Bench) -> None:
    switch = bench.switch
    switch.add_flow("ip,actions=output:2")
    with ws.start(switch) as run:
        bench.input.push([frame(1)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [1]
        switch.add_mirror("m", destinations=[2], output_port=4)
        bench.input.push([frame(2)], timeout=PATIENCE)
        assert (bench.pull(2, 1), bench.pull(4, 1)) == ([2], [2])
        switch.remove_mirror("m")
        bench.input.push([frame(3)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [3]
        finish(bench, run)
    assert bench.outputs[4].pull() == []


def test_what_would_change_the_graph_is_refused_while_it_runs(bench: Bench) -> None:
    switch = bench.switch
    switch.add_flow("actions=output:2")
    with ws.start(switch) as run:
        with pytest.raises(GraphError, match="runs; its ports"):
            switch.add_port(9, ws.port("null:"))
        with pytest.raises(GraphError, match="runs; its ports"):
            switch.remove_port(2)
        with pytest.raises(GraphError, match="stop the run first"):
            switch.close()
        with pytest.raises(GraphError, match="one run at a time"):
            ws.start(switch)
        bench.input.push([frame(1)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [1]
        finish(bench, run)


def test_a_switch_runs_again_with_its_rules_and_counts(bench: Bench) -> None:
    switch = bench.switch
    switch.add_flow("cookie=1,ip,actions=output:2")
    for turn in range(2):
        with ws.start(switch) as run:
            bench.input.push([frame(i) for i in range(100)], timeout=PATIENCE)
            assert bench.pull(2, 100) == list(range(100))
            finish(bench, run)
        assert bench.counts() == {1: (100 * (turn + 1), 6000 * (turn + 1))}
    switch.add_port(9, transmit=ws.port("null:"))
    switch.remove_port(9)


def test_two_switches_of_one_process_never_meet() -> None:
    with Bench(1) as one, Bench(1) as other:
        one.switch.add_flow("cookie=1,ip,actions=output:2")
        other.switch.add_flow("cookie=2,ip,nw_dst=10.0.0.2,actions=output:2")
        with ws.start(one.switch) as first, ws.start(other.switch) as second:
            one.input.push([frame(i) for i in range(50)], timeout=PATIENCE)
            other.input.push([frame(i, 1 + i % 2) for i in range(50)], timeout=PATIENCE)
            assert one.pull(2, 50) == list(range(50))
            assert other.pull(2, 25) == list(range(1, 50, 2))
            finish(one, first)
            finish(other, second)
        assert (one.counts(), other.counts()) == ({1: (50, 3000)}, {2: (25, 1500)})


def test_a_port_that_only_receives_sends_nothing_and_says_so(bench: Bench) -> None:
    bench.switch.add_port(7, receive=ws.port("memory:never"))
    bench.switch.add_flow("cookie=1,ip,actions=output:7")
    with ws.start(bench.switch) as run:
        bench.input.push([frame(i) for i in range(10)], timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while bench.counts()[1][0] < 10 and time.monotonic() < deadline:
            time.sleep(0.01)
        run.stop()
        run.wait()
        balanced(run.report())
        assert "no_transmit" in str(run.report())
    assert bench.counts() == {1: (10, 600)}


@pytest.mark.parametrize(("given", "wanted"), [("receive", "leave by"), ("transmit", "come in by")])
def test_a_switch_with_ports_of_one_direction_only_does_not_start(given: str, wanted: str) -> None:
    with Switch() as switch:
        switch.add_port(1, **{given: ws.port("memory:")})
        with pytest.raises(GraphError, match=wanted):
            ws.start(switch)
        switch.add_port(2, ws.port("memory:"))


def test_a_bundle_that_fails_while_packets_flow_changes_nothing(bench: Bench) -> None:
    switch = bench.switch
    switch.add_group(Group(1, "indirect", (Bucket((a.output(3),)),)))
    switch.add_meter(2, [Band(rate=1000, burst=1000)], packets=True)
    switch.add_flow("cookie=1,ip,actions=group:1")
    switch.add_flow("cookie=2,arp,actions=meter:2,output:2")
    with ws.start(switch) as run:
        for error in (KeyboardInterrupt, ValueError):
            with pytest.raises(error), switch.bundle():
                switch.del_group()
                switch.del_meter()
                switch.add_group(Group(1, "indirect", (Bucket((a.output(2),)),)))
                switch.add_flow("cookie=7,ip,actions=group:1")
                raise error
            bench.input.push([frame(1)], timeout=PATIENCE)
            assert bench.pull(3, 1) == [1]
            assert sorted(one.rule.cookie for one in switch.flows()) == [1, 2]
            assert (list(switch.groups), list(switch.meters)) == ([1], [2])
        with switch.bundle():
            switch.del_group()
            switch.add_group(Group(1, "indirect", (Bucket((a.output(2),)),)))
            switch.add_flow("cookie=7,ip,actions=group:1")
        bench.input.push([frame(2)], timeout=PATIENCE)
        assert bench.pull(2, 1) == [2]
        finish(bench, run)


def test_who_is_told_of_a_removed_rule_may_fail_and_the_rules_go_on(bench: Bench) -> None:
    switch = bench.switch

    def fail(removed) -> None:
        raise ValueError(removed.reason)

    switch.on_flow_removed = fail
    switch.add_flow("cookie=1,priority=3,ip,actions=output:2")
    switch.add_flow("cookie=2,priority=4,ip,actions=output:3")
    with pytest.raises(ValueError, match="delete"):
        switch.del_flows("")
    assert switch.flows() == []
    switch.on_flow_removed = None
    switch.add_flow("cookie=3,priority=4,ip,actions=output:4")
    with ws.start(switch) as run:
        bench.input.push([frame(1)], timeout=PATIENCE)
        assert bench.pull(4, 1) == [1]
        finish(bench, run)


def test_a_rule_that_took_the_place_of_one_with_a_timeout_outlives_that(bench: Bench) -> None:
    switch = bench.switch
    switch.add_flow("cookie=1,hard_timeout=1,ip,actions=output:2")
    switch.add_flow("cookie=2,ip,actions=output:3")
    with pytest.raises(ValueError, match="undone"), switch.bundle():
        switch.add_flow("cookie=3,hard_timeout=1,arp,actions=output:3")
        raise ValueError("undone")
    time.sleep(1.1)
    assert switch.expire_flows() == 0
    assert [one.rule.cookie for one in switch.flows()] == [2]


def test_a_place_of_a_group_that_others_lead_to_is_for_no_other_group(bench: Bench) -> None:
    switch = bench.switch
    switch.add_group(Group(5, "indirect", (Bucket((a.output(2),)),)))
    switch.add_group(Group(6, "indirect", (Bucket((a.group(5),)),)))
    switch.add_flow("ip,actions=group:6,output:4")
    switch.del_group(5)
    switch.add_group(Group(7, "indirect", (Bucket((a.output(3),)),)))
    with pytest.raises(GraphError, match="lead to itself"):
        switch.add_group(Group(5, "indirect", (Bucket((a.group(6),)),)))
    with ws.start(switch) as run:
        bench.input.push([frame(1)], timeout=PATIENCE)
        assert bench.pull(4, 1) == [1]
        switch.add_group(Group(5, "indirect", (Bucket((a.output(2),)),)))
        bench.input.push([frame(2)], timeout=PATIENCE)
        assert (bench.pull(4, 1), bench.pull(2, 1)) == ([2], [2])
        finish(bench, run)
    assert bench.outputs[3].pull() == []
