"""All checks on one machine, in steps, within the time that there is: `.ci/run`. CONTRIBUTING.md describes it.

.ci/run                     the steps that always run, then those in rotation as far as the time goes
.ci/run hostile bare-path   these steps only
.ci/run --list              the steps, the seconds that each takes, and when each passed
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from tools import pythons

ROOT = Path(__file__).resolve().parents[1]
#: Minutes in which a run ends. No step begins that would take longer.
MINUTES = 40.0
#: Tests and cells of the interop matrix that may fail first and pass when they are repeated alone, in a whole run.
MOST_FLAKY = 5
#: How steps begin lines of their output that stand in the summary: what was flaky, and what could not be done.
FLAKY = "flaky: "
LEFT_OUT = "left out: "
#: Programs that steps and tests need, any one of each, by the Debian package that has them.
TOOLS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "haproxy": ("haproxy",),
    "nginx": ("nginx",),
    "npm": ("npm",),
    "redis-server": ("redis-server", "valkey-server"),
    "valgrind": ("valgrind",),
}
#: Seconds for the installation of one package, and for the rest of the output of a command that has ended.
INSTALL_SECONDS, REST_SECONDS = 300, 30


class Step(NamedTuple):
    """A command that must end with 0."""

    name: str
    #: `{}` stands for the variant.
    command: str
    #: Minutes after which it is stopped and has failed.
    limit: int
    #: Seconds that it takes on two quiet cores; a run before this one knows better.
    seconds: int
    #: What one run takes one of, in turn.
    variants: tuple[str, ...] = ("",)
    #: The tools without which it can't run.
    needs: tuple[str, ...] = ()
    #: Whether it runs however late it is.
    must: bool = False


def _test_folders() -> tuple[str, ...]:
    """The folders of tests that need neither a browser nor an agent framework, and the tests beside them."""
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    return ("tests --ignore-glob=tests/*/*", *(f"tests/{name}" for name in sorted(folders - {"adapters", "browser"})))


#: They run each time.
ALWAYS = (
    Step("test", "make test", 25, 360, must=True),
    Step("check", "make -k check", 12, 200, must=True),
    Step("test-long", "make test-long", 12, 180),
    Step("shape", "make shape", 3, 20),
    Step("demo", "make demo", 2, 5),
    Step("site", "make site", 4, 15),
    Step("packages", "make packages PACKAGES='wheel zip'", 5, 30),
    Step("release-check", "make release-check", 6, 60, needs=("npm",)),
    Step("newcomer", "make newcomer NEWCOMER=--short", 6, 60),
    Step("http-differential", "make http-differential", 4, 15),
    Step("fuzz", "make fuzz FUZZ_SECONDS=5 FUZZ_SEED=1", 6, 45),
    Step("conformance", "make conformance", 8, 80, needs=("npm",)),
    Step("interop-matrix", "make interop-matrix INTEROP=--short", 15, 200, needs=("npm",)),
    Step("interop-tests", "make interop-tests", 10, 120, needs=("npm",)),
    Step("interop-auth", "make interop-auth", 8, 90, needs=("chromium", "npm")),
    Step("browser", "make browser", 12, 150, needs=("chromium", "npm")),
    Step("bench-quick", "make bench-quick", 10, 160, needs=("valgrind",)),
    Step("coverage-ids", "make coverage-ids", 1, 5),
    Step("bare-path", "make bare-path DIR='{}'", 12, 80, _test_folders()),
)
_FRAMEWORKS = sorted(pythons.FRAMEWORKS)
_OTHER_EXTRAS = sorted(pythons.PROJECT["project"]["optional-dependencies"].keys() - pythons.FRAMEWORKS)


def rotation(versions: Iterable[str]) -> tuple[Step, ...]:
    """Steps of which each run takes those that were longest not run, as far as the time goes.

    Args:
        versions: The Pythons of this machine besides this one.
    """
    parts = tuple(pythons.PARTS)
    others = tuple(f"VERSIONS={version} PART={part}" for version in versions for part in parts)
    return (
        Step("hostile", "make hostile", 8, 90),
        Step("load", "make load soak", 8, 50),
        Step("mutants", "make mutants MUTANTS=30", 15, 240),
        *([Step("pythons", "make pythons {}", 15, 180, others)] if others else []),
        Step("lowest", "make lowest PART={}", 15, 180, parts),
        Step("cluster", "make cluster CLUSTER=--short", 8, 120, needs=("haproxy", "npm", "redis-server")),
        Step("hosts", "make hosts", 5, 60, needs=("npm",)),
        Step("newcomer-all", "make newcomer", 8, 180),
        Step("agent-clients", "make agent-clients", 15, 180, needs=("npm",)),
        Step(
            "agent-adapters",
            "make agent-adapters AGENTS={}",
            12,
            100,
            tuple(name.replace("-", "_") for name in _FRAMEWORKS),
        ),
        Step("extras", "make extras EXTRAS='{}'", 10, 120, (" ".join(_OTHER_EXTRAS), *_FRAMEWORKS)),
        Step("all-packages", "make packages PACKAGES={}", 8, 60, ("pipx", "sdist", "zipapp", "frozen", "written")),
    )


class Job(NamedTuple):
    """A step with one of its variants."""

    step: Step
    variant: str

    @property
    def name(self) -> str:
        """For people and for the record."""
        return f"{self.step.name} {self.variant}".strip()

    @property
    def command(self) -> list[str]:
        """The words of the command."""
        return shlex.split(self.step.command.format(self.variant))


def jobs_of(step: Step) -> list[Job]:
    """The step with each of its variants."""
    return [Job(step, variant) for variant in step.variants]


@dataclass
class Record:
    """What earlier runs did, by the names of jobs; in a file outside the checkout."""

    path: Path
    #: When a job ended well, in seconds since 1970, and how many seconds it took.
    passed: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    #: What the next run does first: it failed, or there was no time for it.
    first: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read the file; a record of nothing if there is none that can be read."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, dict(content["passed"]), dict(content["seconds"]), list(content["first"]))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, TypeError, LookupError) as error:
            print(f"ci: {path} can't be read, and is written anew: {error}", flush=True)
            return cls(path)

    def note(self, job: Job, seconds: float) -> None:
        """A job passed."""
        self.passed[job.name], self.seconds[job.name] = time.time(), seconds
        self.first = [name for name in self.first if name != job.name]
        self._write()

    def remember(self, name: str) -> None:
        """The next run shall begin with this job."""
        if name not in self.first:
            self.first.append(name)
        self._write()

    def expected(self, job: Job) -> float:
        """The seconds that a job will take."""
        return self.seconds.get(job.name, job.step.seconds)

    def _write(self) -> None:
        new = self.path.with_suffix(f".{os.getpid()}")
        content = {"passed": self.passed, "seconds": self.seconds, "first": self.first}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(content, indent=1), encoding="utf-8")
            new.replace(self.path)
        except OSError as error:
            print(f"ci: the next run can't know what this one did: {error}", flush=True)

    def next_of(self, jobs: Iterable[Job], steps: Sequence[Step], now: float) -> Job:
        """The job whose step was longest not run, and the variant of it that was longest not run.

        Where nothing is known the day and the hour decide, so that runs that know nothing of each other take different ones.
        """
        turn = sum(divmod(int(now // 3600), 24))
        last = {step: max(self.passed.get(job.name, 0.0) for job in jobs_of(step)) for step in steps}

        def order(job: Job) -> tuple[float, float, int, int]:
            step, variants = job.step, job.step.variants
            place = (steps.index(step) + turn) % len(steps)
            inner = (variants.index(job.variant) + turn // len(steps)) % len(variants)
            return last[step], self.passed.get(job.name, 0.0), place, inner

        return min(jobs, key=order)


def record_path() -> Path:
    """Where the record is kept: in the user's folder for caches."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "gemel-ci", "record.json")


