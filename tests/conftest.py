"""What all tests share: the public captures, hypothesis's profiles, and the list of skips that are allowed."""

import fnmatch
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.core.interleave import StateCounts

ROOT = Path(__file__).resolve().parent.parent
ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")
TORTURE = os.environ.get("WIRESPEED_TORTURE", "0") not in ("", "0")

# A draw may compile a kernel, so no deadline and no health check of speed. "ci" draws the same examples each time.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("torture", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=SLOW)
settings.load_profile("torture" if TORTURE else "ci")


def captures_directory() -> Path | None:
    """Return the directory of public captures, or None where there is none; WIRESPEED_CAPTURES names another."""
    named = os.environ.get("WIRESPEED_CAPTURES")
    if named:
        if not Path(named).is_dir():
            raise pytest.UsageError(f"WIRESPEED_CAPTURES must name a directory, got {named!r}")
        return Path(named)
    beside = ROOT.parent / "shared" / "pcaps"
    return beside if beside.is_dir() else None


@pytest.fixture(scope="session")
def captures() -> Path:
    """The directory of public captures; the test skips where it is absent."""
    directory = captures_directory()
    if directory is None:
        pytest.skip("captures absent: no ../shared/pcaps beside the checkout, and WIRESPEED_CAPTURES is not set")
    return directory


class SkipList:
    """Compares each skip with the list of allowed ones and fails the run over any other.

    It works on reports in the process that prints the summary, so it sees the skips of every xdist worker. A skip
    outside the list is shown and counted as a failure.
    """

    def __init__(self, path: Path) -> None:
        self.allowed: list[tuple[str, re.Pattern[str]]] = []
        self.seen: dict[tuple[str, str], bool] = {}  # (test id, reason) -> is it allowed?
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                pattern, reason = line.split(maxsplit=1)
                self.allowed.append((pattern, re.compile(reason)))
            except (ValueError, re.error) as error:
                wanted = "a test-id pattern and a regular expression"
                raise pytest.UsageError(f"{path.name}:{number}: wanted {wanted}, got {line!r} ({error})") from None

    def allows(self, test: str, reason: str) -> bool:
        return any(fnmatch.fnmatchcase(test, pattern) and regex.search(reason) for pattern, regex in self.allowed)

    def refuses(self, report: pytest.TestReport | pytest.CollectReport) -> bool:
        """Say whether ``report`` is a skip that is not allowed, and remember it if it is a skip."""
        if not report.skipped or hasattr(report, "wasxfail"):
            return False
        where = report.longrepr
        reason = where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else str(where)
        allowed = self.allows(report.nodeid, reason)
        self.seen[report.nodeid, reason] = allowed
        return not allowed

    def refused(self) -> list[tuple[str, str]]:
        return [skip for skip, allowed in self.seen.items() if not allowed]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.refuses(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
        # A module that skips as a whole has only a collect report, which pytest counts by itself and as skipped.
        if isinstance(report, pytest.TestReport) and self.refuses(report):
            return "failed", "F", "SKIP NOT ALLOWED"
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.refused() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        refused = self.refused()
        terminalreporter.section("skips")
        terminalreporter.line(f"{len(self.seen) - len(refused)} allowed, {len(refused)} not allowed")
        for reason, count in Counter(reason for (_, reason), allowed in self.seen.items() if allowed).most_common():
            terminalreporter.line(f"{count:6} allowed: {reason}")
        for test, reason in refused:
            terminalreporter.line(f"   not in {ALLOWED_SKIPS.name}: {test}: {reason}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # Under nohup, children would ignore it too; of a handler they have the default.
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    config.pluginmanager.register(StateCounts(), "wirespeed-states")
    if not hasattr(config, "workerinput"):  # not in xdist's worker processes, which print nothing
        config.pluginmanager.register(SkipList(ALLOWED_SKIPS), "wirespeed-skips")
