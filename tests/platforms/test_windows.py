"""What is different on Windows, with its API simulated: programs, command lines, batch files, jobs, what is missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from gemel import Client, ConnectFailed, DefinitionError, signals
from gemel.cli.program import reload
from gemel.transports.stream import command_line, windows_job
from gemel.transports.stream import subprocess as process
from gemel.transports.stream.blocking import BlockingTransport
from gemel.transports.stream.command_line import split_command_line, windows_command_line
from tests.source import ROOT
from tests.transports.loops import until

HERE = Path(__file__).parent
#: Tests that need no more than the plugins and fixtures that all tests have, one of them on the event loops of all systems.
STARTED = ("tests/test_errors.py", "tests/test_ports.py")
NPX = r"C:\Program Files (x86)\nodejs\npx.cmd"
FILES = frozenset({NPX, r"C:\tools\serve.exe", r"C:\tools\serve.cmd", r"D:\old\start.BAT"})
LOWER = frozenset(map(str.lower, FILES))  # Windows ignores case
VARIABLES = {
    "Path": r'C:\tools;"C:\Program Files (x86)\nodejs";',
    "PATHEXT": ".COM;.EXE;.BAT;.CMD",
    "SystemRoot": r"C:\Windows",
}


def line(*command: str, variables: dict[str, str] = VARIABLES) -> str:
    return windows_command_line(command, variables, is_file=lambda path: path.lower() in LOWER)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"C:\tools\serve.exe --quiet", [r"C:\tools\serve.exe", "--quiet"]),
        (r'"C:\Program Files\x.exe"  a\b "c d"', [r"C:\Program Files\x.exe", r"a\b", "c d"]),
        (r"x \"quoted\"", ["x", '"quoted"']),
        (r'x "ends\\" y', ["x", "ends\\", "y"]),
        (r'x \\\\"a b" c', ["x", r"\\a b", "c"]),
        ('x "a""b" ""', ["x", 'a"b', ""]),
        ("x 'a b'", ["x", "'a", "b'"]),
        ("  ", []),
    ],
)
def test_a_command_line_is_split_by_the_rules_of_windows(
    monkeypatch: pytest.MonkeyPatch, text: str, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert split_command_line(text) == words
    assert split_command_line(subprocess.list2cmdline(words)) == words


def test_an_open_quote_is_an_error_on_windows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ValueError, match="No closing quotation"):
        split_command_line('x "a b')


def test_programs_are_found_by_path_and_extension() -> None:
    assert line("serve", "a b") == r'C:\tools\serve.exe "a b"'
    assert line("SERVE.EXE", variables={"PATH": r"C:\nowhere"}) == "SERVE.EXE"
    assert line(r"C:\tools\serve") == r"C:\tools\serve.exe"
    assert line("unknown", "--x") == "unknown --x"
    assert "npx.cmd" in line("npx", variables={key: value for key, value in VARIABLES.items() if key != "PATHEXT"})


def test_a_batch_file_runs_in_the_cmd_exe_of_the_system_with_quoted_arguments() -> None:
    started = line("npx", "-y", "@scope/server", "a,b;c=d", "C:\\data dir\\")
    assert started == (
        '"C:\\Windows\\System32\\cmd.exe" /d /e:on /v:off /s /c '
        f'""{NPX}" "-y" "@scope/server" "a,b;c=d" "C:\\data dir\\\\""'
    )


@pytest.mark.parametrize("program", ["npx", NPX, "serve.cmd", r"D:\old\start.BAT", r"D:\old\start.BAT. ", "gone.cmd"])
@pytest.mark.parametrize("character", '"%!^&|<>()\r\n\0')
def test_arguments_that_cmd_exe_would_interpret_are_refused(program: str, character: str) -> None:
    """CVE-2024-24576: arguments of batch files."""
    with pytest.raises(DefinitionError, match="batch file"):
        line(program, "--name", f"a{character}calc.exe")


def test_what_is_no_batch_file_takes_every_argument() -> None:
    words = ['a"b', "%PATH%", "x & y", "trailing\\", ""]
    assert command_line._split_on_windows(line("serve", *words))[1:] == words


def runs(pid: str) -> bool:
    """Whether a process runs; a zombie that nobody reaps doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Library:
    """Functions of a Windows library: records calls, answers with what they give."""

    def __init__(self, calls: list[str], **answers: int) -> None:
        self._calls, self._answers = calls, answers

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self._calls.append(name)
            if name == "TerminateJobObject":
                for child in Started.running:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child, signal.SIGKILL)
            return self._answers.get(name, 1)

        self.__dict__[name] = function
        return function


