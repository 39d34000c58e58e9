"""Draws what a packet costs the distributor's core by the number of workers: ``python -m bench.plot_workers rows.json``.

Both axes are logarithmic.  Drawn are the rows of the traffic in which every packet is of a flow of its own.
"""

import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEFT, TOP, WIDTH, HEIGHT = 60, 40, 520, 300
MOST_WORKERS, LEAST, MOST = 256, 1.0, 128.0
LINES = {  # by case and side: its name, its colour, and how it is dashed
    ("core", "theirs"): ("DPDK, in all", "#c1666b", ""),
    ("match", "theirs"): ("DPDK, the match", "#c1666b", "5 4"),
    ("core", "ours"): ("wirespeed, in all", "#2a6f97", ""),
    ("match", "ours"): ("wirespeed, the match", "#2a6f97", "5 4"),
}
_NAME = re.compile(r"distributor\.(core|match)-(\d+)\.seq(?:\.dpdk)?")

Points = list[tuple[int, float]]


def series(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Points]:
    """Cycles a packet by workers, of each case and side; the last row of a name counts."""
    found: dict[tuple[str, str], Points] = defaultdict(list)
    for name, row in {row["name"]: row for row in rows}.items():
        if match := _NAME.fullmatch(name):
            for side in ("ours", "theirs"):
                if row[side] is not None:
                    found[match[1], side].append((int(match[2]), float(row[side])))
    return {key: sorted(points) for key, points in found.items()}


def _x(workers: int) -> float:
    return LEFT + WIDTH * math.log(workers) / math.log(MOST_WORKERS)


def _y(cycles: float) -> float:
    return TOP + HEIGHT * (1 - math.log(cycles / LEAST) / math.log(MOST / LEAST))


def svg(rows: Sequence[dict[str, Any]]) -> str:
    """The drawing."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 190}" height="{TOP + HEIGHT + 50}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20">cycles a packet on the distributor\'s core</text>',
        f'<text x="{LEFT + WIDTH}" y="{TOP + HEIGHT + 38}" text-anchor="end">workers</text>',
    ]
    for workers in (1, 4, 16, 64, 256):
        x = _x(workers)
        parts += [
            f'<line x1="{x:.0f}" y1="{TOP}" x2="{x:.0f}" y2="{TOP + HEIGHT}" stroke="#dddddd"/>',
            f'<text x="{x:.0f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{workers}</text>',
        ]
    for cycles in (1, 4, 16, 64):
        y = _y(cycles)
        parts += [
            f'<line x1="{LEFT}" y1="{y:.0f}" x2="{LEFT + WIDTH}" y2="{y:.0f}" stroke="#dddddd"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{cycles}</text>',
        ]
    for key, points in series(rows).items():
        name, colour, dashes = LINES[key]
        path = " ".join(f"{_x(workers):.1f},{_y(cycles):.1f}" for workers, cycles in points)
        workers, cycles = points[-1]
        parts += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>',
            f'<text x="{_x(workers) + 8:.0f}" y="{_y(cycles) + 4:.0f}" fill="{colour}">{name}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def main(paths: Sequence[str]) -> str:
    """The drawing of the rows in these files."""
    return svg([json.loads(line) for path in paths for line in Path(path).read_text().splitlines()])


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
