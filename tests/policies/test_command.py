"""`gemel policy check`, against servers in programs of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gemel.cli import main

SERVER = """
from gemel import Server

server = Server("files")

@server.tool(annotations={"readOnlyHint": True})
def read(path: str) -> str:
    return ""

@server.tool
def delete(path: str) -> str:
    return ""
"""
POLICY = """
trust_hints = ["box"]

[[rule]]
principal = "root"
scopes = ["all"]
effect = "allow"

[[rule]]
hints.read_only = true
arguments.path = "/tmp/*"
effect = "allow"

[[rule]]
name = "reading"
hints.read_only = true
effect = "ask"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files.py").write_text(SERVER)
    (tmp_path / "policy.toml").write_text(POLICY)
    entry = {"command": sys.executable, "args": ["-m", "gemel", "run", "files.py"]}
    servers = {"box": entry, "other": entry, "off": {**entry, "disabled": True}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))


def test_each_tool_has_a_line_that_says_what_would_happen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", "policy.toml", "files.py"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "read    allow if policy.toml:9 fits, otherwise ask (reading)",
        "delete  deny (default), not listed",
    ]


def test_the_caller_may_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", "policy.toml", "files.py", "--principal", "root", "--scopes", "all more"]) == 0
    assert capsys.readouterr().out.splitlines() == ["read    allow (policy.toml:4)", "delete  allow (policy.toml:4)"]


def test_a_configuration_is_checked_as_its_gateway_and_hints_count_where_they_are_trusted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policy", "check", "policy.toml", "mcp.json"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["box_read", "allow"],
        ["box_delete", "deny"],
        ["other_read", "deny"],
        ["other_delete", "deny"],
    ]
    assert main(["policy", "check", "policy.toml", "mcp.json:box"]) == 0
    assert not capsys.readouterr().err
    assert main(["policy", "check", "policy.toml", "mcp.json:box"]) == 0
    assert capsys.readouterr().out.startswith("read    allow if")
    assert main(["policy", "check", "policy.toml", "mcp.json:box", "--server", "other"]) == 0
    assert capsys.readouterr().out.startswith("read    deny")


def test_hints_that_would_change_a_ruling_and_are_not_trusted_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    check = ["policy", "check", "policy.toml", "mcp.json:other"]
    assert main(check) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("read    deny")
    assert "the hints of mcp.json:other are not trusted" in shown.err
    assert main([*check, "--trust-hints"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("read    allow if")
    assert not shown.err


def test_a_program_reads_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", "policy.toml", "files.py", "--json"]) == 0
    read, delete = json.loads(capsys.readouterr().out)
    assert read == {
        "tool": "read",
        "server": "files",
        "listed": True,
        "rulings": [
            {"effect": "allow", "rule": "policy.toml:9", "ifArguments": True},
            {"effect": "ask", "rule": "reading", "ifArguments": False},
        ],
        "notAbout": [],
    }
    assert delete["listed"] is False


def test_a_mistake_is_one_line_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("policy.toml").write_text('[[rule]]\neffect = "never"\n')
    assert main(["policy", "check", "policy.toml", "files.py"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gemel: policy.toml:2: effect is")


def test_a_rule_about_an_argument_that_a_tool_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("policy.toml").write_text(
        'default = "allow"\n[[rule]]\nname = "no secrets"\narguments.file = "/etc/*"\neffect = "deny"\n'
    )
    assert main(["policy", "check", "policy.toml", "files.py"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "read    allow (default); no secrets needs an argument file",
        "delete  allow (default); no secrets needs an argument file",
    ]
    assert main(["policy", "check", "policy.toml", "files.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["notAbout"] == [{"rule": "no secrets", "argument": "file"}]


def test_a_rule_that_names_no_tool_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    rules = [
        '[[rule]]\nname = "typo"\ntool = "*_delte"\neffect = "deny"\n',
        '[[rule]]\nname = "elsewhere"\nserver = "My box"\neffect = "deny"\n',
        '[[rule]]\nname = "right"\ntool = "*_delete"\nserver = "box"\nprincipal = "root"\neffect = "deny"\n',
        '[[rule]]\nname = "hinted"\nhints.idempotent = true\neffect = "deny"\n',
    ]
    Path("policy.toml").write_text('default = "allow"\n' + "".join(rules))
    assert main(["policy", "check", "policy.toml", "mcp.json"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "names none" in line]
    assert [line.split(" names ")[0] for line in lines] == ["gemel: the rule typo", "gemel: the rule elsewhere"]
    assert main(["policy", "check", "policy.toml", "mcp.json:box"]) == 0  # one of the servers that the policy is about
    assert "names none" not in capsys.readouterr().err


def test_a_server_that_can_not_be_reached_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    configuration = json.loads(Path("mcp.json").read_text())
    configuration["mcpServers"]["away"] = {"command": "./there-is-no-such-program"}
    Path("mcp.json").write_text(json.dumps(configuration))
    assert main(["policy", "check", "policy.toml", "mcp.json"]) == 1
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["box_read", "box_delete", "other_read", "other_delete"]
    assert "gemel: mcp.json:away can't be checked: Can't start" in err
    assert main(["policy", "check", "policy.toml", "mcp.json:away"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("gemel: Can't start")


@contextmanager
def over_http(file: Path) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [sys.executable, "-m", "gemel", "run", str(file), "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
        finally:
            process.send_signal(signal.SIGINT)


CODE_MODE = f"""{SERVER}
from gemel.code import CodeMode

server.add_middleware(CodeMode("search", by_url=BY_URL), outermost=True)
"""


def test_code_mode_is_looked_behind_where_its_server_lets_clients_choose(capsys: pytest.CaptureFixture[str]) -> None:
    Path("open.py").write_text(CODE_MODE.replace("BY_URL", "True"))
    Path("shut.py").write_text(CODE_MODE.replace("BY_URL", "False"))
    with over_http(Path("open.py")) as url:
        assert main(["policy", "check", "policy.toml", f"{url}?key=value", "--server", "box"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["read", "allow"],
        ["delete", "deny"],
    ]
    with over_http(Path("shut.py")) as url:
        assert main(["policy", "check", "policy.toml", url]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert f"{url} is in code mode" in err
    assert main(["policy", "check", "policy.toml", "open.py"]) == 1
    assert "open.py is in code mode" in capsys.readouterr().err
