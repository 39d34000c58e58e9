"""The ports of a switch: their numbers, places, VLANs and states, and what workers read of them."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wirespeed.core.element import Element
from wirespeed.errors import GraphError
from wirespeed.switch.fields import LOCAL
from wirespeed.switch.heap import Heap
from wirespeed.switch.memory import (
    ACCESS,
    LINK_DOWN,
    MIRROR,
    MIRROR_OUTPUT,
    MOST_MIRRORS,
    MOST_PORTS,
    NATIVE_TAGGED,
    NATIVE_UNTAGGED,
    NO_PLACE,
    PORT,
    PORT_DOWN,
    PORT_NO_FLOOD,
    PORT_NO_FORWARD,
    PORT_NO_RECEIVE,
    TRUNK,
    MirrorRecord,
    PortRecord,
    Shared,
)

MOST_NUMBER = 0xFEFF
VLAN_MODES = {
    "trunk": TRUNK, "access": ACCESS, "native-tagged": NATIVE_TAGGED, "native-untagged": NATIVE_UNTAGGED,
}  # fmt: skip
CONFIG = {
    "down": PORT_DOWN, "no-receive": PORT_NO_RECEIVE, "no-flood": PORT_NO_FLOOD, "no-forward": PORT_NO_FORWARD,
    "link-down": LINK_DOWN,
}  # fmt: skip


@dataclass
class SwitchPort:
    """A port: where its packets come from and go to, and how NORMAL treats its VLANs.  ``config`` has names of CONFIG."""

    number: int
    name: str
    place: int
    receive: Element | None
    transmit: Element | None
    vlan_mode: str = "trunk"
    tag: int = 0
    trunks: frozenset[int] = frozenset()
    config: set[str] = field(default_factory=set)
    output: int = -1


@dataclass(frozen=True)
class Mirror:
    """Copies of what comes in by ``sources`` or goes out by ``destinations``, to a port or into a VLAN."""

    name: str
    sources: frozenset[int] = frozenset()
    destinations: frozenset[int] = frozenset()
    select_all: bool = False
    vlans: frozenset[int] = frozenset()
    output_port: int | None = None
    output_vlan: int | None = None
    snap: int = 0


def vlan_bits(vlans: Iterable[int]) -> bytes:
    """A bit for each VLAN, 512 bytes."""
    bits = bytearray(512)
    for vlan in vlans:
        bits[vlan // 8] |= 1 << vlan % 8
    return bytes(bits)


def _vlan(value: Any, what: str) -> int:
    if not isinstance(value, int) or not 0 <= value <= 4095:
        raise GraphError(f"{what} must be a VLAN from 0 to 4095, got {value!r}")
    return value


class Ports:
    """The ports and mirrors of one switch, in Python and in the memory that workers read."""

    def __init__(self, shared: int, heap: Heap) -> None:
        self.shared, self.heap = shared, heap
        self.by_number: dict[int, SwitchPort] = {}
        self.mirrors: dict[str, Mirror] = {}
        record = Shared.at(shared)
        self._records, self._places, self._mirrors = int(record.ports), int(record.port_places), int(record.mirrors)
        ctypes.memset(self._places, NO_PLACE, 65536)
        record.local = NO_PLACE

    def add(self, port: SwitchPort) -> None:
        """Have workers know a port."""
        if port.number in self.by_number:
            raise GraphError(
                f"port {port.number} is there already, {self.by_number[port.number].name}; give another number"
            )
        if not (1 <= port.number <= MOST_NUMBER or port.number == LOCAL):
            raise GraphError(f"a port's number must be 1 to {MOST_NUMBER} or LOCAL, got {port.number}")
        self.by_number[port.number] = port
        try:
            self.write(port)
        except GraphError:
            del self.by_number[port.number]
            raise
        self.set_place(port.number, port.place)
        record = Shared.at(self.shared)
        record.n_ports = max(int(record.n_ports), port.place + 1)
        self.record(port).present = 1

    def set_place(self, number: int, place: int) -> None:
        """Where a number leads."""
        if number == LOCAL:
            Shared.at(self.shared).local = place
        else:
            ctypes.c_uint8.from_address(self._places + number).value = place

    def free_place(self) -> int:
        """A place that no port has."""
        taken = {port.place for port in self.by_number.values()}
        for place in range(MOST_PORTS):
            if place not in taken:
                return place
        raise GraphError(f"a switch has at most {MOST_PORTS} ports; remove one first")

    def remove(self, number: int) -> SwitchPort:
        """Forget a port; packets are no longer sent there."""
        port = self.get(number)
        self.record(port).present = 0
        self.set_place(number, NO_PLACE)
        del self.by_number[number]
        return port

    def get(self, number: int) -> SwitchPort:
        """A port by its number."""
        port = self.by_number.get(number)
        if port is None:
            have = ", ".join(map(str, sorted(self.by_number))) or "none"
            raise GraphError(f"no port {number}; the ports are {have}")
        return port

    def record(self, port: SwitchPort) -> Any:
        """What workers read of a port."""
        return PortRecord.at(self._records + PORT * port.place)

    def write(self, port: SwitchPort, version: int = 0) -> None:
        """Write what workers read; ``version`` is the one in force, after which what was there before is given back."""
        if port.vlan_mode not in VLAN_MODES:
            raise GraphError(f"vlan_mode must be one of {', '.join(VLAN_MODES)}, got {port.vlan_mode!r}")
        wrong = port.config - set(CONFIG)
        if wrong:
            raise GraphError(f"port {port.number}: no setting {sorted(wrong)[0]!r}; they are {', '.join(CONFIG)}")
        _vlan(port.tag, f"port {port.number}: tag")
        for vlan in port.trunks:
            _vlan(vlan, f"port {port.number}: trunks")
        record = self.record(port)
        record.number, record.output = port.number, port.output
        record.vlan_mode, record.tag = VLAN_MODES[port.vlan_mode], port.tag
        before = int(record.trunks)
        trunks = set(port.trunks)
        if trunks and port.vlan_mode.startswith("native"):
            trunks.add(port.tag)
        record.trunks = self.heap.write(vlan_bits(trunks)) if trunks else 0
        if before:
            self.heap.free(before, 512, version)
        record.flags = sum(CONFIG[name] for name in port.config)

    def set_mirrors(self, mirrors: dict[str, Mirror], version: int) -> None:
        """Have exactly these mirrors."""
        if len(mirrors) > MOST_MIRRORS:
            raise GraphError(f"a switch has at most {MOST_MIRRORS} mirrors, got {len(mirrors)}")
        for mirror in mirrors.values():
            self._check_mirror(mirror)
        outputs = {m.output_port for m in mirrors.values()}
        incoming = dict.fromkeys(self.by_number, 0)
        outgoing = dict.fromkeys(self.by_number, 0)
        for i, mirror in enumerate(mirrors.values()):
            for number in self.by_number:
                if number not in outputs and (mirror.select_all or number in mirror.sources):
                    incoming[number] |= 1 << i
                if mirror.select_all or number in mirror.destinations:
                    outgoing[number] |= 1 << i
            self._write_mirror(i, mirror, version)
        for i in range(len(mirrors), MOST_MIRRORS):
            MirrorRecord.at(self._mirrors + MIRROR * i).present = 0
        for number, port in self.by_number.items():
            record = self.record(port)
            record.mirrors_in, record.mirrors_out = incoming[number], outgoing[number]
            flags = sum(CONFIG[name] for name in port.config)
            record.flags = flags | (MIRROR_OUTPUT if number in outputs else 0)
        self.mirrors = mirrors

    def _check_mirror(self, mirror: Mirror) -> None:
        if (mirror.output_port is None) == (mirror.output_vlan is None):
            raise GraphError(f"mirror {mirror.name}: give output_port or output_vlan, one of them")
        for number in mirror.sources | mirror.destinations:
            self.get(number)
        if mirror.output_port is not None:
            self.get(mirror.output_port)
        for vlan in mirror.vlans:
            _vlan(vlan, f"mirror {mirror.name}: vlans")
        if mirror.output_vlan is not None:
            _vlan(mirror.output_vlan, f"mirror {mirror.name}: output_vlan")
        if mirror.snap and not 14 <= mirror.snap <= 65535:
            raise GraphError(f"mirror {mirror.name}: snap must be 14 to 65535 bytes, got {mirror.snap}")

    def _write_mirror(self, number: int, mirror: Mirror, version: int) -> None:
        record = MirrorRecord.at(self._mirrors + MIRROR * number)
        before = int(record.vlans)
        record.output = NO_PLACE if mirror.output_port is None else self.get(mirror.output_port).place
        record.out_vlan, record.snap = mirror.output_vlan or 0, mirror.snap
        record.select_all = int(mirror.select_all)
        record.vlans = self.heap.write(vlan_bits(mirror.vlans)) if mirror.vlans else 0
        record.present = 1
        if before:
            self.heap.free(before, 512, version)