class Run:
    """One run: what failed, what was flaky, what could not be done.

    Args:
        record: What earlier runs did.
        seconds: The time for all of it.
    """

    def __init__(self, record: Record, seconds: float) -> None:
        self._record = record
        self._seconds = seconds
        self._begin = time.monotonic()
        self._failed: list[str] = []
        #: Each with the reason: tests that passed when they were repeated, and what could not be done.
        self._flaky: list[str] = []
        self._left_out: list[str] = []
        self._missing: set[str] = set()
        self._taken: set[str] = set()
        self._late: list[Job] = []

    def need(self, tools: Iterable[str]) -> None:
        """Install the tools that are missing, and note those that are missing then."""
        _install([tool for tool in tools if not _is_here(tool)])
        self._missing.update(tool for tool in tools if not _is_here(tool))
        self._failed += [f"{tool} is missing" for tool in sorted(self._missing)]

    def do_all(self, always: Sequence[Step], in_turn: Sequence[Step], now: float) -> None:
        """Do what the last run left, then the steps that always run, then those in rotation."""
        jobs = {job.name: job for step in (*always, *in_turn) for job in jobs_of(step)}
        for name in self._record.first:
            if name in jobs:
                self.take(jobs[name])
        for step in always:
            self.take(self._record.next_of(jobs_of(step), always, now))
        waiting = [job for step in in_turn for job in jobs_of(step)]
        longest = self._record.next_of(waiting, in_turn, now)
        while waiting:
            job = self._record.next_of(waiting, in_turn, now)
            waiting.remove(job)
            self.take(job)
        for job in self._late:
            if job.step in always or job == longest:
                self._record.remember(job.name)

    def take(self, job: Job) -> None:
        """Do a job unless it was done, there is no time for it, or a tool is missing."""
        if job.name in self._taken:
            return
        self._taken.add(job.name)
        if missing := [tool for tool in job.step.needs if tool in self._missing]:
            self._left_out.append(f"{job.name}: {' and '.join(missing)} missing")
        elif not job.step.must and time.monotonic() - self._begin + self._record.expected(job) > self._seconds:
            self._late.append(job)
        else:
            self._do(job)

    def _do(self, job: Job) -> None:
        print(f"\n=== {job.name}: {shlex.join(job.command)}", flush=True)
        begin = time.monotonic()
        code = execute(job.command, job.step.limit * 60, self._hear)
        seconds = time.monotonic() - begin
        if code == 0:
            print(f"--- {job.name}: passed, {seconds:.0f} s", flush=True)
            self._record.note(job, seconds)
        else:
            reason = f"stopped after {job.step.limit} minutes" if code is None else f"exit code {code}"
            print(f"--- {job.name}: FAILED, {reason}, {seconds:.0f} s", flush=True)
            self._failed.append(f"{job.name} ({reason})")
            self._record.remember(job.name)

    def _hear(self, line: str) -> None:
        for prefix, found in ((FLAKY, self._flaky), (LEFT_OUT, self._left_out)):
            if line.startswith(prefix):
                found.append(line.removeprefix(prefix).strip())

    def leave_out(self, what: str) -> None:
        """Note what this machine can't do, for the summary."""
        self._left_out.append(what)

    def fail(self, reason: str) -> None:
        """Note a failure that is not one of a step."""
        self._failed.append(reason)

    def finish(self) -> int:
        """Print what was flaky, and in the last line how all of it went. Returns the exit code."""
        if self._flaky:
            print("\nflaky, failed at first and passed when repeated alone:")
            print("\n".join(f"    {one}" for one in self._flaky))
        if len(self._flaky) > MOST_FLAKY:
            self._failed.append(f"more than {MOST_FLAKY} flaky tests")
        seconds = f"{time.monotonic() - self._begin:.0f} s"
        parts = [f"FAILED after {seconds}: {', '.join(self._failed)}" if self._failed else f"passed in {seconds}"]
        parts.append(f"{len(self._flaky)} flaky tests")
        each_time = [job.name for job in self._late if job.step in ALWAYS]
        if each_time:
            parts.append(f"NO TIME for what runs each time: {', '.join(each_time)}")
        if names := self._later_in_turn():
            parts.append(f"later in turn: {', '.join(names)}")
        if self._left_out:
            parts.append(f"left out {', '.join(dict.fromkeys(self._left_out))}")
        print(f"\nci: {'; '.join(parts)}", flush=True)
        return 1 if self._failed else 0

    def _later_in_turn(self) -> list[str]:
        counts = Counter(job.step for job in self._late if job.step not in ALWAYS)
        return [
            step.name if len(step.variants) == 1 else f"{step.name} ({count} of {len(step.variants)})"
            for step, count in counts.items()
        ]


