"""What the rules make of a flow, in plain Python: the obvious interpreter, which tells what it does.

Theory of operation
-------------------
Rules are looked through one after the other, actions are done as the records that they are, on a :class:`Subject`; no
compiled code has a part in it.  So this is both the model that the compiled translation is tested against, and what
``wirespeed trace`` shows: each step is noted as it is done.

What calls something else (a look-up, a copy, a bucket) yields it, and :func:`_drive` goes on there: as deep as rules
may lead, not as deep as Python may.

Thread rules: under the switch's lock.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from wirespeed.switch import fields
from wirespeed.switch.actions import headers, sending, steps, writing
from wirespeed.switch.actions.base import Action
from wirespeed.switch.actions.instructions import order_action_set
from wirespeed.switch.fields import FIELDS, FLOW_SIZE, FRAG_ANY, W_DERIVED
from wirespeed.switch.groups import Bucket, fill_slots
from wirespeed.switch.memory import MOST_TABLE, NO_PLACE, PORT, TABLE_RECORD, PortRecord, Shared, TableRecord
from wirespeed.switch.ops import ACTION, ACTION_SET_REASON, INVALID_TTL, NO_MATCH
from wirespeed.switch.rule import Rule
from wirespeed.switch.trace.packet import word
from wirespeed.switch.trace.replay import Event
from wirespeed.switch.trace.show import changes
from wirespeed.switch.trace.subject import Subject
from wirespeed.switch.translate.translation import (
    BAD_STACK,
    NO_RULE,
    SAVES,
    STACK_TOO_DEEP,
    STACK_WORDS,
    TOO_DEEP,
    TOO_MANY,
    TOO_MANY_LABELS,
)

Going = Generator[Any, None, None]  # of what else is to be done first
WHOLE = 0xFFFF  # bytes for a controller, where nobody says how many
CONTINUE, TELL = 1, 2  # what a table may do without a match
NESTED = 16  # groups that watch groups
OUT_OF = {"down": "is down", "no-forward": "does not forward", "link-down": "has no link"}
assert FLOW_SIZE == 320


class FaultError(Exception):
    """The packet is dropped, for a reason with a number."""

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass(frozen=True)
class Step:
    """One thing that was done: ``kind`` is table, action, effect, group, note or stop; ``depth`` how far it is set in."""

    depth: int
    kind: str
    text: str


@dataclass
class Outcome:
    """What became of a flow: what is seen, which counters count it, why it is dropped (a number of drop reasons)."""

    events: list[Event] = field(default_factory=list)
    counters: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    fault: int = 0


def reference(switch: Any, flow: int, frame: bytes | None = None) -> Outcome:
    """What a switch's rules make of a flow; ``frame`` has the bytes of its packet, where there is one."""
    return Reference(switch, flow, frame).run()


def _drive(first: Going) -> None:
    waiting, raised = [first], None
    while waiting:
        try:
            waiting.append(next(waiting[-1]) if raised is None else waiting[-1].throw(raised))
            raised = None
        except StopIteration:
            waiting.pop()
            raised = None
        except FaultError as fault:
            waiting.pop()
            raised = fault
    if raised is not None:
        raise raised


