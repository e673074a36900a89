"""How commands report failures and suggest what was meant, and what `list` tells of types."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemel import Client, StartError
from gemel.cli.arguments.parser import COMMANDS, GROUPS, parse
from gemel.version import __version__
from tests.quick_commands import QUICK
from tests.typist import at_the_terminal

SERVER = """
from typing import Annotated, Literal
from msgspec import Meta
from gemel import Server

server = Server("shop")

@server.tool
def price(count: Annotated[int, Meta(ge=1, le=14)], size: Literal["s", "l"] = "s") -> list[str]:
    return ["x", "y"]

@server.tool
def name(text: Annotated[str, Meta(max_length=80)], rate: Annotated[float, Meta(gt=0)]) -> None: ...
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SERVER)
    return f"{tmp_path}/shop.py"


def gemel(*words: str) -> subprocess.CompletedProcess[str]:
    return QUICK.run(*words)


@pytest.mark.parametrize("words", [("skills", "list"), ("complete",)])
def test_a_command_that_the_server_does_not_support_says_so(file: str, words: tuple[str, ...]) -> None:
    rest = ("price", "count") if words == ("complete",) else ()
    done = gemel(*words, file, *rest)
    assert done.returncode == 1
    assert done.stderr.startswith("gemel: Method not found: ")
    assert done.stderr.endswith("; the server doesn't support this command\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["lst", "x"], "unknown command 'lst'; did you mean list? (see gemel --help)"),
        (
            ["skills", "gte", "x"],
            "argument ACTION: invalid choice: 'gte' (choose from list, get); did you mean get? (see gemel skills --help)",
        ),
        (
            ["list", "x", "--era", "2027"],
            "argument --era: invalid choice: '2027' (choose from auto, 2025, 2026); did you mean 2026? (see gemel list --help)",
        ),
        (["list", "x", "--jsn"], "unrecognized arguments: --jsn; did you mean --json? (see gemel list --help)"),
        (["run", "x", "--prt=8"], "unrecognized arguments: --prt=8; did you mean --port? (see gemel run --help)"),
        (["list"], "the following arguments are required: TARGET (see gemel list --help)"),
        (["list", "x", "--jso"], "unrecognized arguments: --jso; did you mean --json? (see gemel list --help)"),
        (["--vers"], "the following arguments are required: COMMAND (see gemel --help)"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_a_suggestion(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(words)
    assert capsys.readouterr().err == f"gemel: {error}\n"


def test_the_help_lists_each_command_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"])
    text = capsys.readouterr().out
    assert text.index("  init ") < text.index("  call ") < text.index("options:")
    assert text.endswith("A command shows its options and examples with --help, as in gemel call --help.\n")


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse(["--version"])
    assert capsys.readouterr().out == f"gemel {__version__}\n"


def test_without_a_command_the_help_is_shown_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse([])
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("usage: gemel COMMAND")


def test_the_usage_of_a_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse(["call", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["usage: gemel call [OPTIONS] TARGET TOOL [KEY=VALUE ...]", "", "Call a tool."]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_examples_that_can_be_parsed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse([name, "--help"])
    examples = capsys.readouterr().out.partition("examples:\n")[2].splitlines()
    assert examples
    assert find_spec(f"gemel.cli.commands.{COMMANDS[name].module}") is not None
    for example in examples:
        program, *words = shlex.split(re.split(" >>? ", example)[0])
        assert (program, words[0]) == ("gemel", name)
        parse(words)


def test_why_a_server_did_not_start_is_told_once() -> None:
    done = gemel("list", "nowhere.py")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "gemel: No such file: nowhere.py\n")


def test_one_of_several_servers_has_to_be_named(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    servers = {"shop": {"command": "x"}, "mail": {"command": "x"}, "off": {"command": "x", "disabled": True}}
    file.write_text(json.dumps({"mcpServers": servers}))
    line = f"gemel: {file} has 2 servers: name one of them, {file}:shop, {file}:mail\n"
    assert gemel("list", str(file)).stderr == line


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        ("list", "shp.py", "shop.py"),
        ("list", "shp.py:server", "shop.py"),
        ("list", "shop.pi", "shop.py"),
        ("list", "mcp.jso", "mcp.json"),
        ("run", "shp.py", "shop.py"),
        ("dev", "shp.py", "shop.py"),
    ],
)
def test_a_mistyped_file_name_is_one_line_with_the_name_that_was_meant(
    command: str, wrong: str, right: str, file: str, tmp_path: Path
) -> None:
    (tmp_path / "mcp.json").write_text("{}")
    done = gemel(command, str(tmp_path / wrong))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("gemel: ")
    assert f"did you mean {str(tmp_path / right)!r}?" in line


def test_a_file_that_hides_the_package_is_named(tmp_path: Path) -> None:
    hiding = tmp_path / "gemel.py"
    hiding.write_text(SERVER)
    (tmp_path / "shop.py").write_text(SERVER)
    line = f"gemel: {hiding} hides the package gemel, because Python imports it first: rename the file\n"
    assert [gemel(command, str(hiding)).stderr for command in ("run", "list")] == [line, line]
    for target in (str(hiding), str(tmp_path / "shop.py")):
        with pytest.raises(StartError, match="hides the package gemel"):
            Client(target)


def test_errors_are_json_where_results_are(file: str) -> None:
    started, called = gemel("list", "nowhere.py", "--json"), gemel("call", file, "prise", "--json")
    assert started.returncode == called.returncode == 1
    assert json.loads(started.stdout) == {"error": {"type": "ConnectFailed", "message": "No such file: nowhere.py"}}
    assert json.loads(called.stdout) == {
        "error": {"type": "PeerError", "message": "Unknown tool: prise. Did you mean 'price'?", "code": -32602}
    }
    assert called.stderr == ""


def test_ranges_choices_and_output_types_are_listed(file: str) -> None:
    found = gemel("list", file).stdout
    assert 'price(count: integer 1 to 14, size: "s" | "l" = "s") -> array of string\n' in found
    assert "name(text: string of ≤ 80 characters, rate: number > 0)" in found


async def test_a_terminal_gets_colours_and_indented_json(file: str) -> None:
    command = [sys.executable, "-m", "gemel", "call", file]
    async with at_the_terminal([*command, "price", "count=1"]) as (typist, _):
        await typist.sees('[\n  "x",\n  "y"\n]\n')
    async with at_the_terminal([*command, "prise"], {"NO_COLOR": ""}) as (typist, _):
        await typist.sees("Unknown tool: prise")
    assert "\x1b[31;1mgemel:\x1b[0m Unknown tool" in typist.raw
