"""Fuzzing of the scan: mutated captures, at the edge of memory, against the obvious reader.

``python -m tests.net.capture.fuzz --count 1000000 --seed 7`` runs as many as are asked for and names the first input
that is read differently; ``--captures DIRECTORY`` adds the small files in it to the seeds.
"""

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

from tests.net.capture import files, model
from tests.net.capture.rig import Rig

LARGEST_SEED = 4096
# What a length, a count or a kind turns into most usefully: the limits of the reader and of the formats.
WORDS = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 19, 20, 24, 27, 28, 31, 32, 33, 96, 0x7F, 0x80, 0xFF, 0xFFFF, 0x10000,
    (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + (1 << 18), (128 << 20) + 1, 0x54000000, 0x7FFFFFFF, 0x80000000,
    0xFFFFFFF4, 0xFFFFFFFC, 0xFFFFFFFF, 0x0A0D0D0A, 0x1A2B3C4D, 0x4D3C2B1A, 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34,
]  # fmt: skip


def seeds(captures: Path | None = None) -> list[bytes]:
    """Captures to begin with."""
    found = [data for data in files.SAMPLES.values() if len(data) <= LARGEST_SEED]
    found += [files.pcap([b"x" * 20] * 3), files.pcapng([b"y" * 21] * 3), files.pcapng([b"z"] * 2, ">")]
    if captures:
        paths = sorted(p for p in captures.rglob("*") if p.suffix in (".pcap", ".pcapng", ".cap"))
        found += [p.read_bytes() for p in paths if p.stat().st_size <= LARGEST_SEED]
    return found


def mutated(data: bytes, generator: random.Random) -> bytes:
    """A capture with a few of its words and bytes changed, pieces doubled, moved or cut out, or its end cut off."""
    out = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        place = generator.randrange(len(out) + 1)
        word = place & ~3
        what = generator.randrange(8)
        if what < 3:
            order = generator.choice(("little", "big"))
            out[word : word + 4] = generator.choice(WORDS).to_bytes(4, order)
        elif what == 3 and place < len(out):
            out[place] = generator.randrange(256)
        elif what == 4 and word + 4 <= len(out):
            value = int.from_bytes(out[word : word + 4], "little") + generator.choice((-4, -1, 1, 4))
            out[word : word + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
        elif what == 5:
            piece = out[word : word + 4 * generator.randrange(1, 24)]
            at = 4 * generator.randrange(len(out) // 4 + 1)
            out[at:at] = piece
        elif what == 6:
            del out[word : word + 4 * generator.randrange(1, 12)]
        else:
            del out[place:]
    return bytes(out)


def run(count: int, seed: int, captures: Path | None = None) -> int:
    """Read ``count`` mutated captures; AssertionError for the first that is read otherwise.  The packets found."""
    generator, starts, rig, packets = random.Random(seed), seeds(captures), Rig(), 0
    for number in range(count):
        data = mutated(generator.choice(starts), generator)
        expected = model.read(data)
        rig.at_the_edge(data)
        got = rig.report(rig.found())
        if got != expected:
            raise AssertionError(f"input {number} of seed {seed} is read otherwise:\n{data!r}\n{got}\n{expected}")
        packets += len(got.packets)
    return packets


def rounds(count: int, seed: int, each: int = 10_000) -> Iterator[tuple[int, int]]:
    """Pieces of a long run: how many, and from which seed."""
    for i in range(0, count, each):
        yield min(each, count - i), seed + i


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--captures", type=Path)
    arguments = parser.parse_args()
    begin = time.monotonic()
    packets = sum(run(n, seed, arguments.captures) for n, seed in rounds(arguments.count, arguments.seed))
    print(
        f"{arguments.count:,} inputs, {packets:,} packets, {arguments.count / (time.monotonic() - begin):,.0f} inputs/s"
    )


if __name__ == "__main__":
    main()
