"""`.ci/run` says the truth: what failed, what was flaky, what is missing, what there was no time for."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.adapters.run import ADAPTERS
from tests.extras.run import EXTRAS
from tests.packages.run import WAYS
from tests.programs import require
from tests.source import ROOT
from tools import ci, pythons
from tools.ci import ALWAYS, Record, Step, jobs_of

pytestmark = pytest.mark.timeout(120)  # some tests start pytest six times

#: What a checkout needs for its steps to be started.
FILES = (".ci/run", "tools/__init__.py", "tools/ci.py", "tools/pythons.py", "tools/repeat.py")
#: Notes its words, and does what a file of the name of its target says.
MAKE = """\
for word in "$@"; do
    case "$word" in -* | *=*) ;; *) target=$word; break ;; esac
done
echo "$*" >>"$STUBS/log"
if [ -f "$STUBS/$target" ]; then . "$STUBS/$target"; fi
"""
PROGRAMS = ("bash", "dirname", "env", "sleep")
#: A test that fails until it has run before.
ONCE = """
import pathlib

def test_{name}():
    mark = pathlib.Path(__file__).with_suffix(".{name}")
    ran, _ = mark.exists(), mark.touch()
    assert ran, "the first time it fails"
"""


def runs(pid: str) -> bool:
    """Whether a process runs; one that has ended and was not waited for doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Checkout:
    """A checkout with `make` and all tools as stubs, a record of earlier runs, and what the last run said."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.programs = folder / "programs"
        self.stubs = folder / "stubs"
        self.record = folder / "cache" / "gemel-ci" / "record.json"
        self.output = ""
        for name in FILES:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.write("tests/parts/test_one.py", "")
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        self.write("pyproject.toml", re.sub(r"\[tool\.pytest.*?\n\n", "", project, flags=re.DOTALL))
        for each in (self.programs, self.stubs):
            each.mkdir()
        for name in PROGRAMS:
            (self.programs / name).symlink_to(require(name))
        self.program("make", MAKE)
        for names in ci.TOOLS.values():
            self.program(names[0], "")
        self.environment = {
            "HOME": str(folder),
            "PATH": str(self.programs),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHON": sys.executable,
            "STUBS": str(self.stubs),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def target(self, name: str, script: str) -> None:
        """What `make NAME` does."""
        (self.stubs / name).write_text(script)

    def tests(self, target: str, *files: tuple[str, str], options: str = "") -> None:
        """`make TARGET` runs these files of tests."""
        for name, text in files:
            self.write(f"samples/{target}/{name}", text)
        self.target(target, f'exec "$PYTHON" -m "$PYTEST" -q {options} samples/{target}')

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        (self.stubs / "log").write_text("")
        command = ["/bin/sh", "-c", 'exec bash .ci/run "$@"', "sh", *words]
        environment = self.environment | variables
        return subprocess.Popen(
            command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )

    def run(self, *words: str, **variables: str) -> str:
        """Run it. Returns the last line that it printed; the exit code fits it."""
        process = self.start(*words, **variables)
        self.output, _ = process.communicate()
        last = self.output.splitlines()[-1]
        assert process.returncode == (0 if last.startswith("ci: passed in ") else 1), self.output
        return last

    @property
    def made(self) -> list[str]:
        """The words of each call of make, in order."""
        return (self.stubs / "log").read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_all_steps_run_and_the_last_line_says_that_they_passed(checkout: Checkout) -> None:
    last = checkout.run()
    assert re.match(r"ci: passed in \d+ s; 0 flaky tests; left out Python 3", last)
    assert "not on this machine" in last
    assert {"test", "-k check", "hostile", "load soak", "extras EXTRAS=smolagents"} <= set(checkout.made)
    assert len(checkout.made) == len(set(checkout.made)), "nothing runs twice"


def test_a_failed_step_is_named_with_its_exit_code_and_the_others_run(checkout: Checkout) -> None:
    checkout.target("check", "exit 2")
    assert "FAILED after 0 s: check (exit code 2); " in re.sub(r"after \d+ s", "after 0 s", checkout.run())
    assert "demo" in checkout.made


# ---------------------------------------------------------------- tests that fail


def test_a_test_that_passes_when_it_is_repeated_alone_is_named_with_its_first_reason(checkout: Checkout) -> None:
    crashes = ONCE.format(name="crash").replace("assert ran,", "ran or __import__('os')._exit(1)\n    assert ran,")
    files = [("test_a.py", ONCE.format(name="first")), ("test_b.py", "def test_fine(): pass"), ("test_c.py", crashes)]
    checkout.tests("test", *files, options="-p xdist -n 2")
    last = checkout.run("test")
    assert last.startswith("ci: passed")
    assert "2 flaky tests" in last
    assert "    samples/test/test_a.py::test_first: AssertionError: the first time it fails\n" in checkout.output
    assert re.search(r"^    samples/test/test_c.py::test_crash: worker 'gw\d' crashed", checkout.output, re.MULTILINE)


def test_a_test_that_fails_again_fails_the_step(checkout: Checkout) -> None:
    wrong = "def test_wrong(): assert False"
    checkout.tests("test", ("test_a.py", ONCE.format(name="first")), ("test_b.py", wrong))
    last = checkout.run("test")
    assert "test (exit code 1)" in last
    assert "1 flaky tests" in last, "the other one is named, too"


def test_a_test_that_is_skipped_when_it_is_repeated_did_not_pass(checkout: Checkout) -> None:
    skips = ONCE.format(name="first").replace("assert ran,", "if ran: __import__('pytest').skip()\n    assert ran,")
    checkout.tests("test", ("test_a.py", skips))
    assert "test (exit code 1); 0 flaky tests" in checkout.run("test")


def test_flaky_tests_of_all_steps_and_cells_of_the_matrix_are_counted_together(checkout: Checkout) -> None:
    checkout.target("test", 'for n in 1 2 3 4; do echo "flaky: tests/x.py::test_$n: reasons"; done')
    checkout.target("interop-matrix", "echo 'flaky: gemel/python http 2026, echo: it was late'")
    assert "5 flaky tests" in (last := checkout.run("test", "interop-matrix"))
    assert last.startswith("ci: passed")
    checkout.target("interop-tests", "echo 'flaky: tests/y.py::test_y: reasons'")
    last = checkout.run("test", "interop-matrix", "interop-tests")
    assert "FAILED" in last
    assert "more than 5 flaky tests; 6 flaky tests" in last
    assert "    gemel/python http 2026, echo: it was late\n" in checkout.output


def test_more_failures_than_are_tolerated_are_not_repeated(checkout: Checkout) -> None:
    checkout.tests("test", ("test_a.py", "".join(ONCE.format(name=f"n{number}") for number in range(6))))
    assert "test (exit code 1); 0 flaky tests" in checkout.run("test")


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("conftest.py", "def pytest_runtest_logreport(report): raise RuntimeError", 3),
        ("test_b.py", "import nothing_of_this_name", 2),
        ("pytest.ini", "[pytest]\naddopts = --no-such-option", 4),
    ],
)
def test_a_breakdown_of_pytest_fails_the_step(checkout: Checkout, name: str, text: str, code: int) -> None:
    """Some tests did not run then, and no later run of some others could show that they pass."""
    checkout.tests("test", ("test_a.py", ONCE.format(name="first")), (name, text))
    assert f"test (exit code {code}); 0 flaky tests" in checkout.run("test")


# ---------------------------------------------------------------- tools


def test_a_missing_tool_is_installed(checkout: Checkout) -> None:
    (checkout.programs / "valgrind").unlink()
    checkout.program(
        "apt-get",
        'echo "$*" >>"$STUBS/apt"\n'
        'for package in "$@"; do :; done\n'
        '[ "$package" = update ] || { echo "#!/bin/sh" >"$PATH/$package"; /bin/chmod 755 "$PATH/$package"; }\n',
    )
    assert checkout.run("bench-quick").startswith("ci: passed")
    assert checkout.made == ["bench-quick"]
    assert (checkout.stubs / "apt").read_text().splitlines()[-1].endswith(" valgrind")


def test_a_tool_that_is_missing_then_is_a_failure_and_steps_that_need_it_are_named(checkout: Checkout) -> None:
    (checkout.programs / "chromium").unlink()
    (checkout.programs / "nginx").unlink()
    last = checkout.run()
    assert ": chromium is missing, nginx is missing; " in last
    assert "interop-auth: chromium missing, browser: chromium missing" in last
    assert not [words for words in checkout.made if words.startswith(("browser", "interop-auth"))]
    assert "test" in checkout.made


def test_what_a_step_could_not_do_stands_in_the_last_line(checkout: Checkout) -> None:
    checkout.target("bench-quick", "echo 'left out: ceilings of instructions: this is another Python'")
    assert "left out ceilings of instructions: this is another Python" in checkout.run("bench-quick")


# ---------------------------------------------------------------- time


def test_what_there_was_no_time_for_is_named_and_comes_first_in_the_next_run(checkout: Checkout) -> None:
    long = max((step for step in ALWAYS if not step.must), key=lambda step: step.seconds)
    last = checkout.run(CI_MINUTES=str(long.seconds / 60))
    assert f"NO TIME for what runs each time: {long.name}" in last
    assert checkout.made[:2] == ["test", "-k check"], "however little time there is"
    assert "no time for" not in checkout.run().lower()
    assert checkout.made[0].startswith(long.name)


def test_a_step_in_rotation_that_failed_comes_first_in_the_next_run(checkout: Checkout) -> None:
    """Else the next run would pass, with what is broken somewhere in the rotation."""
    checkout.target("hostile", "exit 1")
    assert "hostile (exit code 1)" in checkout.run()
    assert "hostile (exit code 1)" in checkout.run()
    assert checkout.made[0] == "hostile"
    checkout.target("hostile", "exit 0")
    assert checkout.run().startswith("ci: passed")
    checkout.run()
    assert checkout.made[0] == "test"


def test_a_run_takes_the_time_that_steps_took_before(checkout: Checkout) -> None:
    checkout.run()
    record = json.loads(checkout.record.read_text())
    record["seconds"]["hostile"] = 3000
    checkout.record.write_text(json.dumps(record))
    assert "later in turn: hostile; " in checkout.run()
    checkout.run()
    assert "hostile" not in checkout.made


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"passed": 1, "seconds": {}, "first": []}'])
def test_a_record_that_cannot_be_read_is_written_anew(checkout: Checkout, text: str) -> None:
    checkout.record.parent.mkdir(parents=True)
    checkout.record.write_text(text)
    assert checkout.run("demo").startswith("ci: passed")
    assert json.loads(checkout.record.read_text())["passed"].keys() == {"demo"}


def test_a_record_that_cannot_be_written_is_no_failure(checkout: Checkout) -> None:
    last = checkout.run("demo", XDG_CACHE_HOME="/proc/nowhere")
    assert last.startswith("ci: passed")
    assert "the next run can't know what this one did" in checkout.output


def test_a_run_that_is_ended_says_so_and_leaves_no_process(checkout: Checkout) -> None:
    """What a step has started is ended, too, in other sessions as well."""
    code = "import os, time; os.setsid(); print('begun', os.getpid(), flush=True); time.sleep(60)"
    checkout.target("demo", f'"$PYTHON" -c "{code}" & wait')
    process = checkout.start("demo", "site")
    assert process.stdout is not None
    begun = next(line for line in process.stdout if line.startswith("begun"))
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert "FAILED" in output.splitlines()[-1]
    assert "stopped by a signal" in output
    assert process.returncode == 1
    while runs(begun.split()[1]):
        time.sleep(0.01)


def test_a_command_that_takes_too_long_is_stopped(capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    assert ci.execute(["/bin/sh", "-c", "echo begun; sleep 60"], 0.5, heard.append) is None
    assert heard == ["begun\n"]
    assert ci.execute(["no-such-command"], 1, heard.append) == 127
    capfd.readouterr()


# ---------------------------------------------------------------- rotation

DAY = 24 * 3600.0
STEPS = (Step("a", "make a", 1, 1), Step("b", "make b {}", 1, 1, ("1", "2", "3")), Step("c", "make c", 1, 1))
JOBS = [job for step in STEPS for job in jobs_of(step)]


def in_turn(record: Record, count: int) -> list[str]:
    """The jobs that so many runs take, one each, a day after the other."""
    taken = []
    for number in range(1, count + 1):
        job = record.next_of(JOBS, STEPS, number * DAY)
        record.passed[job.name] = number * DAY
        taken.append(job.name)
    return taken


def test_each_run_takes_the_step_and_the_variant_that_were_longest_not_run(tmp_path: Path) -> None:
    record = Record(tmp_path / "record", {"a": 3.0, "b 2": 2.0, "c": 1.0})
    assert in_turn(record, 9) == ["c", "b 1", "a", "c", "b 3", "a", "c", "b 2", "a"]


@pytest.mark.parametrize("hour", [0, 7, 23])
def test_without_a_record_the_days_take_turns(tmp_path: Path, hour: int) -> None:
    firsts = [Record(tmp_path / "none").next_of(JOBS, STEPS, day * DAY + hour * 3600).name for day in range(9)]
    assert set(firsts) == {job.name for job in JOBS}
    assert all(one != other for one, other in pairwise(firsts))


# ---------------------------------------------------------------- the table


def all_steps() -> Sequence[Step]:
    return (*ALWAYS, *ci.rotation(["3.99"]))


def test_each_step_in_rotation_fits_into_the_time_that_the_others_leave() -> None:
    """Else a machine that keeps no record would never run it."""
    always = sum(step.seconds for step in ALWAYS)
    assert {step.name for step in ci.rotation(["3.99"]) if always + step.seconds > 60 * ci.MINUTES} == set()


def test_no_run_reaches_the_limit_of_the_platform() -> None:
    """A step that begins in time ends within 90 minutes, whatever it does."""
    assert ci.MINUTES + max(step.limit for step in all_steps()) < 90


def targets(words: Sequence[str]) -> set[str]:
    """The targets among words for make."""
    return {word for word in words if not word.startswith("-") and "=" not in word}


def test_the_steps_are_targets_of_the_makefile() -> None:
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for step in all_steps():
        for job in jobs_of(step):
            assert job.command[0] == "make"
            assert targets(job.command[1:]) <= known


def test_each_target_lets_failed_tests_be_repeated() -> None:
    assert "-m pytest" not in (ROOT / "Makefile").read_text(), "use $(PYTEST)"


def test_each_night_runs_what_is_in_rotation() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    nightly = {one for line in job["strategy"]["matrix"]["target"] for one in targets(shlex.split(line))}
    assert nightly >= {one for step in ci.rotation(["3.99"]) for one in targets(jobs_of(step)[0].command[1:])}
    assert "bare-path" in nightly


def variables(name: str) -> set[str]:
    """The values of a variable of make in all steps."""
    words = [word for step in all_steps() for job in jobs_of(step) for word in job.command]
    return {value for word in words if word.startswith(f"{name}=") for value in word.removeprefix(f"{name}=").split()}


def test_every_package_agent_extra_and_part_of_the_tests_has_its_turn() -> None:
    assert variables("PACKAGES") == WAYS.keys()
    assert variables("AGENTS") == ADAPTERS.keys()
    assert variables("EXTRAS") == EXTRAS.keys()
    assert variables("PART") == pythons.PARTS.keys()
    assert variables("DIR") >= {"tests", "tests/server", "tests/docs"}
