"""Mutated capture files through the reader, however their bytes come, and in damaged compressed files."""

import bz2
import gzip
import io
import logging
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.conftest import TORTURE
from tests.fuzz import corpus
from wirespeed.core.frame import Packet
from wirespeed.errors import PortError
from wirespeed.net.capture.reader import CaptureReader

INPUTS = 20_000 if TORTURE else 150
COMPRESSED = 5_000 if TORTURE else 60  # of each kind
SEED = 3

Read = tuple[list[Packet], str, int]  # packets, damage, faults


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Damage is logged, here for nearly every file."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


class ShortReads(io.BytesIO):
    """A file that gives a few bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(1 + self.tell() % 7)


def read(source: Any) -> Read:
    with CaptureReader(source) as reader:
        packets = list(reader.packets())
        return packets, str(reader.damage or ""), reader.faults


def through_pipe(data: bytes) -> Read:
    out, into = os.pipe()
    try:
        with os.fdopen(into, "wb") as file:
            file.write(data)  # less than a pipe holds
        return read(out)
    finally:
        os.close(out)


def test_mutated_captures_are_the_same_however_their_bytes_come(tmp_path: Path) -> None:
    maker, path = corpus.files(), tmp_path / "capture"
    damaged = 0
    for number in range(INPUTS):
        _, data = maker.one(SEED, number)
        path.write_bytes(data)
        found = read(path)
        assert found == read(path) == read(io.BytesIO(data)) == read(ShortReads(data)) == through_pipe(data), number
        damaged += bool(found[1])
    assert INPUTS // 4 < damaged < INPUTS  # they are mutated enough, and not too much


def test_strict_reading_raises_what_is_damage_otherwise(tmp_path: Path) -> None:
    maker = corpus.own_files()
    raised = 0
    for number in range(INPUTS):
        _, data = maker.one(SEED, number)
        packets, damage, _ = read(io.BytesIO(data))
        given: list[Packet] = []
        try:
            with CaptureReader(io.BytesIO(data), strict=True) as reader:
                given.extend(reader.packets())
        except PortError as error:
            assert damage
            assert damage in str(error)
            raised += 1
        else:
            assert not damage
        assert given == packets
    assert raised > INPUTS // 4


# Compressed files

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=1),
    "bzip2": lambda data: bz2.compress(data, 1),
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def original() -> bytes:
    """A capture of some hundred kilobytes that do not compress well."""
    generator = random.Random(SEED)
    plain = corpus.pcap("<", 0xA1B23C4D, 0)
    for i in range(1500):
        frame = generator.randbytes(generator.randrange(60, 300))
        plain += corpus.pcap_record("<", i, frame)
    return plain


@pytest.fixture(scope="module")
def whole() -> tuple[bytes, list[Packet]]:
    plain = original()
    packets, damage, faults = read(io.BytesIO(plain))
    assert (len(packets), damage, faults) == (1500, "", 0)
    return plain, packets


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_capture_that_is_cut_keeps_its_first_packets(kind: str, whole: Any, tmp_path: Path) -> None:
    plain, packets = whole
    packed, path = PACKERS[kind](plain), tmp_path / "capture"
    generator, most = random.Random(SEED), 0
    for _ in range(COMPRESSED):
        path.write_bytes(packed[: generator.randrange(len(packed))])
        found, damage, _ = read(path)
        assert damage
        assert found == packets[: len(found)]
        most = max(most, len(found))
    # The last streams were cut near their end: but for what a decompressor holds back, all before it is there.
    assert most > len(packets) // 2


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_capture_with_other_bytes_in_it_is_damaged_or_the_same(kind: str, whole: Any) -> None:
    plain, packets = whole
    packed = PACKERS[kind](plain)
    generator, damaged = random.Random(SEED), 0
    for number in range(COMPRESSED):
        data = bytearray(packed)
        for _ in range(generator.randrange(1, 4)):
            # Half of the time in the header or the trailer.
            at = generator.choice([generator.randrange(len(data)), generator.choice([*range(24), *range(-24, 0)])])
            data[at] ^= 1 << generator.randrange(8)
        found, damage, _ = read(io.BytesIO(bytes(data)))
        assert damage or found == packets, number
        damaged += bool(damage)
    assert damaged > COMPRESSED // 2


@pytest.mark.parametrize("kind", PACKERS)
def test_what_follows_a_compressed_capture_is_another_one_or_damage(kind: str, whole: Any) -> None:
    plain, packets = whole
    half = len(plain) // 2
    packed = PACKERS[kind](plain[:half]) + PACKERS[kind](plain[half:])
    assert read(io.BytesIO(packed)) == (packets, "", 0)
    for rubbish in (b"\x01", b"rubbish", packed[:3], packed[:-9]):
        found, damage, _ = read(io.BytesIO(packed + rubbish))
        assert found[: len(packets)] == packets
        assert damage
