"""What can be asked of a running switch, and what it answers.

A request is ``{"command": "flow add", ...}``; an answer has what was asked for, or ``{"error": "a sentence"}``.  Every
text is read by the same parsers as in Python; names of ports are known.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch.control.statistics import ports_now, statistics
from wirespeed.switch.fields import LOCAL
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.flow import COMMANDS, flow_text, stats_text
from wirespeed.switch.text.group import group_text, parse_groups
from wirespeed.switch.text.meter import Meter, meter_text, parse_meter
from wirespeed.tables.meter import Band

MOST_FRAME = 1 << 16
MOST_VLAN = 4095


class Desk:
    """Does what is asked of a switch.  ``report`` gives that of its run, where it runs; its Specialiser, if it has one."""

    def __init__(self, switch: Any, report: Callable[[], Any] | None = None, specialiser: Any = None) -> None:
        self.switch, self.report, self.specialiser = switch, report, specialiser
        self._commands: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "flow add": lambda r: self._flows(r, "add"),
            "flow mod": lambda r: self._flows(r, "modify"),
            "flow del": lambda r: self._flows(r, "delete"),
            "flow replace": self._replace,
            "flow dump": self._dump,
            "group add": lambda r: self._groups(r, switch.add_group),
            "group mod": lambda r: self._groups(r, switch.mod_group),
            "group del": self._group_del,
            "group dump": self._group_dump,
            "meter add": lambda r: self._meter(r, switch.add_meter),
            "meter mod": lambda r: self._meter(r, switch.mod_meter),
            "meter del": self._meter_del,
            "meter dump": self._meter_dump,
            "fdb show": self._fdb_show,
            "fdb flush": self._fdb_flush,
            "fdb add": self._fdb_add,
            "fdb del": self._fdb_del,
            "port show": lambda r: {"ports": ports_now(switch, self._now())},
            "port mod": self._port_mod,
            "stats": lambda r: statistics(switch, self._now(), self.specialiser),
            "trace": self._trace,
        }
        self._meters: dict[int, Meter] = {}

    def _now(self) -> Any:
        return self.report() if self.report is not None else None

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for; raises what is wrong with it."""
        name = request.get("command")
        command = self._commands.get(name) if isinstance(name, str) else None
        if command is None:
            raise GraphError(f"no command {name!r}; the commands are {', '.join(self._commands)}")
        return command(request)

    def _port_number(self, name: str) -> int | None:
        return next((p.number for p in self.switch.ports.by_number.values() if p.name == name), None)

    # Flows.

    def _flows(self, request: dict[str, Any], usual: str) -> dict[str, Any]:
        strict = bool(request.get("strict"))
        where, n = _text(request, "where", "flows"), 0
        with self.switch.bundle():
            for number, line in _lines(_text(request, "text")):
                first, _, rest = line.partition(" ")
                command, flow = (first, rest) if first in COMMANDS else (usual, line)
                try:
                    n += self._flow(command, flow, strict)
                except GraphError as error:
                    raise GraphError(f"{where}, line {number}: {error}" if number else str(error)) from None
        return {"n": n}

    def _flow(self, command: str, flow: str, strict: bool) -> int:
        strict = strict or command.endswith("_strict")
        if command.startswith("modify"):
            return int(self.switch.mod_flows(flow, strict=strict))
        if command.startswith("delete"):
            return int(self.switch.del_flows(flow, strict=strict))
        self.switch.add_flow(flow)
        return 1

    def _replace(self, request: dict[str, Any]) -> dict[str, Any]:
        flows = [line for _, line in _lines(_text(request, "text"))]
        added, changed, removed = self.switch.replace_flows(flows)
        return {"added": added, "changed": changed, "removed": removed}

    def _dump(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self.switch.flows(_text(request, "text", ""))
        found.sort(key=lambda stats: (stats.rule.table, -stats.rule.priority))
        show: Callable[[Any], str] = stats_text
        if request.get("stats") is False:

            def show(stats: Any) -> str:
                return flow_text(stats.rule)

        return {"flows": [show(stats) for stats in found]}

    # Groups and meters.

    def _groups(self, request: dict[str, Any], change: Callable[[Any], None]) -> dict[str, Any]:
        n = 0
        with self.switch.bundle():
            for group in parse_groups(_text(request, "text"), _text(request, "where", "groups"), self._port_number):
                change(group)
                n += 1
        return {"n": n}

    def _group_del(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"n": self.switch.del_group(_number_in(request, "group_id"))}

    def _group_dump(self, request: dict[str, Any]) -> dict[str, Any]:
        found = []
        with self.switch.lock:
            for number in sorted(self.switch.groups):
                whole, buckets = self.switch.group_stats(number)
                found.append(
                    {
                        "text": group_text(self.switch.groups[number].group),
                        "packets": whole[0],
                        "bytes": whole[1],
                        "buckets": [{"packets": packets, "bytes": size} for packets, size in buckets],
                        "duration": time.monotonic() - self.switch.groups[number].created,
                    }
                )
        return {"groups": found}

    def _meter(self, request: dict[str, Any], change: Callable[..., None]) -> dict[str, Any]:
        n = 0
        with self.switch.lock:
            for number, line in _lines(_text(request, "text")):
                try:
                    meter = parse_meter(line)
                except GraphError as error:
                    raise GraphError(f"{_text(request, 'where', 'meters')}, line {number}: {error}") from None
                change(meter.number, meter.bands, packets=meter.packets)
                self._meters[meter.number] = meter
                n += 1
        return {"n": n}

    def _meter_del(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"n": self.switch.del_meter(_number_in(request, "meter"))}

    def _meter_dump(self, request: dict[str, Any]) -> dict[str, Any]:
        found = []
        with self.switch.lock:
            for number, place in sorted(self.switch.meters.items()):
                counted = self.switch.meter_memory.statistics(place)
                meter = self._meters.get(number) or Meter(number, tuple(Band(0) for _ in counted.bands))
                found.append(
                    {
                        "text": meter_text(meter),
                        "packets": counted.total.packets,
                        "bytes": counted.total.bytes,
                        "bands": [{"packets": band.packets, "bytes": band.bytes} for band in counted.bands],
                    }
                )
        return {"meters": found}

    # The MAC table.

    def _port_names(self) -> dict[int, str]:
        return {port.place: self.switch.port_name(port.number) for port in self.switch.ports.by_number.values()}

    def _fdb_show(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.switch.lock:
            names, rows = self._port_names(), self.switch.fdb()
        found = [
            {"port": names.get(row.port, "?"), "vlan": row.vlan, "mac": texts.mac_text(row.mac), "age": row.age_s,
             "static": row.static}
            for row in rows
        ]  # fmt: skip
        return {"entries": found}

    def _fdb_flush(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.switch.lock:
            return {"n": self.switch.flush_fdb()}

    def _fdb_add(self, request: dict[str, Any]) -> dict[str, Any]:
        port = self._port(request)
        mac, vlan = texts.mac(_text(request, "mac")), _number_in(request, "vlan", MOST_VLAN) or 0
        with self.switch.lock:
            self.switch.mac_table.add_static(mac, vlan, port.place)
        return {}

    def _fdb_del(self, request: dict[str, Any]) -> dict[str, Any]:
        mac, vlan = texts.mac(_text(request, "mac")), _number_in(request, "vlan", MOST_VLAN) or 0
        with self.switch.lock:
            if not self.switch.mac_table.remove(mac, vlan):
                raise GraphError(f"no entry for {texts.mac_text(mac)} in VLAN {vlan}")
        return {}

    # Ports.

    def _port(self, request: dict[str, Any]) -> Any:
        text = _text(request, "port")
        return self.switch.ports.get(texts.port(text, self._port_number))

    def _port_mod(self, request: dict[str, Any]) -> dict[str, Any]:
        given = request.get("config")
        if not isinstance(given, dict) or not all(isinstance(on, bool) for on in given.values()):
            raise GraphError(f"port mod: config is an object of settings and true or false, got {given!r}")
        self.switch.mod_port(self._port(request).number, **given)
        return {}

    # Traces.

    def _trace(self, request: dict[str, Any]) -> dict[str, Any]:
        from wirespeed.switch.trace.ask import asked

        return asked(self.switch, _text(request, "flow", ""), _frame(request), _number_in(request, "in_port", LOCAL))


def _text(request: dict[str, Any], name: str, usual: str | None = None) -> str:
    value = request.get(name, usual)
    if not isinstance(value, str):
        raise GraphError(f"{request.get('command')}: {name} is a text, got {value!r}")
    return value


def _number_in(request: dict[str, Any], name: str, most: int = 0xFFFFFFFF) -> int | None:
    value = request.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most):
        raise GraphError(f"{request.get('command')}: {name} is a number from 0 to {most}, got {value!r}")
    return value


def _frame(request: dict[str, Any]) -> bytes | None:
    text = request.get("frame")
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > 2 * MOST_FRAME:
        raise GraphError(f"trace: frame is at most {MOST_FRAME} bytes in hexadecimal")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise GraphError("trace: frame is bytes in hexadecimal, such as 0200000001...") from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of each line that has more than a comment; a single line has number 0."""
    whole = text.splitlines()
    for number, line in enumerate(whole, 1):
        content = line.partition("#")[0].strip()
        if content:
            yield (number if len(whole) > 1 else 0), content