class Started(subprocess.Popen[bytes]):
    """Starts a command line of Windows on this system."""

    running: ClassVar[list[int]] = []
    flags: ClassVar[list[int]] = []

    def __init__(self, text: str, *, creationflags: int, **options: Any) -> None:
        super().__init__(shlex.split(text), start_new_session=True, **options)
        self._handle = self.pid
        self.running.append(self.pid)
        self.flags.append(creationflags)

    def kill(self) -> None:
        """As `TerminateProcess`: the process alone."""


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Children start as on Windows; the calls of its API."""
    calls: list[str] = []
    libraries = {"kernel32": Library(calls), "ntdll": Library(calls, NtResumeProcess=0)}
    monkeypatch.setattr(windows_job, "_library", libraries.__getitem__)
    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr(Started, "running", [])
    monkeypatch.setattr(Started, "flags", [])
    monkeypatch.setattr(process, "WINDOWS", True)
    monkeypatch.setattr(process, "_HAS_WAITID", False)

    def threads(protocol: asyncio.Protocol, read_fd: int, write_fd: int | None) -> asyncio.Transport:
        return BlockingTransport(asyncio.get_running_loop(), protocol, read_fd, write_fd)

    monkeypatch.setattr(process, "open_descriptors", threads)
    return calls


async def test_a_child_belongs_to_a_job_before_it_runs_and_ends_with_it(windows: list[str]) -> None:
    async with Client([sys.executable, str(HERE / "without_posix.py"), "serve"]) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        assert windows == ["CreateJobObjectW", "SetInformationJobObject", "AssignProcessToJobObject", "NtResumeProcess"]
        assert Started.flags[0] & 0x4, "it begins suspended"
        assert Started.flags[0] & 0x200, "Ctrl-C doesn't reach it"
    assert windows[4:] == ["TerminateJobObject", "CloseHandle"]


async def test_a_job_ends_the_processes_that_a_server_leaves(windows: list[str], tmp_path: Path) -> None:
    """The grandchild ignores the end of its input and holds the output of the server."""
    code = f"import subprocess, sys; open({str(tmp_path / 'pid')!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))"
    with pytest.raises(ConnectFailed):
        await Client([sys.executable, "-c", code], patience=0.2).connect()
    await until(lambda: not runs((tmp_path / "pid").read_text()))
    assert windows[-2:] == ["TerminateJobObject", "CloseHandle"]


async def test_a_batch_file_with_a_refused_argument_is_not_started(windows: list[str]) -> None:
    with pytest.raises((DefinitionError, ConnectFailed), match=r"cmd\.exe would interpret '&'"):
        await Client(["start.cmd", "a&calc"]).connect()
    assert windows == []


def test_ctrl_break_requests_a_stop_where_it_exists() -> None:
    code = (
        "import signal; signal.SIGBREAK = signal.SIGUSR2\n"
        "from gemel import signals; print(*(one.name for one in signals.ENDING))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert output.split() == ["SIGINT", "SIGTERM", "SIGUSR2"]
    assert signals.ENDING == (signal.SIGINT, signal.SIGTERM)


def test_a_server_that_reloads_is_stopped_by_ctrl_break(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its command is a list: no quoting is needed. It has a process group of its own, which gets the signal alone."""
    (tmp_path / "a folder").mkdir()
    calls: list[Any] = []

    class Server:
        def __init__(self, command: list[str], *, creationflags: int) -> None:
            calls.append((command[-2:], creationflags))

        def poll(self) -> None:
            return None

        def send_signal(self, number: int) -> None:
            calls.append(number)

        def wait(self, seconds: float) -> int:
            return 0

    def watch(*roots: Path, watch_filter: Any, debounce: int) -> Any:
        assert watch_filter(None, str(tmp_path / "a folder" / "x.py"))
        yield {("changed", "x.py")}

    monkeypatch.setattr(subprocess, "Popen", Server)
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    monkeypatch.setattr("watchfiles.watch", watch)
    started = (["run", "a b.py"], 0x200)
    assert reload.reload(["run", "a b.py"], tmp_path / "a folder") == 0
    assert calls == [started, 1, started, 1]


@pytest.mark.parametrize(("word", "output"), [("import", ""), ("memory", "3\n")])
def test_gemel_works_without_what_only_posix_has(word: str, output: str) -> None:
    command = [sys.executable, str(HERE / "without_posix.py"), word]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, output), re.sub(r"\s+$", "", done.stderr)


def test_the_tests_of_the_workflow_can_start_on_windows() -> None:
    """The job runs pytest with the options of pyproject.toml, which must not name what only POSIX has."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["pythons"]
    assert "windows-latest" in job["strategy"]["matrix"]["system"]
    assert any("python -m tools.pythons" in step.get("run", "") for step in job["steps"])
    command = [sys.executable, str(HERE / "without_posix.py"), "pytest", "-p", "no:cacheprovider", *STARTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
