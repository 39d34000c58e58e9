"""The kernel cache, in a copy of the package that is edited between processes: what is stale is made anew, no more."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wirespeed

PACKAGE = Path(wirespeed.__file__).parent

ANSWER = """
from wirespeed.jit.kernel import kernel
from wirespeed.core.constant import ADDED

@kernel(inline=True)
def answer():
    return 40 + ADDED
"""
ASKER = """
from wirespeed.core.answer import answer
from wirespeed.jit.kernel import kernel

@kernel
def ask():
    return answer()
"""
RUN = """
import sys
sys.path.insert(0, {user!r})
import wirespeed.ports.asker
from wirespeed.jit.kernel import compiled
from mine import mine
assert wirespeed.__file__.startswith({root!r}), wirespeed.__file__
print(wirespeed.ports.asker.ask(), mine(), *sorted(c.name for c in compiled()))
"""
MINE = """
from wirespeed.core.answer import answer
from wirespeed.jit.kernel import kernel

@kernel
def mine():
    return answer() * 2
"""


class Copy:
    """A copy of the package in which a kernel asks another one, in another file, for the answer."""

    def __init__(self, root):
        self.root = root
        self.package = root / "wirespeed"
        for name in ("jit", "core"):
            shutil.copytree(PACKAGE / name, self.package / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("__init__.py", "errors.py"):
            shutil.copy(PACKAGE / name, self.package / name)
        for name in ("ports", "switch"):
            (self.package / name).mkdir()
        (root / "user").mkdir()
        self.write("wirespeed/ports/__init__.py", "")
        self.write("wirespeed/switch/__init__.py", "")
        self.write("wirespeed/switch/other.py", "X = 1\n")
        self.write("wirespeed/core/constant.py", "ADDED = 1\n")
        self.write("wirespeed/core/answer.py", ANSWER)
        self.write("wirespeed/ports/asker.py", ASKER)
        self.write("user/mine.py", MINE)

    def write(self, name, text):
        (self.root / name).write_text(text)

    def replace(self, name, old, new):
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def python(self, code, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WIRESPEED_", "NUMBA_"))}
        kept |= {"PYTHONPATH": str(self.root), "WIRESPEED_CACHE": str(self.root / "cache")} | environment
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=kept, cwd=self.root)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, **environment):
        """What a process says: the answer, the answer to the user's kernel, the names of what it compiled."""
        code = RUN.format(user=str(self.root / "user"), root=str(self.root))
        answer, mine, *compiled = self.python(code, **environment).split()
        return int(answer), int(mine), set(compiled)


ALL = {"core.answer.answer", "ports.asker.ask", "mine.mine"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    made = Copy(tmp_path_factory.mktemp("copy"))
    assert made.run() == (41, 82, ALL)
    return made


def test_a_second_process_compiles_nothing(copy):
    assert copy.run() == (41, 82, set())


def test_an_edit_elsewhere_leaves_the_cache_warm(copy):
    copy.write("wirespeed/switch/other.py", "X = 2\n")
    copy.replace("wirespeed/core/ring.py", "SPINS = 128", "SPINS = 129")
    assert copy.run() == (41, 82, set())


def test_a_file_that_is_only_touched_leaves_the_cache_warm(copy):
    (copy.root / "wirespeed/core/answer.py").touch()
    (copy.root / "user/mine.py").touch()
    assert copy.run() == (41, 82, set())


def test_an_edited_callee_in_another_file_is_noticed(copy):
    copy.replace("wirespeed/core/answer.py", "40 + ADDED", "50 + ADDED")
    assert copy.run() == (51, 102, ALL)
    assert copy.run() == (51, 102, set())


def test_an_edited_constant_two_files_away_is_noticed(copy):
    copy.replace("wirespeed/core/constant.py", "1", "2")
    answer, mine, compiled = copy.run()
    assert (answer, mine, compiled) == (52, 104, ALL)
    copy.replace("wirespeed/core/constant.py", "2", "1")
    assert copy.run()[:2] == (51, 102)


def test_an_edited_file_of_the_user_is_noticed_and_leaves_the_package_warm(copy):
    copy.replace("user/mine.py", "* 2", "* 3")
    assert copy.run() == (51, 153, {"mine.mine"})


def test_a_mode_that_changes_code_has_a_cache_of_its_own(copy):
    answers = copy.run()[:2]
    for name, value in (("WIRESPEED_DEBUG", "1"), ("WIRESPEED_PORTABLE", "1"), ("NUMBA_OPT", "2")):
        assert copy.run(**{name: value}) == (*answers, ALL), name
    assert copy.run(WIRESPEED_DEBUG="1") == (*answers, set())
    assert copy.run() == (*answers, set())


def test_a_cache_that_cannot_be_written_is_replaced_by_one_that_can(copy):
    blocked = copy.root / "file"
    blocked.write_text("in the way")
    answers = copy.run()[:2]
    temporary = copy.root / "tmp"
    temporary.mkdir(exist_ok=True)
    elsewhere = {"WIRESPEED_CACHE": str(blocked / "cache"), "TMPDIR": str(temporary)}
    assert copy.run(**elsewhere) == (*answers, ALL)
    assert copy.run(**elsewhere) == (*answers, set())
    (folder,) = temporary.glob("wirespeed-*")
    assert folder.stat().st_mode & 0o777 == 0o700, "compiled code of others is not taken"


FORMS = {
    "plain": "import wirespeed.core.answer",
    "named": "import wirespeed.core.answer as a",
    "from": "from wirespeed.core.answer import answer",
    "module": "from wirespeed.core import answer",
    "renamed": "from wirespeed.core import answer as a",
    "several": "from wirespeed.core import (\n    ring,  # a comment, with a comma\n    answer,\n)",
    "inside": "def f():\n    from wirespeed.core.answer import answer",
    "far": "from wirespeed.ports.asker import ask",
}
STAMPS = """
from pathlib import Path
from wirespeed.jit.cache import stamp
for name in {names}:
    print(stamp(Path({root!r}) / f"form_{{name}}.py"))
"""


def test_every_form_of_import_is_followed(copy):
    for name, text in FORMS.items():
        copy.write(f"form_{name}.py", text + "\n")
    copy.write("form_none.py", "import os\n")
    code = STAMPS.format(names=[*FORMS, "none"], root=str(copy.root))
    before = copy.python(code).split()
    copy.replace("wirespeed/core/answer.py", "def answer", "\ndef answer")
    after = copy.python(code).split()
    unchanged = [name for name, a, b in zip([*FORMS, "none"], before, after, strict=True) if a == b]
    assert unchanged == ["none"]
