"""``ws.Switch``: ports, rules, groups, meters and mirrors, and the graph that they make together.

Theory of operation
-------------------
The switch owns the memory that workers read; a run's workers have caches of their own (:mod:`wirespeed.switch.worker`)
and are known here while they run.  Whatever changes is effective when the call returns: workers in the middle of a
burst finish it with the rules as they were, every later burst sees the change.

Thread rules: any thread may call anything; calls take turns.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from wirespeed.core.arena import Arena
from wirespeed.core.element import Chain, Element
from wirespeed.engine.graph import is_port
from wirespeed.errors import GraphError
from wirespeed.switch import element as elements
from wirespeed.switch import groups as group_memory
from wirespeed.switch import publish, specialise
from wirespeed.switch.cache import MOST_BEHIND
from wirespeed.switch.counters import Counters
from wirespeed.switch.fields import LOCAL
from wirespeed.switch.groups import Group, Placed
from wirespeed.switch.heap import Heap
from wirespeed.switch.memory import (
    CHANGE,
    GROUP,
    LOG,
    MIRROR,
    MOST_GROUPS,
    MOST_MIRRORS,
    MOST_PORTS,
    PORT,
    TABLE_RECORD,
    TABLES,
    Shared,
    TableRecord,
)
from wirespeed.switch.numbers import Numbers
from wirespeed.switch.ports import Mirror, Ports, SwitchPort
from wirespeed.switch.rule import RESET_COUNTS, Removed, Rule, RuleStats
from wirespeed.switch.stage import generic
from wirespeed.switch.state import State
from wirespeed.switch.store import Store
from wirespeed.switch.text.flow import FlowMod, flow_mod, parse_flow
from wirespeed.switch.worker import check_cache
from wirespeed.tables.learning import MacTable
from wirespeed.tables.meter import Band, Meters

MOST_METERS = 1 << 16
SERVICE_S = 0.25
CACHE_COUNTERS = ("hits", "misses", "refreshed", "inserted", "evicted", "skipped")
STATE_COUNTERS = ("translated", "uncached", "checked", "differences")
RESUBMITS, DEPTH = 4096, 64
_SETTINGS = ("cookie", "idle_timeout", "hard_timeout", "importance", "flags")
MISS = {"drop": 0, "continue": 1, "controller": 2}
_SIZE = (
    Shared.size + TABLE_RECORD * TABLES + 8 * MOST_GROUPS + PORT * (MOST_PORTS + 1) + 65536 + CHANGE * LOG + 4096
    + MIRROR * MOST_MIRRORS + GROUP + (1 << 16)
)  # fmt: skip


class Switch(Element):
    """A virtual switch with OpenFlow tables.  ``ws.run(switch, workers=2)`` runs it with its ports.

    ``cache`` is how many flows each worker's exact match cache is for (0: none), to begin with: one that has to throw flows
    out grows, up to ``cache_most``.  ``insert`` is the probability that a flow that missed it is put there; ``mac_entries``
    and ``mac_age_s`` are of the table that NORMAL learns into.  With ``check`` workers compare what their specialised code
    and their cache say with what the tables do, for each packet: ``worker_counters()`` has ``checked`` and ``differences``.
    """

    KIND = None

    def __init__(
        self,
        name: str = "switch",
        *,
        cache: int = 1 << 17,
        cache_most: int = 1 << 22,
        insert: float = 1.0,
        mac_entries: int = 8192,
        mac_age_s: int = 300,
        memory: int = 1 << 32,
        check: bool = False,
    ) -> None:
        check_cache(cache, insert, cache_most)
        self.name, self.cache, self.cache_most, self.insert = name, cache, cache_most, insert
        self.check = bool(check)
        self.lock = threading.RLock()
        self._arena = Arena(_SIZE, huge=False)
        self.shared = self._arena.alloc(Shared.size)
        self._heap = Heap(memory)
        self.counters = Counters()
        self.mac_table = MacTable(mac_entries, mac_age_s)
        self.meter_memory = Meters(MOST_METERS)
        self._fill()
        self.ports = Ports(self.shared, self._heap)
        self.groups: dict[int, Placed] = {}
        self.meters: dict[int, int] = {}
        self._group_places, self._meter_places = Numbers(MOST_GROUPS), Numbers(MOST_METERS)
        self._kept_places: dict[int, int] = {}  # of groups that are gone, but named by others
        self.store = Store(self.shared, self._heap, self.counters, self)
        self.store.on_removed = self._removed
        self.core = elements.Core(self)
        self.on_flow_removed: Callable[[Removed], None] | None = None
        self._parts: list[elements.CorePart] = []
        self._timed: dict[Rule, None] = {}
        self._final: tuple[int, Any] | None = None  # a version, and counts when all workers had come to it
        self._closed = False
        self._code = 0
        self._ended_counters: Counter[str] = Counter()

    def _fill(self) -> None:
        arena, record = self._arena, Shared.at(self.shared)
        record.version, record.resubmits, record.depth = 1, RESUBMITS, DEPTH
        record.tables = arena.alloc(TABLE_RECORD * TABLES)
        record.groups, record.n_groups = arena.alloc(8 * MOST_GROUPS), MOST_GROUPS
        record.no_group = arena.alloc(GROUP)
        record.ports, record.port_places = arena.alloc(PORT * (MOST_PORTS + 1)), arena.alloc(65536)
        record.log, record.mirrors = arena.alloc(CHANGE * LOG), arena.alloc(MIRROR * MOST_MIRRORS)
        record.meters, record.mac_table = self.meter_memory.address, self.mac_table.address
        record.seed = int.from_bytes(os.urandom(4), "little")

    # Ports.

    def add_port(
        self,
        number: int | str,
        port: Element | None = None,
        *,
        receive: Element | None = None,
        transmit: Element | None = None,
        name: str | None = None,
        tag: int | None = None,
        trunks: Iterable[int] = (),
        vlan_mode: str | None = None,
        config: Iterable[str] = (),
    ) -> SwitchPort:
        """Add a port by its OpenFlow number, or ``"LOCAL"``.  ``port`` is for both directions; or give one for each.

        ``tag`` and ``trunks`` are what NORMAL goes by, as in Open vSwitch: a port with a ``tag`` alone is an access
        port, one with ``trunks`` carries these VLANs, and neither carries all; ``vlan_mode`` says so explicitly
        (access, trunk, native-tagged, native-untagged).  ``config`` may have ``no-flood``, ``no-forward``,
        ``no-receive`` and ``down``.  Not while the switch runs.
        """
        with self.lock:
            self._check_open()
            if self._parts:
                raise GraphError(f"{self.name} runs; its ports are those it was started with: stop the run first")
            if port is not None and (receive is not None or transmit is not None):
                raise GraphError(f"port {number}: give port, or receive and transmit, not both")
            wanted = LOCAL if number == "LOCAL" else number
            if not isinstance(wanted, int) or isinstance(wanted, bool):
                raise GraphError(f"a port's number must be a whole number or 'LOCAL', got {number!r}")
            given: tuple[Any, ...] = (port, receive, transmit)
            for one in given:
                if one is not None and not (isinstance(one, Element) and is_port(one)):
                    raise GraphError(f"port {number}: got {one!r}, wanted a port such as wirespeed.port('tap:lan0')")
            mode = vlan_mode or ("access" if tag is not None and not trunks else "native-tagged" if tag else "trunk")
            receive, transmit = receive or port, transmit or port
            known = name or (receive or transmit or self).name
            made = SwitchPort(
                wanted,
                known,
                self.ports.free_place(),
                receive,
                transmit,
                mode,
                tag or 0,
                frozenset(trunks),
                set(config),
            )
            self.ports.add(made)
            self.store.touch_all()
            return made

    def mod_port(self, number: int, **config: bool) -> None:
        """Change a port's settings: ``mod_port(1, down=True)``, ``no_flood``, ``no_forward``, ``no_receive``."""
        with self.lock:
            port = self.ports.get(number)
            before = set(port.config)
            try:
                for name, on in config.items():
                    (port.config.add if on else port.config.discard)(name.replace("_", "-"))
                self.ports.write(port, self.store.version + 1)
            except GraphError:
                port.config = before
                raise
            self.ports.set_mirrors(self.ports.mirrors, self.store.version + 1)
            self.store.touch_all()

    def remove_port(self, number: int) -> None:
        """Take a port away, and what was learned behind it.  Not while the switch runs."""
        with self.lock:
            if self._parts:
                raise GraphError(f"{self.name} runs; its ports are those it was started with: stop the run first")
            for placed in self.groups.values():
                if any(bucket.watch_port == number for bucket in placed.group.buckets):
                    raise GraphError(
                        f"port {number} is watched by group {placed.group.id}; change or remove that first"
                    )
            for mirror in self.ports.mirrors.values():
                if number in {*mirror.sources, *mirror.destinations, mirror.output_port}:
                    raise GraphError(f"port {number} is part of mirror {mirror.name}; remove that first")
            port = self.ports.remove(number)
            self.mac_table.flush(port.place)
            self.store.touch_all()

    def set_output(self, port: SwitchPort, output: int) -> None:
        """Which output of the stage a port is; for the graph."""
        port.output = output
        self.ports.write(port, self.store.version + 1)
        self.ports.set_mirrors(self.ports.mirrors, self.store.version + 1)
        self.store.touch_all()

    def port_name(self, number: int) -> str:
        """How a port is called in reports."""
        return "LOCAL" if number == LOCAL else str(number)

    def add_mirror(
        self,
        name: str,
        *,
        sources: Iterable[int] = (),
        destinations: Iterable[int] = (),
        select_all: bool = False,
        vlans: Iterable[int] = (),
        output_port: int | None = None,
        output_vlan: int | None = None,
        snap: int = 0,
    ) -> Mirror:
        """Copy what comes in by ``sources`` or goes out by ``destinations`` to a port or into a VLAN."""
        with self.lock:
            mirror = Mirror(
                name, frozenset(sources), frozenset(destinations), select_all, frozenset(vlans), output_port,
                output_vlan, snap,
            )  # fmt: skip
            self.ports.set_mirrors(self.ports.mirrors | {name: mirror}, self.store.version + 1)
            self.store.touch_all()
            return mirror

    def remove_mirror(self, name: str) -> None:
        """Take a mirror away."""
        with self.lock:
            if name not in self.ports.mirrors:
                raise GraphError(f"no mirror {name!r}; there are {', '.join(self.ports.mirrors) or 'none'}")
            left = {key: mirror for key, mirror in self.ports.mirrors.items() if key != name}
            self.ports.set_mirrors(left, self.store.version + 1)
            self.store.touch_all()

    # What actions name; see Store.

    def port(self, number: int) -> int:
        """The place of a port."""
        return self.ports.get(number).place

    def group(self, number: int) -> int:
        """The place of a group."""
        placed = self.groups.get(number)
        if placed is None:
            raise GraphError(f"no group {number}; add it first")
        return placed.place

    def watched_group(self, number: int) -> int:
        """The place of a group that a bucket watches, which may come later: one is kept for it then."""
        if number not in self.groups and number not in self._kept_places:
            place = self._group_places.take()
            if place is None:
                raise GraphError(f"a switch has at most {MOST_GROUPS} groups; remove one first")
            self._kept_places[number] = place
        return self._kept_places[number] if number not in self.groups else self.groups[number].place

    def meter(self, number: int) -> int:
        """The place of a meter."""
        if number not in self.meters:
            raise GraphError(f"no meter {number}; add it first")
        return self.meters[number]

    # Rules.

    @contextmanager
    def bundle(self) -> Iterator[None]:
        """Changes of rules within ``with switch.bundle():`` become visible at once at its end, or none of them does.

        Groups and meters that are added or changed inside are so at once, and are as they were when the bundle fails.
        """
        with self.lock, self.store.bundle():
            yield

    def add_flow(self, text: str | None = None, /, **parts: Any) -> Rule:
        """Add a rule, by text as ``ovs-ofctl add-flow`` takes it, or by its parts (see :func:`flow_mod`)."""
        with self.lock:
            return self._add(self._mod(text, parts, "add"))

    def _add(self, mod: FlowMod) -> Rule:
        now = time.monotonic()
        rule = Rule(
            mod.table, mod.priority, mod.match, mod.actions, mod.cookie, mod.idle_timeout, mod.hard_timeout,
            mod.importance, mod.flags, 0, now, now, now,
        )  # fmt: skip
        if mod.idle_timeout or mod.hard_timeout:
            self._timed[rule] = None
        return self.store.add(rule)

    def _mod(self, text: str | None, parts: dict[str, Any], command: str) -> FlowMod:
        self._check_open()
        return parse_flow(text, command, self._port_number) if text is not None else flow_mod(command, **parts)

    def _port_number(self, name: str) -> int | None:
        for port in self.ports.by_number.values():
            if port.name == name:
                return port.number
        return None

    def add_flows(self, flows: Iterable[str]) -> int:
        """Add rules, all at once or none; how many."""
        with self.bundle():
            return sum(self.add_flow(flow) is not None for flow in flows)

    def mod_flows(self, text: str | None = None, /, *, strict: bool = False, **parts: Any) -> int:
        """Change the actions of the rules that a match covers, or with ``strict`` is; how many."""
        with self.bundle():
            mod = self._mod(text, parts, "modify")
            found = self._find(mod, strict)
            for rule in found:
                self.store.modify(rule, mod.actions, bool(mod.flags & RESET_COUNTS))
            return len(found)

    def del_flows(self, text: str | None = None, /, *, strict: bool = False, **parts: Any) -> int:
        """Remove the rules that a match covers, or with ``strict`` is; with neither text nor parts, all.  How many."""
        with self.bundle():
            mod = self._mod(text if text is not None or parts else "", parts, "delete")
            found = self._find(mod, strict)
            for rule in found:
                self.store.remove(rule)
            return len(found)

    def _find(self, mod: FlowMod, strict: bool) -> list[Rule]:
        def chosen(rule: Rule) -> bool:
            return (mod.out_port is None or outputs_to(rule.actions, "port", mod.out_port)) and (
                mod.out_group is None or outputs_to(rule.actions, "group", mod.out_group)
            )

        return self.store.find(
            mod.match,
            table=mod.table,
            priority=mod.priority if strict else None,
            cookie=mod.cookie,
            cookie_mask=mod.cookie_mask,
            chosen=chosen if mod.out_port is not None or mod.out_group is not None else None,
        )

    def replace_flows(self, flows: Iterable[str]) -> tuple[int, int, int]:
        """Have exactly these rules, at once; how many were added, changed and removed.  What stays keeps its counters."""
        with self.bundle():
            mods = [self._mod(flow, {}, "add") for flow in flows]
            wanted = {(mod.table, mod.priority, mod.match.mask, mod.match.value): mod for mod in mods}
            added = changed = removed = 0
            for rule in list(self.store.rules()):
                mod = wanted.pop((rule.table, *rule.key), None)
                if mod is None:
                    self.store.remove(rule)
                    removed += 1
                elif any(getattr(mod, name) != getattr(rule, name) for name in _SETTINGS):
                    self._add(mod)
                    changed += 1
                elif mod.actions != rule.actions:
                    self.store.modify(rule, mod.actions)
                    changed += 1
            for mod in wanted.values():
                self._add(mod)
                added += 1
            return added, changed, removed

    def flows(self, text: str | None = None, /, **parts: Any) -> list[RuleStats]:
        """The rules that a match covers (all, without one), with what they have counted up to now."""
        with self.lock:
            mod = self._mod(text if text is not None or parts else "", parts, "delete")
            rules = self._find(mod, False)
            totals, now = self.counters.totals(), time.monotonic()
            return [self._stats(rule, totals, now) for rule in rules]

    def _stats(self, rule: Rule, totals: Any, now: float) -> RuleStats:
        packets = int(totals[2 * rule.number]) - rule.base_packets
        size = int(totals[2 * rule.number + 1]) - rule.base_bytes
        if packets != rule.seen_packets:
            rule.seen_packets, rule.used = packets, now
        return RuleStats(rule, packets, size, now - rule.created, now - max(rule.used, rule.created))

    def table_miss(self, table: int, what: str) -> None:
        """What is done with packets that no rule of a table matches: drop, continue (in the next one) or controller."""
        if what not in MISS:
            raise GraphError(f"a table without a match can {', '.join(MISS)}, got {what!r}")
        if not 0 <= table < TABLES - 1:
            raise GraphError(f"a table's number must be 0 to {TABLES - 2}, got {table}")
        with self.lock:
            TableRecord.at(Shared.at(self.shared).tables + TABLE_RECORD * table).miss = MISS[what]
            self.store.touch_all()

    # Groups and meters.

    def add_group(self, group: Group) -> None:
        """Add a group; its buckets' actions may name groups and meters that are there already."""
        with self.lock:
            self._check_open()
            if group.id in self.groups:
                raise GraphError(f"group {group.id} is there already; modify it, or remove it first")
            self._check_cycle(group)
            kept = self._kept_places.get(group.id)
            place = self._group_places.take() if kept is None else kept
            if place is None:
                raise GraphError(f"a switch has at most {MOST_GROUPS} groups; remove one first")
            with self.store.bundle():
                if kept is None:
                    self.store.on_undo(self._group_places.give, place)
                self._place_group(group, place, time.monotonic())
                self.store.afterwards(self._kept_places.pop, group.id, None)

    def mod_group(self, group: Group) -> None:
        """Replace the buckets of a group, whose counters begin anew."""
        with self.lock:
            self._check_open()
            old = self.groups.get(group.id)
            if old is None:
                raise GraphError(f"no group {group.id}; add it first")
            self._check_cycle(group)
            with self.store.bundle():
                self._place_group(group, old.place, old.created)
                self.store.afterwards(self._forget_group, old)

    def _check_cycle(self, group: Group) -> None:
        seen, waiting = set(), [group]
        while waiting:
            one = waiting.pop()
            for number in [n for b in one.buckets for a in b.actions for n in getattr(a, "groups", ())]:
                if number == group.id:
                    raise GraphError(f"group {group.id} would lead to itself by way of group {one.id}")
                if number not in seen and number in self.groups:
                    seen.add(number)
                    waiting.append(self.groups[number].group)

    def _place_group(self, group: Group, place: int, created: float) -> None:
        numbers, bases = group_memory.numbers_for(group, self.counters)
        placed = Placed(group, place, numbers, bases, created)
        try:
            group_memory.write(placed, self._heap, self)
            self.store.want(group.reads, group.writes)
        except BaseException:
            if placed.address:
                self._heap.free(placed.address, placed.size, self.store.version)
            for number in numbers:
                self.counters.give(number)
            raise
        self.store.on_undo(self._forget_group, placed)
        self.store.on_undo(self._show_group, group.id, place, self.groups.get(group.id))
        self._show_group(group.id, place, placed)
        self.store.touch_all()

    def _show_group(self, number: int, place: int, placed: Placed | None) -> None:
        """Have workers find a group as it is now, or none."""
        if placed is None:
            self.groups.pop(number, None)
        else:
            self.groups[number] = placed
        at = int(Shared.at(self.shared).groups) + 8 * place
        publish.show.function(at, 0 if placed is None else placed.address)

    def _forget_group(self, placed: Placed) -> None:
        """Give back what readers had of a group which those of the next version do not find any more."""
        for number in [n for n in self._kept_places if n not in self.groups and not self._is_named(n)]:
            self._group_places.give(self._kept_places.pop(number))
        self._heap.free(placed.address, placed.size, self.store.version + 1)
        self.store.unwant(placed.group.reads)
        for number in placed.numbers:
            self.counters.give(number)

    def del_group(self, number: int | None = None) -> int:
        """Remove a group (all, without a number) and the rules that lead to it; how many groups."""
        with self.bundle():
            doomed = [n for n in self.groups if number is None or n == number]
            for rule in list(self.store.rules()):
                if any(outputs_to(rule.actions, "group", n) for n in doomed):
                    self.store.remove(rule, "group_delete")
            for n in doomed:
                placed = self.groups.pop(n)
                self.store.on_undo(self.groups.__setitem__, n, placed)
                self.store.afterwards(self._hide_group, placed)
            self.store.forget_programs()
            return len(doomed)

    def _hide_group(self, placed: Placed) -> None:
        """Have workers no longer find a group, now that no rule leads to it; buckets of other groups may."""
        publish.show.function(int(Shared.at(self.shared).groups) + 8 * placed.place, 0)
        self.store.touch_all()
        self._forget_group(placed)
        number = placed.group.id
        if self._is_named(number):
            self._kept_places[number] = placed.place  # these lead to no other group that is put there
        else:
            self._group_places.give(placed.place)

    def _is_named(self, number: int) -> bool:
        return any(one.group.names(number) for one in self.groups.values())

    def group_stats(self, number: int) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        """(packets, bytes) of a group, and of each of its buckets."""
        with self.lock:
            self.group(number)
            placed, totals = self.groups[number], self.counters.totals()
            found = [
                (int(totals[2 * n]) - base[0], int(totals[2 * n + 1]) - base[1])
                for n, base in zip(placed.numbers, placed.bases, strict=True)
            ]
            return found[0], found[1:]

    def add_meter(self, number: int, bands: Iterable[Band], *, packets: bool = False) -> None:
        """Add a meter of kilobits or ``packets`` a second."""
        with self.lock:
            self._check_open()
            if number in self.meters:
                raise GraphError(f"meter {number} is there already; modify it, or remove it first")
            place = self._meter_places.take()
            if place is None:
                raise GraphError(f"a switch has at most {MOST_METERS} meters; remove one first")
            try:
                self.meter_memory.add(place, list(bands), packets=packets)
            except BaseException:
                self._meter_places.give(place)
                raise
            with self.store.bundle():
                self.store.on_undo(self._drop_meter, number, place)
                self.meters[number] = place

    def _drop_meter(self, number: int, place: int) -> None:
        if self.meters.get(number) == place:
            del self.meters[number]
            self.store.forget_programs()
        self.meter_memory.delete(place)
        self._meter_places.give(place)

    def mod_meter(self, number: int, bands: Iterable[Band], *, packets: bool = False) -> None:
        """Replace a meter's bands; its counters begin anew."""
        with self.lock:
            self.meter_memory.modify(self.meter(number), list(bands), packets=packets)

    def del_meter(self, number: int | None = None) -> int:
        """Remove a meter (all, without a number) and the rules that use it; how many meters."""
        with self.bundle():
            doomed = [n for n in self.meters if number is None or n == number]
            for rule in list(self.store.rules()):
                if any(outputs_to(rule.actions, "meter", n) for n in doomed):
                    self.store.remove(rule, "meter_delete")
            for n in doomed:
                place = self.meters.pop(n)
                self.store.on_undo(self.meters.__setitem__, n, place)
                self.store.afterwards(self._drop_meter, n, place)
            self.store.forget_programs()
            return len(doomed)

    # The MAC table.

    def fdb(self) -> list[Any]:
        """What NORMAL has learned: rows of port, VLAN, MAC and age."""
        return self.mac_table.rows(int(time.monotonic()))

    def flush_fdb(self) -> int:
        """Forget what NORMAL has learned; how many entries."""
        return self.mac_table.flush()

    # Runs.

    def chains(self) -> list[Chain]:
        """The graph of the switch and its ports, for a run."""
        with self.lock:
            self._check_open()
            return elements.chains_of(self)

    @property
    def code(self) -> int:
        """The address of the code that workers begin with."""
        return self._code or generic.address

    def specialise(self) -> None:
        """Compile the stage for the shape that the rules have now, and have all workers use it.

        Takes as long as that takes, a moment when this machine has seen the shape; traffic and changes of rules go on.
        """
        with self.lock:
            self._check_open()
            made = specialise.stage_for(self.store.live)
        code = made.address
        with self.lock:
            self._code = code
            for state in self.counters.states:
                publish.show.function(state + State.offset("code"), code)

    def enter(self, part: "elements.CorePart") -> None:
        """A run begins."""
        with self.lock:
            self._check_open()
            if self._parts:
                raise GraphError(f"{self.name} runs already; a switch is in one run at a time")
            self.store.reclaim()  # with nobody looking, and the tables in their best order for those who come
            self._parts.append(part)

    def leave(self, part: "elements.CorePart") -> None:
        """A run has ended."""
        with self.lock:
            self._parts.remove(part)

    def add_state(self, state: int) -> None:
        """A worker will run."""
        with self.lock:
            if self.check:
                State.at(state).check = 1
            self.counters.states.append(state)

    def end_state(self, state: int) -> None:
        """A worker has ended."""
        with self.lock:
            self.counters.end(state)
            self._ended_counters.update(self._counters_of(State.at(state)))

    def worker_counters(self) -> dict[str, int]:
        """What the caches of all workers did, since they began."""
        with self.lock:
            found = self._ended_counters.copy()
            for state in self.counters.states:
                found.update(self._counters_of(State.at(state)))
            return dict(found)

    @staticmethod
    def _counters_of(state: Any) -> dict[str, int]:
        found = {f"cache_{name}": int(getattr(state.cache, name)) for name in CACHE_COUNTERS}
        return found | {name: int(getattr(state, name)) for name in STATE_COUNTERS}

    def look_after(self) -> float:
        """End what has timed out, age what was learned; seconds until the next time."""
        with self.lock:
            if not self._closed:
                self.expire_flows()
                self.mac_table.age(int(time.monotonic()))
                self.store.reclaim()
                self._final = None  # its memory is not kept for the next rule that ends, whenever that may be
        return SERVICE_S

    def expire_flows(self) -> int:
        """Remove the rules whose time is over; how many."""
        with self.lock:
            if not self._timed:
                return 0
            totals, now = self.counters.totals(), time.monotonic()
            ended = []
            for rule in [rule for rule in self._timed if not self.store.holds(rule)]:
                del self._timed[rule]
            for rule in self._timed:
                stats = self._stats(rule, totals, now)
                if rule.hard_timeout and stats.duration >= rule.hard_timeout:
                    ended.append((rule, "hard_timeout"))
                elif rule.idle_timeout and stats.idle >= rule.idle_timeout:
                    ended.append((rule, "idle_timeout"))
            # Behind so many versions nothing in a cache is compared but all looked up, so many rules may as well be one change.
            with self.store.bundle() if len(ended) > MOST_BEHIND else nullcontext():
                for rule, reason in ended:
                    self.store.remove(rule, reason)
            return len(ended)

    def _removed(self, rule: Rule, reason: str) -> None:
        self._timed.pop(rule, None)
        if self.on_flow_removed is not None:
            self.on_flow_removed(Removed(self._stats(rule, self._final_totals(), time.monotonic()), reason))

    def _final_totals(self) -> Any:
        """What all rules counted that ended with the version in force, or before: read once for all that it ended."""
        version = self.store.version
        if self._final is None or self._final[0] != version:
            # What bursts that began before it are still to count is told too.
            settled = publish.wait_for(self.counters.states, version)
            totals = self.counters.totals()
            self._final = (version, totals) if settled else None
            return totals
        return self._final[1]

    # The end.

    def _check_open(self) -> None:
        if self._closed:
            raise GraphError(f"{self.name} is closed; make another one")

    def close(self) -> None:
        """Give all memory back.  Not while it runs; closing twice is harmless."""
        with self.lock:
            if self._parts:
                raise GraphError(f"{self.name} runs; stop the run first")
            if not self._closed:
                self._closed = True
                self.store.close()
                self._heap.close()
                self.mac_table.close()
                self.meter_memory.close()
                self._arena.close()

    def __enter__(self) -> "Switch":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def outputs_to(actions: Iterable[Any], kind: str, number: int) -> bool:
    """Whether actions name a port, group or meter by its number, those inside of others included."""
    for action in actions:
        if number in getattr(action, f"{kind}s", ()):
            return True
    return False