def execute(command: Sequence[str], limit: float, hear: Callable[[str], None]) -> int | None:
    """Run a command and pass its output on. Returns its exit code, None if it was stopped after `limit` seconds."""
    environment = os.environ | {"PYTEST": "tools.repeat"}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        print(error, flush=True)
        return 127
    assert process.stdout is not None
    reader = threading.Thread(target=_pass_on, args=(process.stdout, hear), daemon=True)
    reader.start()
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # What it started may be in sessions of their own, and is no longer its family once it has ended.
        family = [*_family(process.pid)] if process.returncode is None else []
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        reader.join(REST_SECONDS)  # longer, if something that it started is in another session and writes on
        if not reader.is_alive():
            process.stdout.close()


def _family(pid: int) -> Iterator[int]:
    """The processes that a process has started and that run, and theirs, where the system tells."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from _family(child)


def _pass_on(output: IO[bytes], hear: Callable[[str], None]) -> None:
    for line in output:
        sys.stdout.buffer.write(line)
        sys.stdout.flush()
        hear(line.decode(errors="replace"))


def _is_here(tool: str) -> bool:
    return any(map(shutil.which, TOOLS[tool]))


def _install(packages: Sequence[str]) -> None:
    """Install Debian packages, as far as that is possible here."""
    if not packages or shutil.which("apt-get") is None:
        return
    # A package starts no server at this run level; the tests start their own.
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-qq"]
    execute([*apt, "update"], INSTALL_SECONDS, lambda line: None)
    for package in packages:
        print(f"\n=== installing {package}", flush=True)
        execute([*apt, "-y", "install", "--no-install-recommends", package], INSTALL_SECONDS, lambda line: None)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps; the exit code is 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="steps to run, whatever time they take; all if none")
    parser.add_argument("--list", action="store_true", help="only print the steps")
    chosen = parser.parse_args(words)
    found = pythons.find(pythons.supported())
    in_turn = rotation(version for version, one in found.items() if one.path != sys.executable)
    steps = {step.name: step for step in (*ALWAYS, *in_turn)}
    if unknown := [name for name in chosen.steps if name not in steps]:
        parser.error(f"there is no step {unknown[0]!r}; there are {', '.join(steps)}")
    record, now = Record.read(record_path()), time.time()
    if chosen.list:
        for step in steps.values():
            for job in jobs_of(step):
                when = record.passed.get(job.name)
                last = f"{(now - when) / 86400:.1f} days ago" if when else ""
                print(
                    f"{'always' if step in ALWAYS else 'in turn':<8}{record.expected(job):>5.0f} s  {job.name}  {last}"
                )
        return 0
    run = Run(record, math.inf if chosen.steps else 60 * float(os.environ.get("CI_MINUTES") or MINUTES))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if chosen.steps:
            run.need(sorted({tool for name in chosen.steps for tool in steps[name].needs}))
            for name in chosen.steps:
                run.take(record.next_of(jobs_of(steps[name]), [steps[name]], now))
        else:
            if absent := [version for version in pythons.supported() if version not in found]:
                run.leave_out(f"Python {' and '.join(absent)}: not on this machine")
            run.need(TOOLS)
            run.do_all(ALWAYS, in_turn, now)
    except KeyboardInterrupt:
        run.fail("stopped by a signal")
    return run.finish()


if __name__ == "__main__":
    sys.exit(main())
