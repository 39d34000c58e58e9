"""The numbers of a running switch, all of one moment: ports, tables, caches, drops by reason."""

from typing import Any

from wirespeed.switch.memory import TABLES


def statistics(switch: Any, report: Any, specialiser: Any = None) -> dict[str, Any]:
    """Everything that ``wirespeed stats`` shows."""
    with switch.lock:
        totals = switch.counters.totals()
        tables = [
            {"table": table, "rules": len(rules), "misses": int(totals[2 * table])}
            for table, rules in enumerate(switch.store.tables[: TABLES - 1])
            if rules or int(totals[2 * table])
        ]
        counted = switch.worker_counters()
        found = {
            "name": switch.name,
            "version": switch.store.version,
            "rules": switch.store.length,
            "groups": len(switch.groups),
            "meters": len(switch.meters),
            "macs": len(switch.mac_table),
            "specialised": specialiser is not None and specialiser.current,
            "compiled": specialiser.compiled if specialiser is not None else 0,
            "not_compiled": specialiser.failed if specialiser is not None else "",
            "tables": tables,
            "counters": counted,
        }
    found["ports"] = ports_now(switch, report)
    found["drops"] = drops(report)
    found["seconds"] = report.seconds if report is not None else 0.0
    return found


def ports_now(switch: Any, report: Any) -> list[dict[str, Any]]:
    """A row for each port, with what it received and sent in this run."""
    stages = {stage.name: stage for stage in report.stages} if report is not None else {}
    sinks = _sinks(switch, report)
    rows = []
    with switch.lock:
        ports = sorted(switch.ports.by_number.values(), key=lambda port: port.number)
    for port in ports:
        number = switch.port_name(port.number)
        ingress, sink = stages.get(f"{switch.name} port {number}"), sinks.get(port.number)
        rows.append(
            {
                "port": number,
                "name": port.name,
                "config": sorted(port.config),
                "vlan_mode": port.vlan_mode,
                "tag": port.tag,
                "trunks": sorted(port.trunks),
                "receives": port.receive is not None,
                "transmits": port.transmit is not None,
                "received": ingress.packets_in if ingress is not None else 0,
                "received_dropped": ingress.dropped if ingress is not None else 0,
                "sent": sink.packets_out if sink is not None else 0,
                "sent_dropped": sink.dropped if sink is not None else 0,
            }
        )
    return rows


def _sinks(switch: Any, report: Any) -> dict[int, Any]:
    """What was sent by each port's number.  Sinks stand in a report in the order of the ports' places."""
    found: dict[int, Any] = {}
    if report is None:
        return found
    by_name: dict[str, list[Any]] = {}
    for stage in report.stages:
        if stage.kind == "sink":
            by_name.setdefault(stage.name, []).append(stage)
    for port in sorted(switch.ports.by_number.values(), key=lambda port: port.place):
        if port.transmit is not None and by_name.get(port.transmit.name):
            found[port.number] = by_name[port.transmit.name].pop(0)
    return found


def drops(report: Any) -> list[dict[str, Any]]:
    """Drops of all stages by reason, most first."""
    if report is None:
        return []
    found = [
        {"stage": stage.name, "reason": reason, "packets": n, "sentence": stage.sentences.get(reason, "")}
        for stage in report.stages
        for reason, n in stage.drops.items()
        if n
    ]
    return sorted(found, key=lambda row: -row["packets"])
