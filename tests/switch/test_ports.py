"""Ports and mirrors of a switch: what is refused, and what workers read of them."""

import ctypes

import pytest

import wirespeed as ws
from wirespeed.errors import GraphError
from wirespeed.switch import action as a
from wirespeed.switch.fields import LOCAL
from wirespeed.switch.groups import Bucket, Group
from wirespeed.switch.memory import MIRROR_OUTPUT, MOST_PORTS, NO_PLACE, PORT_DOWN, PORT_NO_FLOOD, Shared
from wirespeed.switch.switch import Switch


@pytest.fixture
def switch():
    with Switch() as made:
        yield made


def record(switch: Switch, number: int):
    return switch.ports.record(switch.ports.get(number))


def place_of(switch: Switch, number: int) -> int:
    return ctypes.c_uint8.from_address(Shared.at(switch.shared).port_places + number).value


def test_a_port_is_found_by_its_number_as_long_as_it_is_there(switch: Switch) -> None:
    for number in (5, 300, 0xFEFF):
        port = switch.add_port(number)
        assert (place_of(switch, number), record(switch, number).present) == (port.place, 1)
        assert record(switch, number).number == number
    switch.add_port("LOCAL")
    assert Shared.at(switch.shared).local == switch.port(LOCAL) == 3
    gone = switch.ports.get(300)
    switch.remove_port(300)
    assert (place_of(switch, 300), switch.ports.record(gone).present) == (NO_PLACE, 0)
    assert switch.add_port(7).place == gone.place
    switch.remove_port(LOCAL)
    assert Shared.at(switch.shared).local == NO_PLACE


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"number": 0}, "must be 1 to"), ({"number": 0xFF00}, "must be 1 to"), ({"number": "eth0"}, "whole number"),
        ({"number": True}, "whole number"), ({"number": 1, "port": "tap:x"}, "wanted a port"),
        ({"number": 1, "vlan_mode": "both"}, "vlan_mode must be"), ({"number": 1, "tag": 4096}, "0 to 4095"),
        ({"number": 1, "trunks": (1, 9999)}, "0 to 4095"), ({"number": 1, "config": ("up",)}, "no setting 'up'"),
    ],
)  # fmt: skip
def test_a_port_that_cannot_be_is_refused_and_leaves_nothing(switch: Switch, given: dict, wanted: str) -> None:
    with pytest.raises(GraphError, match=wanted):
        switch.add_port(**given)
    assert switch.ports.by_number == {}
    assert switch.add_port(1).place == 0


def test_a_port_is_there_once_and_is_given_in_one_way(switch: Switch) -> None:
    switch.add_port(1, ws.port("null:"))
    with pytest.raises(GraphError, match="there already"):
        switch.add_port(1)
    with pytest.raises(GraphError, match="not both"):
        switch.add_port(2, ws.port("null:"), receive=ws.port("null:"))


def test_there_are_so_many_ports_and_no_more(switch: Switch) -> None:
    for number in range(1, MOST_PORTS + 1):
        switch.add_port(number)
    with pytest.raises(GraphError, match="at most 255"):
        switch.add_port(1000)
    assert NO_PLACE not in {port.place for port in switch.ports.by_number.values()}


def test_settings_of_a_port_are_changed_and_a_wrong_one_changes_nothing(switch: Switch) -> None:
    switch.add_port(1)
    switch.mod_port(1, no_flood=True, down=True)
    assert record(switch, 1).flags == PORT_NO_FLOOD | PORT_DOWN
    with pytest.raises(GraphError, match="no setting 'upside-down'"):
        switch.mod_port(1, down=False, upside_down=True)
    assert record(switch, 1).flags == PORT_NO_FLOOD | PORT_DOWN
    switch.mod_port(1, down=False)
    assert record(switch, 1).flags == PORT_NO_FLOOD
    with pytest.raises(GraphError, match="no port 2; the ports are 1"):
        switch.mod_port(2, down=True)


def test_a_port_that_a_mirror_or_a_group_needs_stays(switch: Switch) -> None:
    for number in (1, 2, 3):
        switch.add_port(number)
    switch.add_mirror("m", sources=[1], output_port=2)
    assert (record(switch, 1).mirrors_in, record(switch, 2).flags) == (1, MIRROR_OUTPUT)
    for number in (1, 2):
        with pytest.raises(GraphError, match="part of mirror m"):
            switch.remove_port(number)
    switch.mod_port(2, down=True)
    assert record(switch, 2).flags == MIRROR_OUTPUT | PORT_DOWN
    switch.remove_mirror("m")
    assert (record(switch, 1).mirrors_in, record(switch, 2).flags) == (0, PORT_DOWN)
    switch.add_group(Group(1, "ff", (Bucket((a.output(3),), watch_port=3),)))
    with pytest.raises(GraphError, match="watched by group 1"):
        switch.remove_port(3)
    switch.del_group(1)
    for number in (1, 2, 3):
        switch.remove_port(number)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "one of them"), ({"output_port": 1, "output_vlan": 2}, "one of them"), ({"output_port": 9}, "no port 9"),
        ({"output_port": 1, "sources": [9]}, "no port 9"), ({"output_vlan": 4096}, "0 to 4095"),
        ({"output_port": 1, "vlans": [-1]}, "0 to 4095"), ({"output_port": 1, "snap": 13}, "14 to 65535"),
    ],
)  # fmt: skip
def test_a_mirror_that_cannot_be_is_refused_and_leaves_nothing(switch: Switch, given: dict, wanted: str) -> None:
    switch.add_port(1)
    with pytest.raises(GraphError, match=wanted):
        switch.add_mirror("m", **given)
    assert switch.ports.mirrors == {}
    switch.add_mirror("n", select_all=True, output_port=1)
    assert record(switch, 1).mirrors_in == 0
    with pytest.raises(GraphError, match="no mirror 'm'; there are n"):
        switch.remove_mirror("m")


def test_a_switch_that_is_closed_says_so() -> None:
    switch = Switch()
    switch.close()
    switch.close()
    for call in (lambda: switch.add_port(1), lambda: switch.add_flow("actions=drop"), switch.chains, switch.specialise):
        with pytest.raises(GraphError, match="is closed"):
            call()
