"""`gemel init`: the project that it makes works as printed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gemel.cli import main
from tests.source import ROOT


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with the programs of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words, capture_output=True, text=True, timeout=150, check=False, cwd=folder, env={**os.environ, "PATH": path}
    )


@pytest.mark.timeout(120)  # its commands are processes, one of them pytest
def test_a_new_project_works_as_printed(tmp_path: Path) -> None:
    done = run(tmp_path, "gemel", "init", "my Notes")
    assert (done.returncode, done.stderr) == (0, "")
    commands = [line.partition("#")[0].split() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert shlex.split(" ".join(commands[0])) == ["cd", "my Notes"]
    assert commands[1] == ["pip", "install", "pytest"]
    folder = tmp_path / "my Notes"
    readme = (folder / "README.md").read_text()
    lines = re.findall(r"^(\S.*?) +# ", readme, re.MULTILINE)
    assert [" ".join(words) for words in commands[1:]] == lines

    tested = run(folder, *commands[2])
    assert commands[2] == ["pytest"]
    assert tested.returncode == 0, tested.stdout
    assert " 6 passed" in f" {tested.stdout.splitlines()[-1]}"
    listed = run(folder, *commands[3])
    assert listed.stdout.startswith("my-notes 0.1.0, protocol 2026-07-28\n\nadd_note(title: string, text: string)")
    called = run(folder, *shlex.split(lines[3]))
    assert called.stdout == "Saved 'tea'.\n"
    dev, serve, install = lines[4:]
    assert dev == "gemel dev server.py"
    for line, begin in ((f"{dev} --no-open", "Inspecting server at"), (serve, "Serving MCP at http://127.0.0.1:")):
        command = [sys.executable, "-m", *line.split(), "--port", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(begin)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    installed = run(folder, *install.split(), "--host", "vscode", "--project")
    assert '"my-notes"' in installed.stdout


@pytest.mark.long
@pytest.mark.timeout(180)  # mypy without a cache
def test_the_files_are_clean_for_linters_and_type_checkers(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path), "--name", "notes"]) == 0
    for words in (["ruff", "check", "--isolated"], ["ruff", "format", "--check", "--isolated"]):
        done = run(tmp_path, *words, ".")
        assert done.returncode == 0, done.stdout
    mypy = ("-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(ROOT / ".mypy_cache" / "strict"))
    checked = run(tmp_path, sys.executable, *mypy, "server.py", "tests/test_server.py")
    assert checked.returncode == 0, checked.stdout


def test_a_folder_with_only_a_repository_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".git").mkdir()
    assert main(["init", str(tmp_path), "--name", "notes"]) == 0
    assert 'name = "notes"' in (tmp_path / "pyproject.toml").read_text()
    assert 'notes = "server:server.run"' in (tmp_path / "pyproject.toml").read_text()
    assert 'Server("notes"' in (tmp_path / "server.py").read_text()


def test_there_is_no_need_to_change_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert commands[0].split()[:3] == ["pip", "install", "pytest"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["used"], "used is not empty (it has a.txt, b.txt, c.txt, …): give a new or empty folder"),
        (["used/a.txt"], "used/a.txt is a file, or in one: give the name of a new folder"),
        (["used/a.txt/new"], "used/a.txt/new is a file, or in one: give the name of a new folder"),
        (["new", "--name", "a/b"], "--name a/b: use letters, digits, '-', '_' and '.', as names of packages do"),
    ],
)
def test_nothing_is_overwritten(
    words: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("used").mkdir()
    for name in "abcd":
        Path("used", f"{name}.txt").write_text(name)
    assert main(["init", *words]) == 1
    assert capsys.readouterr().err == f"gemel: {error}\n"
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "used",
        *(f"used/{name}.txt" for name in "abcd"),
    ]
