"""Compressed captures are unpacked piece by piece, whatever the pieces; what was good before damage is kept."""

import bz2
import gzip
import lzma
import random
import tracemalloc

import pytest
import zstandard

from wirespeed.net.capture import container
from wirespeed.net.capture.container import BZIP2, GZIP, PIECE, XZ, ZSTD, Damaged, Unpacker, kind_of, tell

PACK = {GZIP: gzip.compress, BZIP2: bz2.compress, XZ: lzma.compress, ZSTD: zstandard.compress}
each_kind = pytest.mark.parametrize("kind", PACK, ids=container.NAMES.get)
TEXT = random.Random(1).randbytes(3000) + b"abc" * 5000


def unpacked(kind: int, data: bytes, step: int = 1 << 20, finish: bool = True) -> bytes:
    unpacker = Unpacker(kind)
    out = b"".join(p for at in range(0, len(data), step) for p in unpacker.unpack(data[at : at + step]))
    if finish:
        unpacker.finish()
    return out


def until_damage(kind: int, data: bytes) -> tuple[bytes, str | None]:
    unpacker, out = Unpacker(kind), []
    try:
        out.extend(unpacker.unpack(data))
        unpacker.finish()
    except Damaged as error:
        return b"".join(out), str(error)
    return b"".join(out), None


@each_kind
def test_containers_are_told_by_their_first_bytes(kind):
    first = PACK[kind](TEXT)[:4]
    assert kind_of(first) == tell(int.from_bytes(first, "little")) == kind


@pytest.mark.parametrize("first", [b"\xd4\xc3\xb2\xa1", b"\n\r\r\n", b"", b"B", b"\0\0\0\0"])
def test_other_bytes_are_no_container(first):
    assert kind_of(first) == tell(int.from_bytes(first, "little")) == container.PLAIN


@each_kind
@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
def test_pieces_of_any_size_give_the_same_bytes(kind, step):
    assert unpacked(kind, PACK[kind](TEXT), step) == TEXT


@each_kind
def test_streams_one_behind_the_other_are_one_file(kind):
    data = PACK[kind](TEXT) + PACK[kind](b"") + PACK[kind](b"and more")
    assert unpacked(kind, data) == unpacked(kind, data, 5) == TEXT + b"and more"


@each_kind
def test_zeros_between_and_behind_streams_are_padding(kind):
    data = PACK[kind](TEXT) + bytes(512) + PACK[kind](b"more") + bytes(8)
    assert unpacked(kind, data, 1000) == TEXT + b"more"


@each_kind
def test_a_stream_cut_short_gives_what_is_there_and_says_so(kind):
    data = PACK[kind](b"some bytes " * 20)
    for end in range(len(data)):
        out, damage = until_damage(kind, data[:end])
        assert (b"some bytes " * 20).startswith(out)
        assert damage and "too early" in damage, end


@each_kind
def test_most_of_what_came_before_damage_is_kept(kind):
    good = PACK[kind](TEXT)
    begin = PACK[kind](b"")[:3]
    out, damage = until_damage(kind, good + begin + b"\xff" * 2000)
    assert out == TEXT
    assert damage and container.NAMES[kind] in damage


@each_kind
def test_rubbish_behind_a_stream_is_told_and_the_stream_is_good(kind):
    out, damage = until_damage(kind, PACK[kind](TEXT) + b"rubbish")
    assert out == TEXT
    assert damage and "is not another one" in damage


@each_kind
def test_any_changed_byte_ends_in_bytes_or_in_a_word(kind):
    data = bytearray(PACK[kind](TEXT[:400]))
    for place in range(len(data)):
        changed = data.copy()
        changed[place] ^= 0xA5
        until_damage(kind, bytes(changed))


@each_kind
def test_a_bomb_comes_in_small_pieces_and_takes_no_memory(kind):
    size = 64 << 20
    bomb = PACK[kind](bytes(size))
    tracemalloc.start()
    total = 0
    for piece in Unpacker(kind).unpack(bomb):
        assert len(piece) <= 33 << 20
        total += len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == size
    assert peak < 100 << 20


def test_a_frame_that_zstd_passes_over_is_passed_over():
    skippable = b"\x5a\x2a\x4d\x18\x05\0\0\0hello"
    data = zstandard.compress(TEXT) + skippable + zstandard.compress(b"more")
    assert unpacked(ZSTD, data) == unpacked(ZSTD, data, 3) == TEXT + b"more"


def test_a_dictionary_of_gigabytes_is_refused():
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(b"x", filters=filters))
    at = data.index(b"\x21\x01") + 2  # LZMA2's identifier, the size of its properties, and they: the dictionary's size
    data[at] = 40
    out, damage = until_damage(XZ, bytes(data))
    assert out == b"" and damage


def test_pieces_are_about_as_large_as_is_said():
    pieces = list(Unpacker(GZIP).unpack(gzip.compress(bytes(10 * PIECE))))
    assert max(map(len, pieces)) <= 2 * PIECE
