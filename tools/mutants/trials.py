"""Runs tests in forked processes: once to learn which test reaches which line, then for each mutant those that reach it.

A forked process has imported pytest and other packages already, but nothing of ours. It sees a copy of the source. A mutant
inside a function is tried first in a fork of a process that has imported everything and collected the tests, where the code
of the function is replaced. It takes a tenth of the time. What ran at import ran without the mutant, so if that is some of
it, it is tried afresh, too.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import pytest

from tools.mutants.mutations import Mutant
from tools.mutants.swapping import changed_functions, functions_of, swap

#: What takes long to import.
_IMPORTED_FIRST = (
    *("asyncio", "coverage", "ssl", "xml.sax", "cryptography.x509", "httptools", "jsonschema_rs", "msgspec", "uvloop"),
    *("anyio.abc", "anyio._backends._asyncio", "hypothesis.strategies", "mcp_types.methods", "pytest_asyncio.plugin"),
    "starlette.routing",
)
#: The tests of one mutant take about so much CPU time without the mutant, so that a busy machine chooses the same ones.
TEST_SECONDS = 20.0
#: With the mutant they may take three times as long as without it, and so much longer: CPU time, and time that passes. One
#: test may take three times as long, and a third of this longer.
EXTRA_SECONDS = 15.0
#: A test that fails after more than twice its time without the mutant, and so much longer, may itself be late.
SUSPICIOUS_SECONDS = 1.0
#: So often a mutant is tried while its tests are late or fail without it, too.
_TRIES = 3
#: A mutant that never stops allocating must not harm the machine.
_MEMORY = 4 << 30
_POLL_SECONDS = 0.01
_WITHOUT_LIMITS = ("--timeout=0", "-o", "faulthandler_timeout=0")
#: What runs without a mutant ends by itself.
_WHOLE_SECONDS = 1800.0


class Undecided(Exception):
    """The machine is too busy to tell whether tests notice a mutant."""


class Ended(NamedTuple):
    """How a process ended: its exit code, None if it was late, and the seconds that passed."""

    code: int | None
    seconds: float


class Trial(NamedTuple):
    """Tests to run, in seconds the time that may pass and the CPU time that may be used, and perhaps a mutant."""

    names: Sequence[str]
    seconds: float
    cpu_seconds: int
    #: The seconds that a test may take, if they are limited.
    limits: Mapping[str, float]
    #: The text of the file without and with the mutant.
    original: str = ""
    mutated: str = ""


_Run: TypeAlias = Callable[[Trial], Ended]


class Baseline:
    """What the tests of a file do without a mutant: how long each takes, and which of them reach a line.

    Args:
        seconds: The CPU time of each test and of the processes that it ran.
        waited: The time that passed during each test.
        lines: The names of the tests that reach a line.
    """

    def __init__(self, seconds: dict[str, float], waited: dict[str, float], lines: dict[int, list[str]]) -> None:
        self.seconds = seconds
        self.waited = waited
        self.lines = lines

    def tests(self, mutant: Mutant, *, reached_or_not: bool = False) -> list[str]:
        """The tests that can notice a mutant, fastest first; all, if it runs when a module or test file is imported.

        With `reached_or_not` all follow those that reach it.
        """
        reached = self._reached(mutant)
        names = (reached | set(self.seconds) if reached_or_not or "" in reached else reached) & set(self.seconds)
        chosen: list[str] = []
        total = 0.0
        for name in sorted(names, key=lambda name: (name not in reached, self.seconds[name], name)):
            total += self.seconds[name]
            if total <= TEST_SECONDS or not chosen:
                chosen.append(name)
        return chosen

    def runs_at_import(self, mutant: Mutant) -> bool:
        """Whether a mutant runs when a module or test file is imported."""
        return "" in self._reached(mutant)

    def _reached(self, mutant: Mutant) -> set[str]:
        first, last = mutant.lines
        return {name for line in range(first, last + 1) for name in self.lines.get(line, ())}

    def save(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text(json.dumps([self.seconds, self.waited, self.lines]), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Read it from a file."""
        seconds, waited, lines = json.loads(path.read_text(encoding="utf-8"))
        return cls(seconds, waited, {int(line): names for line, names in lines.items()})


