"""What somebody who watches no table is told of a long compilation: one sentence, and nothing of a short one."""

import pytest

from wirespeed.cli import session


def test_a_short_compilation_is_not_told_and_a_long_one_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = session.LongCompilation()
    for name in ("first", "second"):
        told(name)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(session, "LONG_S", -1.0)
    for name in ("third", "fourth"):
        told(name)
    assert capfd.readouterr().err.count("later runs take it from the cache") == 1
