"""Gives cases to a real Open vSwitch."""

from typing import Any

from tests.ovs import LOCAL, DiedError, OpenVSwitch, RefusedError
from tests.switch.oracle.case import (
    PORTS,
    Case,
    Flows,
    Mirror,
    Output,
    Outputs,
    Port,
    PortState,
    Refused,
    Send,
    Setup,
    Unanswered,
    Warp,
    normalised,
)


class RealSwitch:
    """An Open vSwitch as a switch that is given cases; set up anew only where the next case differs.

    A dummy port that is down still puts out what a rule sends there, as no other port would: here nothing comes out of it.
    """

    def __init__(self, ovs: OpenVSwitch) -> None:
        assert tuple(ovs.ports) == PORTS
        self.ovs = ovs
        self._forget()

    def _forget(self) -> None:
        """It is as it was started."""
        self.setup = Setup()
        self.meters: tuple[str, ...] = ()
        self.down: set[int] = set()
        self.quiet: set[int] = set()  # ports that take no part in floods
        self.stopped = False
        self.learnt = self.metered = False

    def run(self, case: Case) -> list[Outputs]:
        """What came out for each frame sent, without what went to the bridge's own port."""
        try:
            return self._run(case)
        except DiedError as error:
            self.ovs.restart()
            self._forget()
            raise Unanswered(str(error)) from None

    def _run(self, case: Case) -> list[Outputs]:
        self.load(case)
        found: list[list[Output]] = []
        waiting: list[tuple[int, bytes]] = []
        for step in case.steps:
            if isinstance(step, Send):
                waiting.append((step.port, step.frame))
                continue
            found += self._exchange(waiting)
            waiting = []
            if isinstance(step, Warp):
                self.ovs.time_warp(step.ms)
            elif isinstance(step, PortState):
                self._state(step.port, up=step.up)
            else:
                self._refuse(self.ovs.flows, step.text)
        found += self._exchange(waiting)
        for step in case.steps:  # the next case begins with the ports as the setup has them
            if isinstance(step, PortState):
                self._state(step.port, up=self._wanted(step.port).up)
        return [normalised(case, outputs) for outputs in found]

    def load(self, case: Case) -> None:
        """Set up for ``case`` and give it its rules; nothing was learnt yet."""
        if case.setup != self.setup:
            self._set_up(case.setup)
        if case.meters != self.meters:
            self.meters = ("unknown",)
            self._refuse(self.ovs.meters, "\n".join(case.meters))
            self.meters = case.meters
        self._refuse(self.ovs.program, "\n".join(case.flows), "\n".join(case.groups))
        timed = any(isinstance(step, Warp) for step in case.steps)
        if timed and not self.stopped:
            self.ovs.time_stop()
            self.stopped = True
        if self.learnt:
            self.ovs.appctl("fdb/flush", "br0")
        text = " ".join(
            (*case.flows, *case.groups, *(step.text for step in case.steps if isinstance(step, Flows)))
        ).lower()
        self.learnt, self.metered = "normal" in text, "meter" in text

    def _refuse(self, load: Any, *texts: str) -> None:
        try:
            load(*texts)
        except RefusedError as error:
            raise Refused(str(error)) from None

    def _exchange(self, frames: list[tuple[int, bytes]]) -> list[list[Output]]:
        found: list[list[Output]] = []
        if self.learnt:
            # Addresses are learnt from what the datapath does not remember: at once only if it remembers nothing.
            for frame in frames:
                self.ovs.settle()
                found += self.ovs.exchange([frame])
        else:
            found = self.ovs.exchange(frames, ordered=self.metered)
        return [[(port, frame) for port, frame in outputs if port not in {LOCAL, *self.down}] for outputs in found]

    def _wanted(self, number: int) -> Port:
        return next((port for port in self.setup.ports if port.number == number), Port(number))

    def _set_up(self, setup: Setup) -> None:
        old, self.setup = self.setup, setup
        words = ["--", "clear", "Bridge", "br0", "mirrors"]
        changed = {port.number for port in {*old.ports} ^ {*setup.ports}}
        for number in sorted(changed):
            words += self._vlans(self._wanted(number))
        for key, value in (("mac-aging-time", setup.mac_aging), ("mac-table-size", setup.mac_table_size)):
            words += ["--", "remove", "Bridge", "br0", "other_config", key]
            words += ["--", "set", "Bridge", "br0", f"other_config:{key}={value}"] if value is not None else []
        for mirror in setup.mirrors:
            words += self._mirror(mirror)
        self.ovs.vsctl(*words)
        self.ovs.deaf = {mirror.output_port for mirror in setup.mirrors if mirror.output_port}
        for number in sorted(changed):
            wanted = self._wanted(number)
            self._state(number, up=wanted.up)
            if wanted.flood != (number not in self.quiet):
                self.ovs.port_flood(number, flood=wanted.flood)
                (self.quiet.discard if wanted.flood else self.quiet.add)(number)

    def _state(self, port: int, *, up: bool) -> None:
        if up != (port not in self.down):
            self.ovs.port_state(port, up=up)
            (self.down.discard if up else self.down.add)(port)

    @staticmethod
    def _vlans(port: Port) -> list[str]:
        name = f"p{port.number}"
        settings = [f"tag={port.tag}"] if port.tag is not None else []
        settings += [f"trunks={','.join(map(str, port.trunks))}"] if port.trunks else []
        settings += [f"vlan_mode={port.vlan_mode}"] if port.vlan_mode else []
        words = ["--", "clear", "Port", name, "tag", "trunks", "vlan_mode"]
        return words + (["--", "set", "Port", name, *settings] if settings else [])

    @staticmethod
    def _mirror(mirror: Mirror) -> list[str]:
        ports = sorted({*mirror.sources, *mirror.destinations, *([mirror.output_port] if mirror.output_port else [])})
        words: list[str] = []
        for port in ports:
            words += ["--", f"--id=@{mirror.name}{port}", "get", "Port", f"p{port}"]
        words += ["--", f"--id=@{mirror.name}", "create", "Mirror", f"name={mirror.name}"]
        words += ["select_all=true"] if mirror.everything else []
        for column, chosen in (("select_src_port", mirror.sources), ("select_dst_port", mirror.destinations)):
            words += [f"{column}={','.join(f'@{mirror.name}{port}' for port in chosen)}"] if chosen else []
        words += [f"select_vlan={','.join(map(str, mirror.vlans))}"] if mirror.vlans else []
        words += [f"output_port=@{mirror.name}{mirror.output_port}"] if mirror.output_port else []
        words += [f"output_vlan={mirror.output_vlan}"] if mirror.output_vlan is not None else []
        words += [f"snaplen={mirror.snaplen}"] if mirror.snaplen is not None else []
        return words + ["--", "add", "Bridge", "br0", "mirrors", f"@{mirror.name}"]
