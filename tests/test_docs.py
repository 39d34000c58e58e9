"""The programs in the README and the documents: each document's Python blocks, one after the other, are one script."""

import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed import core
from wirespeed.cli.layouts import form
from wirespeed.jit.layout import Layout

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "src" / "wirespeed" / "data" / "demo.pcap"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LAYOUT = re.compile(r"^\| (\w+), (\d+) bytes \|.*\n\|[-:|]+\|\n((?:\|.*\n)+)", re.M)
FIELD = re.compile(r"^\| (\d+) \| `(\w+)` (\S+) \|", re.M)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.M | re.S)


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d, "python")], ids=lambda path: path.name)
def test_the_python_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    shutil.copy(DEMO, tmp_path / "in.pcap")
    script = tmp_path / f"{document.stem.lower().replace('-', '_')}.py"
    script.write_text("\n".join(blocks(document, "python")))
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_links_to_is_there(document: Path) -> None:
    missing = [target for target in LINK.findall(document.read_text()) if not (document.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_file_that_a_document_names_is_there(document: Path) -> None:
    named = re.findall(r"`((?:src|tests|bench|examples|docs|tools)/[\w./-]+)`", document.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_order_pair_is_in_the_document_about_memory() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src" / "wirespeed").rglob("*.py"))
    labels = set(re.findall(r"#.*\b([A-Z]\d)\b", sources)) & set(re.findall(r"\b([A-Z]\d), the ", sources))
    told = set(re.findall(r"\b[A-Z]\d\b", (ROOT / "docs" / "memory.md").read_text()))
    assert labels and labels - told == set()


def test_every_layout_of_core_is_in_the_document_about_memory_with_its_offsets() -> None:
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(core.__path__, f"{core.__name__}.")]
    layouts = {one.name: one for module in modules for one in vars(module).values() if isinstance(one, Layout)}
    written = {
        name: (int(size), sorted((int(at), field, kind) for at, field, kind in FIELD.findall(rows)))
        for name, size, rows in LAYOUT.findall((ROOT / "docs" / "memory.md").read_text())
    }
    declared = {
        name: (one.size, sorted((field.offset, field.name, form(field)) for field in one.fields.values()))
        for name, one in layouts.items()
    }
    assert written == declared


def test_every_example_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [e.name for e in (ROOT / "examples").glob("*.py") if f"(examples/{e.name})" not in readme] == []
