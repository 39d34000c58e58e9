"""``wirespeed doctor``: what the machine offers, what each kind of port needs, and what is in the way."""

import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from wirespeed.cli.parser import Parser

EPILOG = "Exit code: 0 when the main job can run, 1 when something is in its way."


@dataclass(frozen=True)
class Finding:
    """One line: ``state`` is ``ok``, ``note`` (works, but slower) or ``bad`` (in the way); ``advice``: what to do."""

    topic: str
    state: str
    text: str
    advice: str = ""


def configure(parser: Parser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def main(arguments: Any) -> int:
    """Look at everything, print it, and say by the exit code whether something is in the way."""
    findings = list(examine())
    if arguments.json:
        print(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        print(table(findings))
    return 1 if any(f.state == "bad" for f in findings) else 0


def table(findings: list[Finding]) -> str:
    """The findings as text, and in one sentence what they come to."""
    width = max(len(f.topic) for f in findings)
    lines = []
    for f in findings:
        lines.append(f"{f.topic:{width}}  {f.state:4}  {f.text}")
        if f.advice:
            lines.append(f"{'':{width}}        -> {f.advice}")
    bad = [f.topic for f in findings if f.state == "bad"]
    return "\n".join([*lines, f"In the way: {', '.join(bad)}." if bad else "Nothing is in the way."])


def examine() -> Iterator[Finding]:
    """Look at the machine, the compiler and the ports, in this order."""
    yield from _system()
    yield from _cores()
    yield from _memory()
    yield from _compiler()
    yield from _ports()
    yield from _interfaces()


def _system() -> Iterator[Finding]:
    release = f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}"
    if sys.platform != "linux":
        yield Finding("system", "bad", release, "wirespeed runs on Linux only")
    else:
        yield Finding("system", "ok", release)


def _cores() -> Iterator[Finding]:
    from wirespeed.observe import machine

    allowed = machine.cores()
    count = os.cpu_count() or len(allowed)
    yield Finding("cores", "ok", f"{len(allowed)} of {count} allowed: {machine.ranges(allowed)}")
    share = machine.quota()
    if share is None:
        yield Finding("quota", "ok", "no control group limits the time of them")
    elif share < 1:
        advice = "a worker will be stopped again and again; raise cpu.max of its control group to 1 core or more"
        yield Finding("quota", "note", f"the control group allows {share:.2f} cores' worth of time", advice)
    else:
        yield Finding(
            "quota", "ok", f"the control group allows {share:.2f} cores' worth of time, so at most {int(share)} workers"
        )
    steady = machine.steady_counter()
    if steady is False:
        yield Finding("cycle counter", "note", "it does not tick evenly", "cycles a packet are only a hint here")
    else:
        yield Finding("cycle counter", "ok", "it ticks evenly")


def _memory() -> Iterator[Finding]:
    from wirespeed.observe import machine

    pages = [p for p in machine.huge_pages() if p.total]
    large = ", ".join(f"{p.free} of {p.total} of {p.kilobytes >> 10} MB free" for p in pages) or "none set aside"
    yield Finding("huge pages", "ok", f"{large}; they are used when there are, and not needed")
    transparent = machine.transparent_huge_pages()
    if transparent in ("always", "madvise"):
        yield Finding("transparent", "ok", f"huge pages are given on request ({transparent})")
    else:
        advice = "large pools run faster after: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        yield Finding(
            "transparent",
            "note",
            f"huge pages are not given on request ({transparent or 'not in this kernel'})",
            advice,
        )


def _compiler() -> Iterator[Finding]:
    try:
        from wirespeed.jit import cache, machine
    except ImportError as error:
        yield Finding(
            "compiler", "bad", f"numba cannot be imported: {error}", "pip install --force-reinstall wirespeed"
        )
        return
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numba", "llvmlite", "numpy"))
    yield Finding("compiler", "ok", f"{versions}, for {machine.ARCHITECTURE} {machine.cpu()}")
    modes = [word for word, on in (("debug", machine.DEBUG), ("portable", machine.PORTABLE)) if on]
    if modes:
        yield Finding("mode", "note", f"{' and '.join(modes)}, by the environment", "unset it for full speed")
    yield _cache(cache)


def _cache(cache: Any) -> Finding:
    folder = cache.root()
    named = os.environ.get("WIRESPEED_CACHE") or os.environ.get("XDG_CACHE_HOME")
    files = [p.stat().st_size for p in folder.rglob("*.nb?")]
    text = f"{folder}, {len(files)} files, {sum(files) / 1e6:.1f} MB"
    if folder.is_relative_to(named or os.path.expanduser("~")):
        return Finding("kernel cache", "ok", text)
    advice = "kernels are compiled again after each boot; set WIRESPEED_CACHE to a folder that can be written"
    return Finding("kernel cache", "note", f"{text}; the usual place cannot be written", advice)


def _ports() -> Iterator[Finding]:
    """A class of ports may have ``obstacle()``: what is missing on this machine, in a sentence, or None."""
    from wirespeed.observe import obstacles
    from wirespeed.ports import KINDS, kind_class

    for kind in KINDS:
        try:
            port_class = kind_class(kind)
        except ImportError as error:
            yield Finding(
                f"port {kind}:", "bad", f"cannot be imported: {error}", "pip install --force-reinstall wirespeed"
            )
            continue
        if obstacle := obstacles.obstacle(kind, port_class):
            yield Finding(f"port {kind}:", "note", obstacle)
        else:
            yield Finding(f"port {kind}:", "ok", f"ready; needs {obstacles.needs(kind, port_class)}")


def _interfaces() -> Iterator[Finding]:
    from wirespeed.errors import WirespeedError
    from wirespeed.observe.interfaces import seen

    try:
        found = [one for one in seen() if one.carries]
    except (OSError, WirespeedError) as error:
        yield Finding("interfaces", "note", f"the kernel does not tell: {error}")
        return
    up = [f"{one.name} ({', '.join((one.driver or one.kind or 'no driver', *one.xdp[:2]))})" for one in found if one.up]
    text = ", ".join(up) or "none is up"
    yield Finding("interfaces", "ok", f"{text}; `wirespeed ports` has all {len(found)}")