class Reference:
    """One translation.  Each method that is an iterator does what it yields before it goes on."""

    def __init__(self, switch: Any, flow: int, frame: bytes | None = None) -> None:
        self.switch = switch
        self.outcome = Outcome()
        self.it = Subject(flow, frame)
        self.table, self.depth, self.lookups, self.copies = -1, 0, 0, 0
        self.set: list[Action] = []
        self.in_set = self.ended = self._seen = False
        self._inset = self._kept = 0
        self._events = self.outcome.events
        record = Shared.at(switch.shared)
        self.most_lookups, self.most_depth = int(record.resubmits), int(record.depth)
        self._tables, self._ports = int(record.tables), int(record.ports)

    def run(self) -> Outcome:
        """Do it all."""
        try:
            _drive(self.look_up(0, self.it.in_port, honest=True))
            if self.set:
                self._do_set()
        except FaultError as fault:
            self.outcome.fault = fault.number
            del self.outcome.events[self._kept :]
        return self.outcome

    def _do_set(self) -> None:
        self.in_set, self.ended = True, False
        self.say("table", "the action set")
        self._inset += 1
        _drive(self.do(order_action_set(self.set), (1 << 64) - 1))

    def say(self, kind: str, text: str) -> None:
        """Note a step."""
        self.outcome.steps.append(Step(self._inset, kind, text))

    def _emit(self, what: str, *about: Any) -> None:
        self.it.settle()
        self._seen = True
        self._events.append(Event(what, about, self.it.packet.seen()))

    # Look-ups.

    def _best(self, table: int, number: int) -> Rule | None:
        flow = self.it.flow & ~FIELDS["in_port"].mask | number << FIELDS["in_port"].at
        if FIELDS["ip_frag"].get(flow) & FRAG_ANY:
            flow &= ~(FIELDS["tcp_src"].mask | FIELDS["tcp_dst"].mask)
        hits = [rule for rule in self.switch.store.tables[table].values() if rule.match.hits(flow)]
        return max(hits, key=lambda rule: rule.priority, default=None)

    def look_up(self, table: int, number: int, *, honest: bool) -> Going:
        """Look up in a table, as if the packet had come in by port ``number``, and do what is found.

        ``honest`` says that a table without a match does what it is configured to do; a resubmit's does nothing.
        """
        self.lookups += 1
        if self.lookups > self.most_lookups:
            self.say("stop", f"more than {self.most_lookups} look-ups for one packet")
            raise FaultError(TOO_MANY)
        while True:
            rule = self._best(table, number)
            if rule is not None:
                break
            self.outcome.counters.append(table)
            miss = int(TableRecord.at(self._tables + TABLE_RECORD * table).miss)
            self.say("table", f"{table:2}. no match" + (", goes on in the next table" if honest and miss == 1 else ""))
            if not honest or miss != CONTINUE or table >= MOST_TABLE:
                self._miss(table, miss if honest else -1)
                return
            table += 1
        self.outcome.counters.append(rule.number)
        self.outcome.rules.append(rule)
        self.say(
            "table", f"{table:2}. {str(rule.match) or 'everything'}, priority {rule.priority}, cookie {rule.cookie:#x}"
        )
        deeper = int(table <= self.table)
        if self.depth + deeper > self.most_depth:
            self.say("stop", f"look-ups more than {self.most_depth} deep, one inside another")
            raise FaultError(TOO_DEEP)
        before = self.depth, self.table
        self.depth, self.table = self.depth + deeper, table
        self._inset += 1
        yield self.do(rule.actions, rule.cookie)
        self._inset -= 1
        self.depth = before[0]
        self.table = before[1] if before[1] >= 0 else table  # the first rule's table is the action set's too

    def _miss(self, table: int, miss: int) -> None:
        if miss == TELL:
            self._tell(WHOLE, NO_MATCH, 0, (1 << 64) - 1, table)
        elif miss >= 0 and not self._seen:
            self.outcome.fault = NO_RULE

    # Actions.

    def do(self, actions: tuple[Action, ...], cookie: int) -> Going:
        """Do actions one after the other."""
        if not actions:
            self.say("action", "drop")
        for one in actions:
            if self.ended:
                return
            self.say("action", str(one))
            before = self.it.flow
            if self._change(one):
                for text in changes(before, self.it.flow):
                    self.say("effect", text)
                continue
            going = self._go_on(one, cookie)
            if going is False:
                return
            if going is not None:
                yield going

    def _change(self, one: Action) -> bool:
        """An action that changes the packet or the flow; False for any other."""
        it = self.it
        match one:
            case writing.SetField():
                self._set_field(one)
            case writing.SetTransport():
                for single in one.each:
                    if it.has(single.field.needs):
                        self._set_field(single)
            case writing.SetTag(part="vid"):
                it.set_tag_part(one.value, 0x0FFF)
            case writing.SetTag():
                it.set_tag_part(one.value << 13, 0xE000)
            case writing.Move():
                if it.has(one.source.field.needs) and it.has(one.target.field.needs):
                    it.write_part(one.target, it.read_part(one.source))
            case headers.PushVlan():
                it.push_tag(one.kind)
            case headers.PopVlan():
                it.pop_tag()
            case headers.PushMpls():
                if not it.push_label(one.kind):
                    self.say("stop", "there are three labels already")
                    raise FaultError(TOO_MANY_LABELS)
            case headers.PopMpls():
                if it.has_unknown_labels():
                    self.say("stop", "there are more labels than the three that a flow knows")
                    raise FaultError(TOO_MANY_LABELS)
                it.pop_label(one.kind)
            case headers.SetMplsTtl():
                if it.has("mpls"):
                    it.write(one.value << FIELDS["mpls_ttl"].at, FIELDS["mpls_ttl"].mask)
            case steps.WriteMetadata():
                at = FIELDS["metadata"].at
                it.write(one.value << at, one.mask << at)
            case writing.Push():
                if len(it.stack) >= STACK_WORDS:
                    self.say("stop", f"more than {STACK_WORDS} fields pushed")
                    raise FaultError(STACK_TOO_DEEP)
                it.stack.append(it.read_part(one.source))
            case writing.Pop():
                self._pop(one)
            case _:
                return False
        return True

    def _set_field(self, one: writing.SetField) -> None:
        written = one.field
        if not self.it.has(one.field.needs):
            self.say("note", f"{written.name} is not there, so nothing changes")
            return
        mask = written.ones if written.form == "port" else one.mask >> written.value_at
        self.it.write(one.value >> written.value_at << written.at, mask << written.at)

    def _pop(self, one: writing.Pop) -> None:
        if not self.it.stack:
            self.say("stop", "nothing was pushed that could be popped")
            raise FaultError(BAD_STACK)
        value = self.it.stack.pop()
        if self.it.has(one.target.field.needs):
            self.it.write_part(one.target, value)

    def _go_on(self, one: Action, cookie: int) -> Going | bool | None:
        """Any other action: what is to be done next; False when nothing behind it is."""
        it = self.it
        match one:
            case sending.Output(port=fields.TABLE):
                return self.look_up(0, it.in_port, honest=False)
            case sending.Output():
                self._output(one.port, one.max_len, ACTION_SET_REASON if self.in_set else ACTION, cookie)
            case sending.OutputField():
                self._output(it.read_part(one.source), one.max_len, ACTION, cookie)
            case sending.Controller():
                self._tell(one.max_len, one.reason, int.from_bytes(one.userdata[:4], "little"), cookie)
            case steps.Goto():
                return self.look_up(one.table, it.in_port, honest=True)
            case steps.Resubmit():
                number = it.in_port if one.port == fields.IN_PORT else one.port
                return self.look_up(self.table if one.table == steps.SAME_TABLE else one.table, number, honest=False)
            case sending.ToGroup():
                return self._group(one.number, cookie)
            case sending.Meter():
                self._seen = True
                self._events.append(Event("meter", (self.switch.meters[one.number],)))
                self.say("note", "what the meter says is known when a packet is there")
            case steps.WriteActions():
                self.set += one.actions
            case steps.ClearActions():
                self.set.clear()
            case steps.Clone():
                return self._copy(one.actions, cookie)
            case headers.DecTtl() | headers.DecMplsTtl():
                return self._step_ttl(one, cookie)
            case steps.Exit():
                self.ended = True
            case _:
                raise NotImplementedError(f"no reference for {one}")
        return None

    def _step_ttl(self, one: headers.DecTtl | headers.DecMplsTtl, cookie: int) -> bool | None:
        before = self.it.flow
        labels = isinstance(one, headers.DecMplsTtl)
        if not self.it.has("mpls" if labels else "ip any"):
            self.say("note", "there is no time to live, so nothing changes")
        elif not (self.it.step_label_ttl() if labels else self.it.step_ttl()):
            self.say("stop", "its time to live is over; what stands behind it is not done")
            self._tell(WHOLE, INVALID_TTL, 0, cookie)
            return False
        for text in changes(before, self.it.flow):
            self.say("effect", text)
        return None

    def _copy(self, actions: tuple[Action, ...], cookie: int, bucket: bool = False) -> Going:
        """Do actions with a copy of the packet, and come back to it as it was; too many labels end no more than a bucket."""
        if self.copies >= SAVES:
            self.say("stop", f"more than {SAVES} copies, one of another")
            raise FaultError(TOO_DEEP)
        saved, outside, depth, table = self.it.save(), self._events, self.depth, self.table
        self.copies += 1
        inside: list[Event] = []
        self._events = inside
        inset, copies = self._inset, self.copies
        self._inset += 1
        try:
            yield self.do(actions, cookie)
        except FaultError as fault:
            if not bucket or fault.number != TOO_MANY_LABELS:
                raise
            self.copies = copies
        self._inset = inset
        self.copies -= 1
        self._events, self.depth, self.table = outside, depth, table
        outside.append(Event("copy", tuple(inside)))
        self.it.restore(saved)

    # Groups.

    def _group(self, number: int, cookie: int) -> Going:
        placed = self.switch.groups[number]
        group = placed.group
        self.outcome.counters.append(placed.numbers[0])
        if group.kind == "select" and not self.copies:
            self._kept = len(self._events)
        for i, why in self._chosen(group):
            if self.ended:
                return
            self.say("group", f"bucket {i}, {why}")
            self.outcome.counters.append(placed.numbers[1 + i])
            yield self._copy(order_action_set(group.buckets[i].actions), cookie, bucket=True)

    def _chosen(self, group: Any) -> list[tuple[int, str]]:
        buckets = group.buckets
        if not buckets:
            self.say("note", f"group {group.id} has no buckets")
            return []
        if group.kind in ("all", "indirect"):
            return [(i, "all are taken" if group.kind == "all" else "the only one") for i in range(len(buckets))]
        if group.kind == "ff":
            for i, bucket in enumerate(buckets):
                if self._live(bucket, NESTED):
                    return [(i, f"the first that is live: it watches {_watched(bucket)}")]
                self.say("note", f"bucket {i} is not live: it watches {_watched(bucket)}")
            return []
        slots = fill_slots([bucket.weight for bucket in buckets], group.slots)
        mask = len(slots) - 1
        slot = word(self.it.flow, W_DERIVED) & mask
        for step in range(len(slots)):
            i = slots[slot + step & mask]
            if i < len(buckets) and self._live(buckets[i], NESTED):
                where = f"slot {slot} of {len(slots)}" + (f", {step} further on" if step else "")
                return [(i, f"which the packet's hash chooses: {where}")]
        self.say("note", "no bucket is live")
        return []

    def _live(self, bucket: Bucket, nested: int) -> bool:
        if bucket.watch_port is None and bucket.watch_group is None:
            return True
        port = self.switch.ports.by_number.get(bucket.watch_port)
        if port is not None and not port.config & {"down", "link-down"}:
            return True
        watched = self.switch.groups.get(bucket.watch_group)
        return watched is not None and nested > 0 and any(self._live(b, nested - 1) for b in watched.group.buckets)

    # Outputs.

    def _tell(self, most: int, reason: int, extra: int, cookie: int, table: int | None = None) -> None:
        metadata = FIELDS["metadata"].get(self.it.flow)
        self._emit("controller", most, reason, (self.table if table is None else table) & 0xFF, extra, cookie, metadata)
        self.say("effect", f"the controller is told: {sending.REASONS[reason]}")

    def _output(self, number: int, most: int, reason: int, cookie: int) -> None:
        it = self.it
        by_place = sorted(self.switch.ports.by_number.values(), key=lambda port: port.place)
        if number == fields.IN_PORT:
            self._send(it.in_port, most)
        elif number == fields.NORMAL:
            source = self.switch.ports.by_number.get(it.in_port)
            self._emit("normal", NO_PLACE if source is None else source.place)
            self.say("effect", "as a learning switch does: by the MAC table and VLANs as they are then")
        elif number in (fields.FLOOD, fields.ALL):
            for port in by_place:
                if port.number != it.in_port and (number == fields.ALL or "no-flood" not in port.config):
                    self._send(port.number, 0)
        elif number == fields.CONTROLLER:
            self._tell(WHOLE, reason, 0, cookie)
        elif number != it.in_port:
            self._send(number, most)
        else:
            self.say("effect", "not sent back by the port that it came in by (that is output:IN_PORT)")

    def _send(self, number: int, most: int) -> None:
        port = self.switch.ports.by_number.get(number)
        if port is None:
            self.say("effect", f"there is no port {number}, so nothing is sent")
            return
        off = [words for name, words in OUT_OF.items() if name in port.config]
        record = PortRecord.at(self._ports + PORT * port.place)
        if off and ("no-forward" in port.config or not int(record.mirrors_out)):
            self.say("effect", f"port {number} {off[0]}, so nothing is sent")
            return
        self._emit("out", port.place, most)
        if off:
            self.say("effect", f"port {number} {off[0]}, so only its mirrors see what would be sent")
        else:
            self.say("effect", f"out port {self.switch.port_name(number)} ({port.name})")


def _watched(bucket: Bucket) -> str:
    watched = [f"port {bucket.watch_port}"] * (bucket.watch_port is not None)
    return " and ".join(watched + [f"group {bucket.watch_group}"] * (bucket.watch_group is not None)) or "nothing"
