"""Ctrl-C between any two lines of a change leaves the rules as they were or as they were to be, and the next change works."""

import sys
from collections.abc import Callable
from itertools import count

import pytest

from wirespeed.errors import GraphError
from wirespeed.switch import store as store_module
from wirespeed.switch.fields import FIELDS
from wirespeed.switch.memory import RuleRecord, Shared
from wirespeed.switch.switch import Switch
from wirespeed.tables.classifier import Entry


def ip(address: int) -> int:
    return 0x0800 << FIELDS["dl_type"].at | address << FIELDS["nw_dst"].at


FLOWS = [ip(0x0A000001), ip(0x0A000002), ip(0x0B000001), 0x0806 << FIELDS["dl_type"].at]
BEFORE = [
    "cookie=1,priority=5,ip,nw_dst=10.0.0.1,actions=output:1", "cookie=2,priority=4,ip,nw_dst=10.0.0.0/8,actions=output:2",
    "cookie=3,priority=3,ip,actions=dec_ttl,output:1",
]  # fmt: skip


def bundle(switch: Switch) -> None:
    with switch.bundle():
        switch.del_flows("ip,nw_dst=10.0.0.0/8")
        switch.add_flow("cookie=8,priority=4,ip,nw_dst=10.0.0.0/8,actions=output:4")
        switch.mod_flows("ip,actions=output:5")


CHANGES: dict[str, Callable[[Switch], object]] = {
    "add": lambda switch: switch.add_flow("cookie=9,priority=9,ip,nw_dst=10.0.0.2,actions=output:3"),
    "add of another shape": lambda switch: switch.add_flow("cookie=9,priority=9,ip,nw_tos=4,actions=dec_ttl,output:3"),
    "replace": lambda switch: switch.add_flow("cookie=7,priority=4,ip,nw_dst=10.0.0.0/8,actions=output:3"),
    "replace and reset": lambda switch: switch.add_flow("cookie=7,reset_counts,priority=3,ip,actions=output:3"),
    "modify": lambda switch: switch.mod_flows("ip,nw_dst=10.0.0.0/8,actions=output:6"),
    "modify and reset": lambda switch: switch.mod_flows("reset_counts,ip,actions=output:6"),
    "remove": lambda switch: switch.del_flows("ip,nw_dst=10.0.0.1"),
    "bundle": bundle,
}


class Interrupter:
    """Raises KeyboardInterrupt at the ``number``-th line of the store that runs."""

    def __init__(self, number: int) -> None:
        self.number, self.lines = number, 0

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename != store_module.__file__:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def run(self, change: Callable[[Switch], object], switch: Switch) -> bool:
        """Whether the change was interrupted."""
        sys.settrace(self)
        try:
            change(switch)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False


def rules_of(switch: Switch) -> list[tuple]:
    return sorted(
        (r.table, r.priority, r.match.value, r.match.mask, r.cookie, repr(r.actions)) for r in switch.store.rules()
    )


def check(switch: Switch) -> None:
    """What readers find is what the rules say."""
    version = int(Shared.at(switch.shared).version)
    for flow in FLOWS:
        entry = switch.store.classifiers[0].lookup(flow, version)
        found = None
        if entry:
            record = RuleRecord.at(Entry.at(entry).data)
            found = next(rule for rule in switch.store.rules() if rule.number == record.rule)
            assert (found.entry, found.cookie) == (entry, record.cookie)
        wanted = [rule for rule in switch.store.rules() if flow & rule.match.mask == rule.match.value]
        assert found is max(wanted, key=lambda rule: rule.priority, default=None)
    assert switch.store.length == len(list(switch.store.rules()))


def ready() -> Switch:
    switch = Switch()
    switch.add_flows(BEFORE)
    return switch


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_interrupted_is_done_or_not_done(name: str) -> None:
    change = CHANGES[name]
    with ready() as switch:
        before = rules_of(switch)
        change(switch)
        after = rules_of(switch)
        check(switch)
    states = set()
    with ready() as switch:
        for number in count(1):
            if not Interrupter(number).run(change, switch):
                break
            now = rules_of(switch)
            assert now in (before, after), number
            states.add(now == after)
            switch.add_flow("cookie=77,priority=1,arp,actions=output:1")
            check(switch)
            switch.replace_flows(BEFORE)
            check(switch)
            assert rules_of(switch) == before
            assert switch.store.reclaim() == switch.store.version
            wanted = sum(1 for _ in switch.store.rules())
            assert len(switch.store.classifiers[0].entries()) == wanted
    assert number > 20
    assert states == {False, True}


def test_a_change_that_cannot_be_done_leaves_everything_as_it_was() -> None:
    with ready() as switch:
        before, version = rules_of(switch), switch.store.version
        live = switch.store.live._wanted.copy()
        for text in (
            "ip,nw_dst=10.0.0.9,actions=group:9",
            "priority=5,check_overlap,ip,nw_dst=10.0.0.1,actions=output:2",
        ):
            with pytest.raises(GraphError):
                switch.add_flow(text)
        with pytest.raises(GraphError, match="no group 9"):
            switch.mod_flows("ip,actions=group:9")
        with pytest.raises(GraphError, match="no meter 4"):
            switch.add_flows(["ip,nw_dst=10.0.0.7,actions=output:1", "ip,nw_dst=10.0.0.9,actions=meter:4,output:1"])
        assert (rules_of(switch), switch.store.version) == (before, version)
        assert switch.store.live._wanted == live
        check(switch)
