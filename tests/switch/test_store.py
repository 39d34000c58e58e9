"""A switch's rules against a list that is searched from end to end: at each version, for those in force and for readers."""

import copy
import ctypes
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.conftest import TORTURE
from tests.switch.models import Line, Linear
from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError
from wirespeed.switch import publish
from wirespeed.switch import store as store_module
from wirespeed.switch import switch as switch_module
from wirespeed.switch.fields import FIELDS
from wirespeed.switch.memory import RuleRecord, Shared
from wirespeed.switch.rule import CHECK_OVERLAP, RESET_COUNTS, Rule
from wirespeed.switch.state import State
from wirespeed.switch.switch import Switch
from wirespeed.switch.text.flow import parse_flow
from wirespeed.tables.classifier import Entry

SETTLE = settings(max_examples=1000 if TORTURE else 40, stateful_step_count=40)
TABLES = (0, 1, 7)
COUNTERS = 2048
MATCHES = (
    "", "in_port=1", "in_port=2", "ip", "ip,nw_dst=10.0.0.0/8", "ip,nw_dst=10.1.0.0/16", "ip,nw_dst=10.1.2.3",
    "in_port=1,ip,nw_dst=10.1.0.0/16", "tcp,tp_dst=80", "tcp,tp_dst=0x50/0xfff0", "ipv6,ipv6_dst=2001:db8::/32", "arp",
    "dl_vlan=5", "metadata=1", "reg1=2/2,ip", "in_port=1,dl_vlan=5,ip,nw_ttl=1",
)  # fmt: skip
ACTIONS = (
    "output:1",
    "output:2",
    "drop",
    "output:1,output:2",
    "mod_vlan_vid:9,output:3",
    "set_field:5->reg1,resubmit(,7)",
)


def flow(**fields: int) -> int:
    return sum(value << FIELDS[name].at for name, value in fields.items())


FLOWS = [
    flow(in_port=1), flow(in_port=2, dl_type=0x806), flow(in_port=3, dl_type=0x800, nw_dst=0x0A010203, nw_proto=6, tcp_dst=80),
    flow(in_port=1, dl_type=0x800, nw_dst=0x0A010203, nw_ttl=1, vlan_tci=0x1005), flow(dl_type=0x800, nw_dst=0x0A020304),
    flow(dl_type=0x86DD, ipv6_dst=0x20010DB8 << 96), flow(in_port=1, metadata=1), flow(dl_type=0x800, reg1=2, in_port=2),
]  # fmt: skip

tables, priorities = st.sampled_from(TABLES), st.sampled_from((0, 1, 1, 9))
matches, actions = st.sampled_from(MATCHES), st.sampled_from(ACTIONS)
cookies = st.sampled_from((0, 0, 1, 3))
masks = st.sampled_from((0, 0, 1, 3))


def mods(*commands: str) -> st.SearchStrategy[tuple[str, str]]:
    """What to do, and the text to do it with."""

    @st.composite
    def draw(draw: st.DrawFn) -> tuple[str, str]:
        command = draw(st.sampled_from(commands))
        words = [f"table={draw(tables)}"]
        cookie = draw(cookies)
        if command == "add":
            words += [f"priority={draw(priorities)}", f"cookie={cookie}"]
            words += draw(st.lists(st.sampled_from(("check_overlap", "reset_counts")), max_size=2, unique=True))
            words += [f"idle_timeout={draw(st.sampled_from((0, 0, 0, 4)))}"]
            words += [f"hard_timeout={draw(st.sampled_from((0, 0, 0, 6)))}"]
        else:
            mask = draw(masks)
            words += [f"cookie={cookie & mask}/{mask}"] if mask else []
            words += [f"priority={draw(priorities)}"] if command.endswith("strict") else []
            if command.startswith("delete"):
                words += draw(st.sampled_from(([], [], ["out_port=2"], ["out_port=3"])))
            else:
                words += draw(st.sampled_from(([], [], ["reset_counts"])))
        words += [match] if (match := draw(matches)) else []
        words += [] if command.startswith("delete") else [f"actions={draw(actions)}"]
        return command, ",".join(words)

    return draw()


any_mod = mods("add", "add", "add", "modify", "modify_strict", "delete", "delete_strict")


class Failure(Exception):
    pass


def key_of(rule: Rule) -> tuple[int, int, int, int]:
    return rule.table, rule.priority, rule.match.value, rule.match.mask


