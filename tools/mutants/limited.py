"""A pytest plugin that stops after some seconds, and writes which test failed or how many passed.

`MUTANT_SECONDS` are the seconds of tests, from the first one; `MUTANT_RESULT` is the file that it writes.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

_seconds = float(os.environ["MUTANT_SECONDS"])
_result = Path(os.environ["MUTANT_RESULT"])
_begin = 0.0
_passed = 0


def pytest_collection_finish() -> None:
    """The first test comes next."""
    global _begin
    _begin = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Run no more tests after the time."""
    if time.monotonic() > _begin + _seconds:
        pytest.skip("the time is over")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that can't be imported is a failure."""
    _note(report)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended."""
    global _passed
    _passed += report.passed and report.when == "call"
    _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    failed = report.nodeid if report.failed else ""
    if failed or not _result.exists() or not json.loads(_result.read_text())["failed"]:
        _result.write_text(json.dumps({"failed": failed, "passed": _passed}))
