"""Gives cases to our own switch: its stage is called by hand, a packet at a time, as a worker would call it."""

from typing import Any

import numpy as np

from tests.driver import Driver, free
from tests.switch.oracle.case import (
    PORTS,
    Case,
    Flows,
    Output,
    Outputs,
    PortState,
    Refused,
    Send,
    Setup,
    Unanswered,
    normalised,
)
from wirespeed.core.frame import Packet as Frame
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.stage import Outbox
from wirespeed.errors import GraphError
from wirespeed.switch.switch import Switch
from wirespeed.switch.text.group import parse_group
from wirespeed.switch.text.meter import parse_meter

ROOM = 4096  # packets that one packet may become at one port


class OurSwitch:
    """A switch that is given cases; a context manager.  It is made anew where the next case's setup differs.

    ``options`` are the switch's own; with ``specialised`` each case runs with the kernel for its rules.
    """

    def __init__(self, *, specialised: bool = False, **options: Any) -> None:
        self.specialised = specialised
        self.options = {"cache": 1 << 10, "memory": 1 << 28, **options}
        self.pool = PacketPool(1 << 15)
        self.setup: Setup | None = None
        self.switch: Switch | None = None
        self.driver: Driver | None = None

    def __enter__(self) -> "OurSwitch":
        return self

    def __exit__(self, *exc: Any) -> None:
        self._end()
        self.pool.close()

    def run(self, case: Case) -> list[Outputs]:
        """What came out for each frame sent."""
        if case.timed:
            raise Unanswered("time does not pass at a word here")
        if case.setup != self.setup:
            self._end()
            self._begin(case.setup)
        assert self.switch
        switch = self.switch
        self._load(case)
        found: list[list[Output]] = []
        for step in case.steps:
            if isinstance(step, Send):
                found.append(self._send(step))
            elif isinstance(step, PortState):
                switch.mod_port(step.port, down=not step.up)
            elif isinstance(step, Flows):
                self._replace(step.text.splitlines())
        for step in case.steps:
            if isinstance(step, PortState):
                switch.mod_port(
                    step.port, down=any(port.number == step.port and not port.up for port in case.setup.ports)
                )
        return [normalised(case, outputs) for outputs in found]

    def _load(self, case: Case) -> None:
        """Nothing is left of the case before."""
        assert self.switch
        switch = self.switch
        try:
            switch.del_meter()
            for text in case.meters:
                meter = parse_meter(text)
                switch.add_meter(meter.number, meter.bands, packets=meter.packets)
            with switch.bundle():
                switch.del_flows()
                switch.del_group()
                for text in case.groups:
                    switch.add_group(parse_group(text))
                for text in case.flows:
                    switch.add_flow(text)
        except GraphError as error:
            raise Refused(str(error)) from None
        switch.flush_fdb()
        if self.specialised:
            switch.specialise()

    def _replace(self, flows: list[str]) -> None:
        assert self.switch
        try:
            with self.switch.bundle():
                self.switch.del_flows()
                for text in flows:
                    self.switch.add_flow(text)
        except GraphError as error:
            raise Refused(str(error)) from None

    def _begin(self, setup: Setup) -> None:
        options = dict(self.options)
        if setup.mac_table_size:
            options["mac_entries"] = setup.mac_table_size
        switch = self.switch = Switch(**options)
        ports = {port.number: port for port in setup.ports}
        for number in PORTS:
            port = ports.get(number)
            config = (
                [] if port is None else [*(["down"] if not port.up else []), *(["no-flood"] if not port.flood else [])]
            )
            given = (
                {} if port is None else {"tag": port.tag, "trunks": port.trunks, "vlan_mode": port.vlan_mode or None}
            )
            switch.set_output(switch.add_port(number, config=config, **given), number)
        for mirror in setup.mirrors:
            switch.add_mirror(
                mirror.name,
                sources=mirror.sources,
                destinations=mirror.destinations,
                select_all=mirror.everything,
                vlans=mirror.vlans,
                output_port=mirror.output_port,
                output_vlan=mirror.output_vlan,
                snap=mirror.snaplen or 0,
            )
        driver = self.driver = Driver(switch.core.open("stage", 1), pool=self.pool)
        self._boxes = driver.arena.alloc(Outbox.size * (len(PORTS) + 1))
        self._handles = {number: np.zeros(ROOM, np.int64) for number in PORTS}
        for number, handles in self._handles.items():
            box = self._box(number)
            box.address, box.capacity = handles.ctypes.data, ROOM
        driver.head.outboxes, driver.head.outputs = self._boxes, len(PORTS) + 1
        self.setup = setup

    def _box(self, number: int) -> Any:
        return Outbox.at(self._boxes + Outbox.size * number)

    def _send(self, step: Send) -> list[Output]:
        assert self.switch and self.driver
        driver, port = self.driver, self.switch.ports.get(step.port)
        outputs = {mirror.output_port for mirror in self.switch.ports.mirrors.values()}
        if port.config & {"down", "no-receive"} or step.port in outputs:
            return []  # as the ingress does, which stands before the stage
        driver.burst[0] = driver.packet(Frame(step.frame, port=port.place))
        left = driver.call(1)
        free(driver.cache, driver.burst.ctypes.data, left)
        found = []
        for number, handles in self._handles.items():
            box = self._box(number)
            found += [(number, driver.frame(int(handle)).data) for handle in handles[: box.length]]
            free(driver.cache, box.address, box.length)
            box.length = 0
        return found

    def _end(self) -> None:
        if self.driver:
            self.driver.close()  # which looks that the pool is whole
            self.driver = None
        if self.switch:
            self.switch.close()
            self.switch = None
        self.setup = None