class Rules(RuleBasedStateMachine):
    """The switch, the model, and a clock that only this machine moves."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.patch = pytest.MonkeyPatch()
        clock = SimpleNamespace(monotonic=lambda: self.now)
        self.patch.setattr(switch_module, "time", clock)
        self.patch.setattr(store_module, "time", clock)
        self.patch.setattr(publish, "PATIENCE_S", 0)
        self.switch = Switch()
        self.told: list[tuple[int, str]] = []
        self.switch.on_flow_removed = lambda removed: self.told.append((removed.stats.rule.cookie, removed.reason))
        self.model = Linear()
        self.expected: list[tuple[int, str]] = []
        self.arena = Arena(3 * State.size + 16 * COUNTERS + 4096)
        # Workers, as the control path sees them: one that counts, and those that may be in a burst.
        counting, *self.idle = (self.arena.alloc(State.size) for _ in range(3))
        self.switch.counters.states += [counting, *self.idle]
        paths = State.at(counting).paths
        paths.totals, paths.n_totals = self.arena.alloc(16 * COUNTERS), COUNTERS
        self.totals = (ctypes.c_uint64 * (2 * COUNTERS)).from_address(paths.totals)
        self.readers: list[tuple[int, int, Linear]] = []  # who is in a burst, its version, and the rules that it sees

    @property
    def version(self) -> int:
        return int(Shared.at(self.switch.shared).version)

    def teardown(self) -> None:
        self.patch.undo()
        self.switch.counters.states.clear()
        self.switch.close()
        self.arena.close()

    # The model's side.

    def line(self, text: str) -> Line:
        mod = parse_flow(text, "add")
        return Line(
            mod.table, mod.priority, mod.match.value, mod.match.mask, mod.actions, mod.cookie, mod.idle_timeout,
            mod.hard_timeout, mod.flags, self.now, self.now,
        )  # fmt: skip

    def add_to(self, model: Linear, text: str) -> None:
        line = self.line(text)
        if line.flags & CHECK_OVERLAP and model.overlapping(line):
            raise Failure
        old = model.same(line)
        if old is not None:
            model.lines.remove(old)
            if not line.flags & RESET_COUNTS:
                line.packets = old.packets
        model.lines.append(line)

    def change(self, model: Linear, command: str, text: str) -> int:
        if command == "add":
            self.add_to(model, text)
            return 1
        mod = parse_flow(text, command)
        found = model.covered(mod.table, mod.match.value, mod.match.mask)
        if command.endswith("strict"):
            found = [one for one in found if (one.priority, one.mask) == (mod.priority, mod.match.mask)]
        found = [one for one in found if not (one.cookie ^ mod.cookie) & mod.cookie_mask]
        if mod.out_port is not None:
            found = [one for one in found if any(mod.out_port in action.ports for action in one.actions)]
        for one in found:
            model.lines.remove(one)
            if command.startswith("modify"):
                packets = 0 if mod.flags & RESET_COUNTS else one.packets
                model.lines.append(replace(one, actions=mod.actions, packets=packets))
            else:
                self.expected.append((one.cookie, "delete"))
        return len(found)

    # The switch's.

    def do(self, command: str, text: str) -> int:
        if command == "add":
            self.switch.add_flow(text)
            return 1
        strict = command.endswith("strict")
        return (self.switch.mod_flows if command.startswith("modify") else self.switch.del_flows)(text, strict=strict)

    @contextmanager
    def both(self):
        """What the model does in here is undone when it fails."""
        before, told = Linear(copy.copy(line) for line in self.model.lines), list(self.expected)
        try:
            yield
        except Failure:
            self.model, self.expected = before, told

    @rule(mod=any_mod)
    def change_one(self, mod: tuple[str, str]) -> None:
        with self.both():
            try:
                number = self.change(self.model, *mod)
            except Failure:
                with pytest.raises(GraphError, match="overlaps"):
                    self.do(*mod)
                raise
            assert self.do(*mod) == number

    @rule(changes=st.lists(any_mod, max_size=6), fails=st.booleans())
    def change_many_at_once(self, changes: list[tuple[str, str]], fails: bool) -> None:
        before = self.version
        with self.both():
            try:
                for mod in changes:
                    self.change(self.model, *mod)
                if fails:
                    raise Failure
            except Failure:
                with pytest.raises((GraphError, Failure)), self.switch.bundle():
                    for mod in changes:
                        self.do(*mod)
                    raise Failure from None
                assert self.version == before
                raise
            with self.switch.bundle():
                for mod in changes:
                    self.do(*mod)
                    assert self.version == before
            assert self.version <= before + 1

    @rule(changes=st.lists(any_mod, min_size=1, max_size=4), bad=any_mod, behind=st.lists(any_mod, max_size=2))
    def go_on_in_a_bundle_behind_one_that_failed(self, changes, bad, behind) -> None:
        with self.both(), self.switch.bundle():
            for mod in [*changes, *behind]:
                with self.both():
                    try:
                        self.change(self.model, *mod)
                    except Failure:
                        with pytest.raises(GraphError):
                            self.do(*mod)
                        raise
                    self.do(*mod)
                if mod is changes[-1]:
                    with pytest.raises(Failure), self.switch.bundle():
                        try:
                            self.do(*bad)
                        except GraphError:
                            pass
                        raise Failure

    @rule(flows=st.lists(mods("add"), max_size=6))
    def replace_all(self, flows: list[tuple[str, str]]) -> None:
        texts = [text.replace("check_overlap,", "").replace("reset_counts,", "") for _, text in flows]
        wanted = {line.key: line for line in map(self.line, texts)}
        old = {line.key: line for line in self.model.lines}
        self.expected += [(line.cookie, "delete") for key, line in old.items() if key not in wanted]
        lines, changed = [], 0
        for key, line in wanted.items():
            was = old.get(key)
            if was is None:
                lines.append(line)
            elif (was.cookie, was.idle, was.hard, was.flags) != (line.cookie, line.idle, line.hard, line.flags):
                lines.append(replace(line, packets=was.packets))
                changed += 1
            else:
                lines.append(replace(was, actions=line.actions))
                changed += was.actions != line.actions
        self.model.lines = lines
        added, removed = len(wanted.keys() - old.keys()), len(old.keys() - wanted.keys())
        assert self.switch.replace_flows(texts) == (added, changed, removed)

    @precondition(lambda self: self.model.lines)
    @rule(data=st.data(), packets=st.integers(1, 5))
    def count_packets(self, data, packets: int) -> None:
        line = data.draw(st.sampled_from(self.model.lines))
        line.packets += packets
        line.used = self.now
        self.totals[2 * self.rule_of(line).number] += packets
        self.switch.flows()  # who looks knows from now on that it was used

    def rule_of(self, line: Line):
        return next(one for one in self.switch.store.rules() if key_of(one) == line.key)

    @rule(seconds=st.sampled_from((1, 2, 5)))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        gone = []
        for line in self.model.lines:
            if line.hard and self.now - line.created >= line.hard:
                gone.append((line, "hard_timeout"))
            elif line.idle and self.now - line.used >= line.idle:
                gone.append((line, "idle_timeout"))
        for line, reason in gone:
            self.model.lines.remove(line)
            self.expected.append((line.cookie, reason))
        assert self.switch.expire_flows() == len(gone)

    @precondition(lambda self: self.idle)
    @rule()
    def begin_a_burst(self) -> None:
        address = self.idle.pop()
        state = State.at(address)
        state.version, state.passes = self.version, state.passes + 1
        self.readers.append((address, self.version, Linear(copy.copy(line) for line in self.model.lines)))

    @precondition(lambda self: self.readers)
    @rule()
    def end_a_burst(self) -> None:
        address, _, _ = self.readers.pop(0)
        State.at(address).passes += 1
        self.idle.append(address)

    @rule()
    def give_memory_back(self) -> None:
        self.switch.store.reclaim()

    # What must hold.

    def found(self, table: int, flow: int, version: int):
        """(cookie, number of counters) of what a reader finds, or None."""
        classifier = self.switch.store.classifiers.get(table)
        entry = classifier.lookup(flow, version) if classifier else 0
        if not entry:
            return None
        record = RuleRecord.at(Entry.at(entry).data)
        program = ctypes.string_at(record.program, 8)
        return int(record.cookie), int(record.rule), program

    def check(self, model: Linear, version: int) -> None:
        for table in TABLES:
            for one in FLOWS:
                found = self.found(table, one, version)
                best = model.matching(table, one)
                if found is None:
                    assert best == []
                else:
                    programs = {(line.cookie, self.switch.store.program_of(line.actions)[0][:8]) for line in best}
                    assert (found[0], found[2]) in programs

    @invariant()
    def lookups_find_what_the_model_finds(self) -> None:
        self.check(self.model, self.version)
        for _, version, model in self.readers:
            self.check(model, version)

    @invariant()
    def rules_and_their_counts_are_those_of_the_model(self) -> None:
        ours = {key_of(one.rule): one for one in self.switch.flows()}
        theirs = {line.key: line for line in self.model.lines}
        assert ours.keys() == theirs.keys()
        assert self.switch.store.length == len(theirs)
        for key, line in theirs.items():
            stats = ours[key]
            assert (stats.packets, stats.rule.cookie, stats.rule.actions) == (line.packets, line.cookie, line.actions)
            assert stats.duration == self.now - line.created

    @invariant()
    def what_matters_of_a_flow_is_what_rules_look_at(self) -> None:
        live = self.switch.store.live
        wanted = [one.reads for one in self.switch.store.rules()]
        assert sorted(live._wanted.elements()) == sorted(wanted)

    @invariant()
    def who_ended_was_told(self) -> None:
        assert sorted(self.told) == sorted(self.expected)


Rules.TestCase.settings = SETTLE
TestRules = Rules.TestCase
