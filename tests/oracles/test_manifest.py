"""Every public capture against the list that comes with them; it knows files that tshark refuses, too."""

import csv
from pathlib import Path

import pytest

from tests.oracles import corpus

FILES = corpus.files() or [""]


@pytest.fixture(scope="module")
def manifest(captures: Path) -> dict[str, dict[str, str]]:
    with (captures / "MANIFEST.tsv").open(newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}


def test_each_capture_of_the_list_is_among_those_that_are_tested(manifest: dict[str, dict[str, str]]) -> None:
    assert manifest.keys() <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_capture_has_as_many_packets_as_the_list_says(
    captures: Path, manifest: dict[str, dict[str, str]], name: str
) -> None:
    frames = list(corpus.frames(captures / name))
    if name in manifest:  # a few that are there for their Community IDs or filters are not in it
        said = manifest[name]
        assert len(frames) == int(said["packets"])
        assert max((frame.wire for frame in frames), default=0) == int(said["maxwire"])
        assert sum(frame.captured == 0 for frame in frames) == int(said["zero"])
        assert sum(frame.captured > frame.wire for frame in frames) == int(said["cap>len"])
    assert len(frames) > 0 or name in manifest
