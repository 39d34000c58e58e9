"""``wirespeed layouts``: every layout that a module declares, with its places as NumPy sees them."""

import json
from pathlib import Path

import pytest

from wirespeed.cli import main
from wirespeed.cli.layouts import describe, import_everything
from wirespeed.jit.layout import layout, layouts

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_module_is_imported_but_those_of_the_command_line() -> None:
    names = {module.__name__ for module in import_everything()}
    sources = (ROOT / "src" / "wirespeed").rglob("*.py")
    paths = {".".join(p.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__") for p in sources}
    assert {name for name in paths - names if not name.startswith("wirespeed.cli")} == {
        "wirespeed",
        "wirespeed.__main__",
    }


def test_json_has_each_field_where_numpy_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layouts", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    declared = layouts()
    assert [one["name"] for one in listed][: len(listed)] == [one.name for one in declared if one.name in names(listed)]
    for shown, one in zip(listed, [one for one in declared if one.name in names(listed)], strict=True):
        assert shown["size"] == one.dtype.itemsize
        for field in shown["fields"]:
            if "bits" not in field:
                kind, offset = one.dtype.fields[field["name"]][:2]
                assert (field["offset"], field["size"]) == (offset, kind.itemsize)


def names(listed: list[dict[str, object]]) -> set[object]:
    return {one["name"] for one in listed}


def test_one_layout_is_shown_as_it_lies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layouts", "IPv4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "IPv4  20 bytes"
    assert lines[1].split() == ["0", "version", "u1", "bits", "4-7"]
    assert "      8  ttl      u1" in lines
    assert "     12  src      >u4" in lines


def test_formats_read_as_in_the_declaration() -> None:
    inner = layout("TestInner", [("x", "u8")])
    fields = [("a", "i2"), ("b", ">u6"), ("c", ">u2", 3), ("d", inner), ({"e": 3, "f": 13}, ">u2")]
    shown = describe(layout("TestOuter", fields))
    assert [f["format"] for f in shown["fields"]] == ["i2", ">u6", ">u2[3]", "TestInner", ">u2", ">u2"]
    assert [f["size"] for f in shown["fields"]] == [2, 6, 6, 8, 2, 2]
    assert [(f["bits"], f["bit"]) for f in shown["fields"][-2:]] == [(3, 13), (13, 0)]
