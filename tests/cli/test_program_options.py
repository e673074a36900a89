"""The environment, working directory and arguments of the program that a command starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemel import Client, Server
from tests.quick_commands import QUICK

SERVER = """
import json, os, sys
from gemel import Context, Server

server = Server("place")
arguments = sys.argv[1:]


@server.tool
def look(*, names: list[str]) -> str:
    return json.dumps({"env": {n: os.environ.get(n) for n in names}, "cwd": os.getcwd(), "arguments": arguments})


@server.tool
def revision(ctx: Context) -> str:
    return ctx.protocol_version
"""
#: A foreign program: it is started by a command line, not as a file.
FOREIGN = "import sys; sys.path.insert(0, {folder!r}); import place; place.server.run()"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "place.py").write_text(SERVER)
    (tmp_path / "foreign.py").write_text(FOREIGN.format(folder=str(tmp_path)))
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


def gemel(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return QUICK.run(*words, cwd=folder, env={**os.environ, **variables})


def look(folder: Path, target: str, *words: str, **variables: str) -> dict[str, object]:
    """What the program finds: the variables `A` to `C`, its folder and its arguments."""
    done = gemel(folder, "call", target, "look", "names=A", "names=B", "names=C", *words, **variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("target", ["place.py", "place.py:server", "place:server"])
def test_an_own_file_gets_the_environment_of_the_shell(folder: Path, target: str) -> None:
    assert look(folder, target, A="secret")["env"] == {"A": "secret", "B": None, "C": None}


def test_a_foreign_program_gets_what_is_passed_on(folder: Path) -> None:
    command = f"{sys.executable} foreign.py"
    found = look(folder, command, "--env", "A", "--env", "B=2=2", A="1", C="secret")
    assert found["env"] == {"A": "1", "B": "2=2", "C": None}


def test_variables_come_from_files_and_options_win(folder: Path) -> None:
    (folder / ".env").write_text("# tokens\nexport A=1 # one\nB='it # is'\n\nC=x\n")
    (folder / "more.env").write_text('C="two\\nlines"\n')
    found = look(folder, f"{sys.executable} foreign.py", "--env-file", ".env", "--env-file", "more.env", "--env", "A=9")
    assert found["env"] == {"A": "9", "B": "it # is", "C": "two\nlines"}


@pytest.mark.parametrize("target", ["place.py", "{python} {folder}/foreign.py"])
def test_the_working_directory_and_the_arguments_are_given(folder: Path, target: str) -> None:
    target = target.format(python=sys.executable, folder=folder)
    found = look(folder, target, "--cwd", "elsewhere", "--", "--json", "x y")
    assert found["cwd"] == str(folder / "elsewhere")
    assert found["arguments"] == ["--json", "x y"]


def test_a_server_of_a_configuration_gets_them_beside_its_own(folder: Path) -> None:
    entry = {"command": sys.executable, "args": [f"{folder}/foreign.py", "one"], "env": {"A": "a", "B": "b"}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"place": entry}}))
    found = look(folder, "servers.json:place", "--env", "B=2", "--cwd", "elsewhere", "--", "two")
    assert found == {"env": {"A": "a", "B": "2", "C": None}, "cwd": f"{folder}/elsewhere", "arguments": ["one", "two"]}


@pytest.mark.parametrize(
    ("words", "revision"),
    [
        (["place"], "2026-07-28"),
        (["old"], "2025-11-25"),
        (["old", "--era", "2026"], "2026-07-28"),
        (["place", "--era", "2025"], "2025-11-25"),
    ],
    ids=" ".join,
)
def test_the_era_of_an_entry_counts_unless_the_command_line_fixes_one(
    folder: Path, words: list[str], revision: str
) -> None:
    entry = {"command": sys.executable, "args": [f"{folder}/foreign.py"]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"place": entry, "old": {**entry, "era": "2025"}}}))
    name, *more = words
    done = gemel(folder, "call", f"servers.json:{name}", "revision", *more)
    assert (done.returncode, done.stdout.strip()) == (0, revision), done.stderr


async def test_a_gateway_uses_the_era_of_each_entry(folder: Path) -> None:
    entry = {"command": sys.executable, "args": [f"{folder}/foreign.py"]}
    configuration = folder / "servers.json"
    configuration.write_text(json.dumps({"mcpServers": {"place": entry, "old": {**entry, "era": "2025"}}}))
    command = [sys.executable, "-m", "gemel", "proxy", str(configuration), "--to", "stdio"]
    for gateway in (Client(command), Client(Server.from_config(configuration))):
        async with gateway as client:
            assert (await client.call_tool("place_revision")).text == "2026-07-28"
            assert (await client.call_tool("old_revision")).text == "2025-11-25"


def test_run_takes_them_for_its_own_process(folder: Path) -> None:
    """The file is found from the shell's folder, its environment files too."""
    (folder / ".env").write_text("A=1\n")
    command = f"{sys.executable} -m gemel run place.py --env-file .env --cwd elsewhere -- x"
    found = look(folder, command)
    assert found == {"env": {"A": "1", "B": None, "C": None}, "cwd": f"{folder}/elsewhere", "arguments": ["x"]}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["list", "http://127.0.0.1:9/mcp", "--env", "A=1"],
            "--env needs a command line or a Python file as the target, ",
        ),
        (["list", "unix:x", "--cwd", "."], "--cwd needs a command line or a Python file as the target, not unix:x"),
        (
            ["list", "http://127.0.0.1:9/mcp", "--", "x"],
            "-- ARGS needs a command line or a Python file as the target, ",
        ),
        (["list", "place.py", "--env", "NOT_SET"], "--env NOT_SET: the variable is not set; write NOT_SET=VALUE"),
        (["list", "place.py", "--env-file", "none"], "--env-file none can't be read: No such file or directory"),
        (["list", "place.py", "--env-file", "bad.env"], "bad.env:2: the line is not NAME=VALUE"),
        (["list", "place.py", "--cwd", "none"], "--cwd none: there is no such folder"),
        (["replay", "x", "--", "y"], "-- ARGS needs a command that starts a program"),
    ],
)
def test_a_mistake_is_one_line_without_values(folder: Path, words: list[str], error: str) -> None:
    (folder / "bad.env").write_text("A=1\nsecret 'x\n")
    done = gemel(folder, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"gemel: {error}")
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stderr
