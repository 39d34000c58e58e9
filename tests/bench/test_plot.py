"""The drawing of the benches' rows."""

from xml.etree import ElementTree

from bench.plot import chosen, svg

ROWS = [
    {"name": "capture.count.64B.tcpdump", "speedup": 2.0},
    {"name": "forward.io.64B.testpmd", "speedup": 3.0},
    {"name": "forward.io-rate.64B.testpmd", "speedup": 3.1},
    {"name": "forward.one_hop.64B", "speedup": None},
    {"name": "capture.count.64B.tcpdump", "speedup": 2.5},
]


def test_the_last_row_of_each_name_is_drawn_in_the_order_of_the_parts() -> None:
    assert [(r["name"], r["speedup"]) for r in chosen(ROWS)] == [
        ("capture.count.64B.tcpdump", 2.5),
        ("forward.io.64B.testpmd", 3.0),
    ]


def test_the_drawing_is_well_formed_and_says_each_speedup() -> None:
    texts = [t.text for t in ElementTree.fromstring(svg(ROWS)).iter("{http://www.w3.org/2000/svg}text")]
    assert "capture.count.64B.tcpdump" in texts and "2.5" in texts and "3" in texts
