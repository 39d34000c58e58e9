"""What somebody who watches no table is told of a long compilation: that it goes on, that it is over; nothing of a short one."""

import time

import pytest

from wirespeed.cli import session


def test_a_short_compilation_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    with session.Announcement() as told:
        for name in ("first", "second"):
            told.compiling(name)
        told()
    assert capfd.readouterr().err == ""


def test_a_long_one_is_told_once_and_that_it_is_over(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "LONG_S", 0.0)
    with session.Announcement() as told:
        told.compiling("first")
        shown = ""
        while "compiling" not in shown:
            shown += capfd.readouterr().err
            time.sleep(0.01)
        told.compiling("second")
        told()
        told()
        told.compiling("of a run that goes on")
    first, second = (shown + capfd.readouterr().err).splitlines()
    assert first == "wirespeed: compiling for this processor, once: later runs take it from the cache"
    assert second.startswith("wirespeed: running; ") and second.endswith(" kernels were compiled")


def test_who_wants_no_table_is_told_of_a_long_compilation_nevertheless() -> None:
    with session.shown(view=session.untold) as live:
        assert isinstance(live, session.Announcement)
