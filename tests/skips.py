"""Hold the tests that were skipped to a list, so that none is skipped for ever without a word.

`pytest --expected-skips=FILE` fails where a test is skipped for a reason that no line of the file
has. A line is `pattern: reason`, where the pattern is of a test's name (as of `fnmatch`), and the
reason begins as the test's own."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest


def read_expected(path):
    """[(pattern, beginning of the reason)] of a file; lines with # are comments."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    rows = [line.partition(": ") for line in lines if line.strip() and not line.startswith("#")]
    return [(pattern.strip(), reason.strip()) for pattern, _, reason in rows]


def unexpected(skipped, expected):
    """The skips that no line expects.

    Args:
        skipped: [(name of a test or file, reason)].
        expected: [(pattern, beginning of the reason)].
    """
    return [
        (name, reason)
        for name, reason in skipped
        if not any(
            fnmatch(name, pattern) and reason.startswith(begin) for pattern, begin in expected
        )
    ]


class Skips:
    """A plug-in of pytest, in the process that collects all results."""

    def __init__(self, paths):
        """Read the lists."""
        self.expected = [row for path in paths for row in read_expected(path)]
        self.found = []

    def pytest_runtest_logreport(self, report):
        """Look at the tests that were skipped, here or in a worker."""
        self._look(report)

    def pytest_collectreport(self, report):
        """Look at the files that were skipped as a whole."""
        self._look(report)

    def _look(self, report):
        # A test that is expected to fail is reported as skipped, too
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2].removeprefix("Skipped: ")
        self.found += unexpected([(report.nodeid, reason)], self.expected)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        """Fail the session if there was a skip that nobody expected."""
        if self.found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        """Print the skips that nobody expected."""
        if self.found:
            terminalreporter.section("skipped, and not on the list", sep="=", red=True)
            for name, reason in self.found:
                terminalreporter.line(f"unexpected skip: {name}: {reason}")
