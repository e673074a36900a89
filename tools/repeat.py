"""pytest, with failed tests repeated alone: `python -m tools.repeat` and the arguments of pytest; `make PYTEST=tools.repeat test`.

A test that passes in a process of its own is flaky: it is named with the reason of its first failure, and the exit code is 0 if
all failed tests pass so. Nothing is repeated after a breakdown of pytest or of its collection, or if more tests failed than a run
of `.ci/run` tolerates.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tools.ci import FLAKY, MOST_FLAKY

#: The characters of a reason that are shown.
REASON_LENGTH = 300


class Outcomes:
    """A plugin that notes why tests failed, whether any passed, and whether a file could not be collected."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.passed = False
        self.uncollected = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first failure of a test."""
        self.passed |= report.when == "call" and report.passed
        if report.failed:
            self.reasons.setdefault(report.nodeid, _reason(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that a file can't be imported."""
        self.uncollected |= report.failed


def _reason(report: pytest.TestReport) -> str:
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    line = next((line for line in text.splitlines() if line.strip()), "no reason was given").strip()
    return f"{line[:REASON_LENGTH]}{'' if report.when == 'call' else f' ({report.when})'}"


def run(arguments: Sequence[str]) -> int:
    """Run pytest, and what failed again. Returns the exit code."""
    outcomes = Outcomes()
    code = int(pytest.main([*arguments], plugins=[outcomes]))
    failures = outcomes.reasons
    if code == pytest.ExitCode.OK:
        return code
    if code != pytest.ExitCode.TESTS_FAILED or outcomes.uncollected or not failures:
        print(f"\npytest ended with {code}: not all tests ran, and nothing is repeated", flush=True)
        return code
    if len(failures) > MOST_FLAKY:
        print(f"\n{len(failures)} tests failed: more than {MOST_FLAKY} are not repeated", flush=True)
        return code
    passed = [test for test in failures if _passes_alone(test)]
    for test in passed:
        print(f"{FLAKY}{test}: {failures[test]}", flush=True)
    return int(pytest.ExitCode.OK if len(passed) == len(failures) else code)


def _passes_alone(test: str) -> bool:
    print(f"\nrepeated alone: {test}", flush=True)
    return subprocess.run([sys.executable, "-m", "tools.repeat", "--alone", test], check=False).returncode == 0


def run_alone(test: str) -> int:
    """Run one test. Returns 1 if it is only skipped, too."""
    outcomes = Outcomes()
    code = int(pytest.main(["-q", "-rs", test], plugins=[outcomes]))
    return code or int(not outcomes.passed)


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(run_alone(words[1]) if words[:1] == ["--alone"] else run(words))
