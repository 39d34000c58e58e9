"""A running switch in the terminal: its stages, and below them the rules with most packets, and what the cache does."""

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from wirespeed.observe.live import LiveLines, LiveTable, picture, si
from wirespeed.observe.rates import Rates

EVERY_S = 1.0
MOST_SHOWN = 8
MOST_LOOKED_AT = 20_000  # rules; more of them would take too long to count each second
HEADINGS = ("packets", "packets/s", "table", "priority", "rule")


class SwitchTable(LiveTable):
    """The live table with the switch's own numbers below it."""

    def __init__(self, switch: Any, console: Console | None = None, *, every_s: float = EVERY_S) -> None:
        super().__init__(console, every_s=every_s)
        self.switch = switch
        self._counted: dict[int, int] = {}
        self._cache: dict[str, int] = {}
        self._at = 0.0

    def draw(self, rates: Rates) -> None:
        """Draw one picture."""
        elapsed, self._at = rates.seconds - self._at, rates.seconds
        parts = [picture(rates, self.console.width), Text(), self._rules(elapsed), Text(self._footer(elapsed), "dim")]
        self._draw(Group(*parts))

    def _rules(self, elapsed: float) -> RenderableType:
        if self.switch.store.length > MOST_LOOKED_AT:
            return Text(f"{self.switch.store.length:,} rules; `wirespeed flow dump` shows them", "dim")
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        for heading in HEADINGS[:-1]:
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column(HEADINGS[-1], no_wrap=True, overflow="ellipsis")
        found = busiest(self.switch.flows())
        for stats in found:
            rule = stats.rule
            more = stats.packets - self._counted.get(rule.number, 0)
            rate = si(more / elapsed) if elapsed > 0 else ""
            table.add_row(
                f"{stats.packets:,}", rate, str(rule.table), str(rule.priority), Text(str(rule.match) or "any", "cyan")
            )
        self._counted = {stats.rule.number: stats.packets for stats in found}
        return table

    def _footer(self, elapsed: float) -> str:
        before, self._cache = self._cache, self.switch.worker_counters()
        now = {name: n - before.get(name, 0) for name, n in self._cache.items()}
        hits, misses = now.get("cache_hits", 0), now.get("cache_misses", 0)
        share = f"{hits / (hits + misses):.1%} of look-ups hit" if hits + misses else "no look-ups"
        rate = f", {si(misses / elapsed)}/s through the tables" if elapsed > 0 else ""
        rules, macs = self.switch.store.length, len(self.switch.mac_table)
        return f"cache: {share}{rate}; {rules:,} rules, {macs:,} MACs; version {self.switch.store.version}"


def busiest(flows: list[Any]) -> list[Any]:
    """The rules with most packets, those without any left out."""
    return sorted((f for f in flows if f.packets), key=lambda f: -f.packets)[:MOST_SHOWN]


def view(switch: Any, *, lines: bool = False) -> LiveTable | LiveLines | None:
    """What suits standard error, as :func:`wirespeed.observe.live.view` decides it, with the switch."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return SwitchTable(switch, console)
    return LiveLines() if lines or console.is_terminal else None
