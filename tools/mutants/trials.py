"""Runs tests with a mutant in place of a file, in a copy of the source."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: Bytes that a process may allocate: some mutants never stop.
_MEMORY = 4 << 30
_times = itertools.count(1_000_000_000)


class Outcome(NamedTuple):
    """What tests said.

    Attributes:
        failed: The test that failed first, or why there is none though the mutant was noticed; "" if it was not.
        passed: How many tests passed.
    """

    failed: str
    passed: int


class Trials:
    """A copy of a project's source.

    Args:
        root: The project.
        scratch: An empty folder for the copy and what tests write.
        limit: Seconds after which no further test begins. The process gets three times as long, to import and to end what
            hangs.
    """

    def __init__(self, root: Path, scratch: Path, limit: float) -> None:
        self._root = root
        self._limit = limit
        self._scratch = scratch
        shutil.copytree(root / "src", scratch / "src")

    def run(self, tests: Sequence[str], file: str = "", text: str = "") -> Outcome:
        """Run tests until one fails.

        Args:
            tests: Files or names of tests, in the order in which they run.
            file: A file of the source that is replaced meanwhile.
            text: Its text.

        Returns:
            Which test failed, or how many passed.
        """
        if file:
            self._write(file, text)
        try:
            return self._run(tests)
        finally:
            if file:
                self._write(file, (self._root / file).read_text(encoding="utf-8"))

    def _write(self, file: str, text: str) -> None:
        """Write a file with a time of its own: bytecode is current if its source is of the same second and size."""
        path = self._scratch / file
        path.write_text(text, encoding="utf-8")
        now = next(_times)
        os.utime(path, (now, now))

    def _run(self, tests: Sequence[str]) -> Outcome:
        result = self._scratch / "result"
        result.unlink(missing_ok=True)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-m", "not long"]
        command = [sys.executable, "-m", "pytest", "-p", "tools.mutants.limited", *options]
        command += [f"--basetemp={self._scratch / 'tests'}", *tests]
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": f"{self._scratch / 'src'}{os.pathsep}{Path(__file__).parents[2]}",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._scratch / "examples"),
            "MUTANT_SECONDS": str(self._limit),
            "MUTANT_RESULT": str(result),
        }
        with (self._scratch / "output").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self._root, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            try:
                process.wait(3 * self._limit)
            except subprocess.TimeoutExpired:
                return Outcome("the tests do not end", 0)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with what it has started
                process.wait()
        if not result.exists():
            return Outcome("pytest does not start", 0)
        return Outcome(**json.loads(result.read_text(encoding="utf-8")))
