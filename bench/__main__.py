"""Command line of the benches: ``python -m bench`` lists them, ``python -m bench NAME`` measures one."""

import argparse
import importlib
import os
import sys
from pathlib import Path

from bench import harness, machine

NAMES = ("capture", "forward", "ring", "pool", "queue", "distributor", "filter", "kernel", "switch")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; the last core of the affinity mask is measured on unless ``--core`` says otherwise."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure one of the published figures.")
    parser.add_argument("name", nargs="?", choices=NAMES, help="what to measure; without it the benches are listed")
    parser.add_argument("--peer", action="store_true", help="measure the programs it is compared with in the same run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too, one JSON object a line")
    parser.add_argument(
        "--quick", action="store_true", help="small shares, short runs: shows that it works, not how fast"
    )
    parser.add_argument("--runs", type=int, metavar="N", help="how often everything is measured (default 5; quick: 3)")
    parser.add_argument("--core", type=int, metavar="N", help="the core to measure on (default: the last one allowed)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only rows whose names have this in them: rewrite.64B"
    )
    options = parser.parse_args(arguments)
    if options.runs is not None and options.runs < 1:
        parser.error(f"--runs must be at least 1, got {options.runs}")
    allowed = sorted(os.sched_getaffinity(0))
    if options.core is not None and options.core not in allowed:
        parser.error(f"--core {options.core} is not among the allowed cores {allowed}")
    return options


def main(arguments: list[str]) -> int:
    """Run one bench; print its table, write its JSON."""
    options = parse(arguments)
    if options.name is None:
        for name in NAMES:
            summary = (importlib.import_module(f"bench.{name}").__doc__ or "").splitlines()[0]
            print(f"{name:10} {summary}")
        return 0
    chosen = harness.Options(
        peer=options.peer,
        quick=options.quick,
        runs=options.runs or (3 if options.quick else 5),
        core=max(os.sched_getaffinity(0)) if options.core is None else options.core,
        only=options.only,
    )
    for line in machine.describe():
        harness.say(line)
    rows: list[harness.Row] = []
    try:
        for row in importlib.import_module(f"bench.{options.name}").run(chosen):
            rows.append(row)
            if options.json:
                harness.write_json(options.json, rows)
    except KeyboardInterrupt:
        harness.say("interrupted: the rows so far follow")
    harness.print_table(f"bench {options.name}", rows)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