class Laboratory:
    """A copy of the source of a project, in which tests run with a mutant in place of a file."""

    def __init__(self, root: Path, copied: Path, *, extra_seconds: float = EXTRA_SECONDS) -> None:
        self.root = root
        self.copied = copied
        self.extra_seconds = extra_seconds
        self._time = int(time.time()) - 1_000_000
        self._collected: _Collected | None = None
        for name in _IMPORTED_FIRST:
            importlib.import_module(name)
        gc.freeze()  # pytest collects garbage often; what is imported already is none

    def measure(self, file: str, tests: Sequence[str]) -> Baseline | None:
        """Run tests without a mutant; None if one of them fails.

        A test is a path, perhaps with a word that must be in the names of its tests: `tests/wire/test_scenarios.py memory`.
        """
        path = self.copied.parent / "baseline"
        if _in_child(lambda: self._measure(file, tests, path), _WHOLE_SECONDS).code != 0:
            return None
        return Baseline.load(path)

    def notices(self, file: str, mutant: Mutant, tests: Sequence[str], baseline: Baseline) -> bool:
        """Whether one of the tests fails with a mutant, or doesn't end.

        A mutant that computes without end exceeds a limit of CPU time. One that waits without end makes a test late, or all
        of them; how long they wait depends on what else the machine does, so they run without the mutant, too, to tell what
        late is now.

        Raises:
            Undecided: The tests are late or fail without the mutant, too.
        """
        original = (self.root / file).read_text(encoding="utf-8")
        afresh = partial(self._notices, file, original, mutant, tests, baseline, self._run_afresh)
        if not changed_functions(original, mutant.text, self._target(file)):
            return afresh()
        collected = self._collect(file, baseline)
        if self._notices(file, original, mutant, tests, baseline, collected.run):
            return True
        return baseline.runs_at_import(mutant) and afresh()

    def _notices(
        self, file: str, original: str, mutant: Mutant, tests: Sequence[str], baseline: Baseline, run: _Run
    ) -> bool:
        failure = self.copied.parent / "failure"
        patience = 3 * sum(baseline.waited[name] for name in tests) + self.extra_seconds
        cpu_seconds = math.ceil(3 * sum(baseline.seconds[name] for name in tests) + self.extra_seconds)
        limits = {name: 3 * baseline.waited[name] + self.extra_seconds / 3 for name in tests}
        for _ in range(_TRIES):
            failure.unlink(missing_ok=True)
            self._write(file, mutant.text)
            try:
                trial = run(Trial(tests, patience, cpu_seconds, limits, original, mutant.text))
            finally:
                self._write(file, original)
            if trial.code == 0:
                return False
            if trial.code is None:
                control = run(Trial(tests, _WHOLE_SECONDS, cpu_seconds, {}))
                if control.code == 0 and 3 * control.seconds <= patience:
                    return True
                patience = max(patience, 3 * control.seconds + self.extra_seconds)
            elif not failure.exists():  # the mutant can't be imported, or ended the process
                return True
            else:
                name, seconds = json.loads(failure.read_text(encoding="utf-8"))
                if seconds < 2 * baseline.waited[name] + SUSPICIOUS_SECONDS:
                    return True
                limit = limits[name] / 3 if seconds >= limits[name] else _WHOLE_SECONDS
                if run(Trial([name], _WHOLE_SECONDS, cpu_seconds, {name: limit})).code == 0:
                    return True
                limits = {name: 4 * seconds for name, seconds in limits.items()}
        raise Undecided

    def _run_afresh(self, trial: Trial) -> Ended:
        plugin = _Chosen(self.copied.parent / "failure")
        plugin.choose(trial)
        return _in_child(lambda: self._run(trial.names, plugin, *_WITHOUT_LIMITS), trial.seconds, trial.cpu_seconds)

    def _collect(self, file: str, baseline: Baseline) -> _Collected:
        """The process that has collected the tests of a file."""
        if self._collected is None or self._collected.file != file:
            self.close()
            plugin = _Chosen(self.copied.parent / "failure", self._target(file))
            work = partial(self._run, baseline.seconds, plugin, *_WITHOUT_LIMITS)
            self._collected = _Collected(file, plugin, work)
        return self._collected

    def close(self) -> None:
        """End the process that has collected tests."""
        if self._collected is not None:
            self._collected.close()
            self._collected = None

    def _target(self, file: str) -> str:
        return str(self.copied / Path(file).relative_to("src"))

    def _write(self, file: str, text: str) -> None:
        """Write a file of the copy, with a time of its own: Python compares times in seconds to see if bytecode is current."""
        target = self.copied / Path(file).relative_to("src")
        target.write_text(text, encoding="utf-8")
        self._time += 1
        os.utime(target, (self._time, self._time))

    def _measure(self, file: str, tests: Sequence[str], path: Path) -> int:
        from coverage import Coverage

        target = self._target(file)
        coverage = Coverage(data_file=None, include=[target], config_file=False)
        timing = _Timing(tests, coverage.switch_context)
        coverage.start()
        code = self._run(tests, timing, *_WITHOUT_LIMITS)
        coverage.stop()
        lines = coverage.get_data().contexts_by_lineno(target)
        Baseline(timing.seconds, timing.waited, lines).save(path)
        return code

    def _run(self, tests: Iterable[str], plugin: object, *options: str) -> int:
        sys.path.insert(0, str(self.copied))
        os.chdir(self.root)
        scratch = self.copied.parent
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(scratch / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {
            "PYTHONPATH": str(self.copied),
            "PYTHONPYCACHEPREFIX": sys.pycache_prefix,
            "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "examples"),
        }
        files = dict.fromkeys(name.partition(" ")[0].partition("::")[0] for name in tests)
        fixed = ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist"]
        return pytest.main([*fixed, *options, f"--basetemp={scratch / 'tests'}", *files], plugins=[plugin])


class _Chosen:
    """Runs some tests only, in this order, and writes to a file which one failed, or was late, after how many seconds.

    With `target`, the file that mutants are of, the process forks for each trial that it is asked for once the tests are
    collected; see `_Collected`.
    """

    def __init__(self, failure: Path, target: str = "") -> None:
        self._places: dict[str, int] = {}
        self._limits: Mapping[str, float] = {}
        self._failure = failure
        self._target = target
        self._start = 0.0
        #: The ends of this process: where trials are asked for, and where it says how they ended.
        self.trials, self.ends = -1, -1

    def choose(self, trial: Trial) -> None:
        """The tests to run."""
        self._places = {name: place for place, name in enumerate(trial.names)}
        self._limits = trial.limits

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self._target:
            self._keep_chosen(items)

    def _keep_chosen(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places), key=lambda item: self._places[item.nodeid]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        if self._target:
            self._fork_for_trials(functions_of(self._target))
            self._keep_chosen(session.items)
        return (yield)

    def _fork_for_trials(self, functions: list[FunctionType]) -> None:
        """Returns in each forked process."""
        with open(self.trials) as trials, open(self.ends, "w", buffering=1) as ends:
            ends.write("ready\n")
            for line in trials:
                trial = Trial(*json.loads(line))
                child = _fork(trial.cpu_seconds)
                if not child:
                    self.choose(trial)
                    swap(functions, changed_functions(trial.original, trial.mutated, self._target))
                    return
                ends.write(f"{json.dumps(_wait(child, trial.seconds))}\n")
        os._exit(0)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._start = time.monotonic()
        signal.signal(signal.SIGALRM, lambda number, frame: self._give_up(nodeid))
        signal.setitimer(signal.ITIMER_REAL, self._limits.get(nodeid, 0))

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _give_up(self, late: str) -> NoReturn:
        self._fail(late)
        os._exit(1)

    def _fail(self, name: str) -> None:
        self._failure.write_text(json.dumps([name, time.monotonic() - self._start]), encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._fail(report.nodeid)


class _Collected:
    """A process that has imported everything, collected the tests of a file, and forks for each trial."""

    def __init__(self, file: str, plugin: _Chosen, work: Callable[[], int]) -> None:
        self.file = file
        plugin.trials, trials = os.pipe()
        ends, plugin.ends = os.pipe()
        self._child = _fork()
        if not self._child:
            os.close(trials)
            os.close(ends)
            _end_with(work)
        os.close(plugin.trials)
        os.close(plugin.ends)
        self._trials, self._ends = open(trials, "w", buffering=1), open(ends)  # noqa: SIM115 - see close
        self._ends.readline()  # the file is imported before a mutant is written in its place

    def run(self, trial: Trial) -> Ended:
        """Run a trial."""
        self._trials.write(f"{json.dumps(trial)}\n")
        return Ended(*json.loads(self._ends.readline()))

    def close(self) -> None:
        """End the process."""
        self._trials.close()
        self._ends.close()
        os.waitpid(self._child, 0)


class _Timing:
    """Measures each test, and tells its name to the measurement of coverage."""

    def __init__(self, tests: Sequence[str], switch: Callable[[str], object]) -> None:
        self.seconds: dict[str, float] = {}
        self.waited: dict[str, float] = {}
        self._tests = [test.partition(" ") for test in tests]
        self._switch = switch

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item
            for item in items
            if any(item.nodeid.startswith(path) and word in item.nodeid for path, _, word in self._tests)
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._switch(item.nodeid)
        start = os.times()
        try:
            return (yield)
        finally:
            end = os.times()
            self.seconds[item.nodeid] = round(sum(end[:4]) - sum(start[:4]), 4)  # without `elapsed`
            self.waited[item.nodeid] = round(end.elapsed - start.elapsed, 4)
            self._switch("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.seconds.pop(report.nodeid, None)


def _in_child(work: Callable[[], int], seconds: float, cpu_seconds: int | None = None) -> Ended:
    """Run a function in a forked process, which ends with all that it started when its time is over.

    Args:
        work: Returns the exit code.
        seconds: The time that may pass.
        cpu_seconds: The CPU time that the process, and each that it starts, may take.
    """
    child = _fork(cpu_seconds)
    if not child:
        _end_with(work)
    return _wait(child, seconds)


def _fork(cpu_seconds: int | None = None) -> int:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        if cpu_seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        output = os.open(os.environ.get("MUTANTS_LOG", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
    return child


def _end_with(work: Callable[[], int]) -> NoReturn:
    code = 70
    try:
        code = int(work())
    finally:
        os._exit(code)


def _wait(child: int, seconds: float) -> Ended:
    start, ended = time.monotonic(), None
    while ended is None and time.monotonic() < start + seconds:
        time.sleep(_POLL_SECONDS)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    os.killpg(child, signal.SIGKILL)  # the child is not reaped yet, so that the group is still this one
    _, status = os.waitpid(child, 0)
    return Ended(None if ended is None else os.waitstatus_to_exitcode(status), time.monotonic() - start)
