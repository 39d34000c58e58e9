"""Draws the speedups of measured rows: ``python -m bench.plot rows.json ... > docs/benchmarks.svg``.

A bar for each row that has a peer, on a logarithmic scale, for they go from 2 to thousands; a stump where the peer is the
faster.
"""

import json
import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

LEFT, WIDTH, BAR, GAP = 300, 460, 14, 6
PARTS = ("capture.count", "capture.rewrite", "forward", "ring", "pool", "queue")
LEFT_OUT = ("-rate", ".folded", "ring.mean")
OURS, SLOWER, EVEN = "#2a6f97", "#c1666b", "#999999"


def chosen(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with a speedup, of the parts that are drawn; the last of each name counts."""
    latest = {row["name"]: row for row in rows if row.get("speedup")}
    drawn = [r for n, r in latest.items() if n.startswith(PARTS) and not any(word in n for word in LEFT_OUT)]
    return sorted(drawn, key=lambda r: ([r["name"].startswith(p) for p in PARTS].index(True), -r["speedup"]))


def svg(rows: Sequence[dict[str, Any]]) -> str:
    """The drawing."""
    rows = chosen(rows)
    most = math.log10(max(r["speedup"] for r in rows)) * 1.15
    height = (BAR + GAP) * len(rows) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 80}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18">how many times faster (logarithmic)</text>',
    ]
    for number, row in enumerate(rows):
        y = 30 + (BAR + GAP) * number
        length = max(2.0, WIDTH * math.log10(row["speedup"]) / most)
        parts += [
            f'<text x="{LEFT - 8}" y="{y + BAR - 3}" text-anchor="end">{escape(row["name"])}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{length:.0f}" height="{BAR}" '
            f'fill="{OURS if row["speedup"] >= 1 else SLOWER}"/>',
            f'<text x="{LEFT + length + 6:.0f}" y="{y + BAR - 3}">{row["speedup"]:.3g}</text>',
        ]
    parts.append(f'<line x1="{LEFT}" y1="26" x2="{LEFT}" y2="{height - 14}" stroke="{EVEN}"/>')
    return "\n".join([*parts, "</svg>\n"])


def main(paths: Sequence[str]) -> str:
    """The drawing of the rows in these files."""
    return svg([json.loads(line) for path in paths for line in Path(path).read_text().splitlines()])


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
