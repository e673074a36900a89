"""Shell completion: what is suggested, by whom, and in the real shells that are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemel.cli import main
from gemel.cli.completion.candidates import candidates
from gemel.cli.completion.scripts import SCRIPTS
from gemel.cli.completion.words import Candidate, for_bash, split_line
from tests.programs import require
from tests.typist import at_the_terminal

SERVER = """
import pathlib
from typing import Literal
from gemel import Server

pathlib.Path("started").touch()
server = Server("shop")

@server.tool
def order(item: str, size: Literal["small", "very large"] = "small", gift: bool = False) -> str:
    "Order something.\\n\\nMore about it."
    return item

@server.tool
def offer() -> str:
    return ""

@server.prompt
def advice(city: str, country: str = "") -> str:
    return city

@advice.complete("city")
def cities(value: str, chosen: dict[str, str]) -> list[str]:
    return [city for city in ("Oslo", "Osaka", *chosen.values()) if city.startswith(value)]

@server.resource("shop://{item}/stock")
def stock(item: str) -> str:
    return item

@server.resource("shop://logo")
def logo() -> str:
    return ""
"""
BREAKS = "\"'@><=;|&(:"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SERVER)
    return tmp_path


def words(*line: str) -> list[str]:
    return [candidate.word for candidate in candidates(line)]


# ---------------------------------------------------------------- what is suggested


@pytest.mark.parametrize(
    ("line", "suggested"),
    [
        (["li"], ["list", "listen"]),
        (["--v"], ["--version"]),
        (["nothing", ""], []),
        (["list", "x", "--er"], ["--era"]),
        (["list", "--era", "2025", "--er"], []),
        (["list", "--env", "A", "--env"], ["--env", "--env-file"]),
        (["list", "x", "--era", ""], ["auto", "2025", "2026"]),
        (["list", "x", "--era=20"], ["--era=2025", "--era=2026"]),
        (["run", "x.py", "--co"], ["--code", "--code=search"]),
        (["proxy", "--code=s"], ["--code=search"]),
        (["run", "x", "--http", "--eng"], ["--engine"]),
        (["run", "x", "--engine", ""], ["gemel", "uvicorn"]),
        (["completion", "z"], ["zsh"]),
        (["auth", "l"], ["login", "logout"]),
        (["auth", "login", "https://example.com/mcp", "--de"], ["--device"]),
        (["list", ""], []),
        (["call", "shop.py", "x", "--save", ""], []),
        (["call", "shop.py", "--", "o"], []),
    ],
)
def test_commands_options_and_values_are_suggested(line: list[str], suggested: list[str]) -> None:
    assert words(*line) == suggested


def test_commands_and_options_have_meanings() -> None:
    assert candidates(["ca"]) == [Candidate("call", "call a tool")]
    assert candidates(["diff", "x", "y", "--f"])[0].meaning.endswith("(default: harmless)")


def test_names_of_a_file_are_suggested() -> None:
    """It is on the line and imports Gemel, so it is started."""
    assert candidates(["call", "shop.py", "or"]) == [Candidate("order", "Order something.\n\nMore about it.")]
    assert words("call", "shop.py:server", "order", "item=tea", "") == ["size=", "gift="]
    assert words("call", "shop.py", "order", "size=v") == ["size=very large"]
    assert words("call", "shop.py", "order", "gift:=") == ["gift:=true", "gift:=false"]
    assert words("bench", "shop.py", "of") == ["offer"]
    assert words("bench", "shop.py", "order", "size=v") == ["size=very large"]
    assert words("prompt", "shop.py", "advice", "country=Ostia", "city=Os") == ["city=Oslo", "city=Osaka", "city=Ostia"]
    assert words("read", "shop.py", "shop:") == ["shop://logo"]
    assert words("listen", "shop.py", "") == ["shop://logo"]
    assert words("complete", "shop.py", "") == ["advice", "shop://{item}/stock"]
    assert words("complete", "shop.py", "shop://{item}/stock", "") == ["item"]
    assert words("complete", "shop.py", "advice", "city", "Osa") == ["Osaka"]
    assert words("call", "shop.py", "nothing", "") == []


@pytest.mark.parametrize("target", ["{python} shop.py", "servers.json:shop", "other.py", "shop:server", "missing.py"])
def test_no_other_program_is_started(target: str, folder: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "gemel", "run", "shop.py"]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))
    (folder / "other.py").write_text("import pathlib; pathlib.Path('started').touch()")
    assert words("call", target.format(python=sys.executable), "") == []
    assert not (folder / "started").exists()


def test_a_saved_contract_is_read(folder: Path) -> None:
    """Of the working directory for a program, of its configuration for a server there."""
    assert main(["lock", "shop.py"]) == 0
    (folder / "started").unlink()
    entries = {"shop": {"command": "shop", "lock": "gemel.lock"}, "store": {"command": "store"}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": entries}))
    assert words("call", "shop-server --fast", "o") == ["offer", "order"]
    assert words("call", "servers.json:shop", "order", "s") == ["size="]
    assert words("call", "servers.json:store", "o") == []
    assert words("call", "servers.json:s") == ["servers.json:shop", "servers.json:store"]
    assert not (folder / "started").exists()


@pytest.mark.parametrize(
    ("line", "parts", "quoted"),
    [
        ("gemel ", [""], False),
        ("gemel li", ["li"], False),
        ("gemel call x ", ["call", "x", ""], False),
        ('gemel call "npx -y', ["call", "npx -y"], True),
        ("gemel call 'a b' ", ["call", "a b", ""], False),
        ("gemel call a\\ ", ["call", "a "], False),
        ("gemel call a\\", ["call", "a"], False),
    ],
)
def test_a_line_is_split_as_bash_does(line: str, parts: list[str], quoted: bool) -> None:
    assert split_line(line) == (parts, quoted)


def test_bash_gets_what_it_replaces() -> None:
    sizes = [Candidate("size=very large"), Candidate("size=small")]
    assert for_bash(sizes, "size=", BREAKS, is_quoted=False) == ["'very large'", "small"]
    assert for_bash(sizes, "size=", " ", is_quoted=False) == ["'size=very large'", "size=small"]
    assert for_bash(sizes, "size=", BREAKS, is_quoted=True) == ["size=very large", "size=small"]


# ---------------------------------------------------------------- real shells


def environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), "PS1": "$ ", "INPUTRC": "/dev/null"}


@pytest.mark.timeout(120)  # each key starts a process
async def test_bash_completes(folder: Path) -> None:
    async with at_the_terminal([require("bash"), "--norc", "-i"], environment(folder), columns=200) as (typist, _):
        await typist.asks('bind "set bell-style none"; eval "$(gemel completion bash)"; echo re""ady', "ready\n")
        typist.type("gemel comp\t")
        await typist.sees("complet")
        typist.type("\t\t")
        await typist.sees("complete")
        await typist.sees("completion")
        typist.type("\x15gemel call sho\t")
        await typist.sees("gemel call shop.py ")
        typist.type("or\t")
        await typist.sees("order ")
        typist.type("it\t")
        await typist.sees("item=")
        typist.type("tea si\t")
        await typist.sees("size=")
        typist.type("v\t")
        await typist.sees("'very large' ")
        typist.type("--js\t")
        await typist.sees("--json ")
        typist.type("\x15gemel read shop.py shop:\t")
        await typist.sees("shop://logo ")
        typist.type("\n")
        await typist.sees("$ ")
        typist.type("exit\n")


@pytest.mark.timeout(120)  # each key starts a process
async def test_zsh_completes(folder: Path) -> None:
    async with at_the_terminal([require("zsh"), "-f", "-i"], environment(folder), columns=200) as (typist, _):
        typist.type(
            'autoload -U compinit; compinit -u -D; unsetopt beep; eval "$(gemel completion zsh)"; echo re""ady\n'
        )
        await typist.sees("ready\n")
        for line, completed in (
            ("gemel comple", "complet"),
            ("gemel call shop.py or", "order"),
            ("gemel call shop.py order it", "item="),
            ("gemel call shop.py order size=v", r"size=very\ large"),
            ("gemel read shop.py shop:", "shop://logo"),
            ("gemel list sho", "shop.py"),
        ):
            typist.type(f"{line}\t")
            await typist.sees(completed)
            typist.type("\x15")
        typist.type("exit\n")


@pytest.mark.timeout(120)  # each key starts a process
def test_fish_completes(folder: Path) -> None:
    (folder / "gemel.fish").write_text(SCRIPTS["fish"])

    def complete(line: str) -> list[str]:
        command = [require("fish"), "--no-config", "-c", f"source gemel.fish; complete -C '{line}'"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            cwd=folder,
            env={**os.environ, **environment(folder)},
        )
        return done.stdout.splitlines()

    assert complete("gemel comp") == [
        "complete\tget suggestions for an argument of a prompt or a resource template",
        "completion\tprint the completion script of a shell",
    ]
    assert complete("gemel call shop.py or") == ["order\tOrder something."]
    assert complete("gemel call shop.py order it") == ["item="]
    assert complete('gemel call "shop.py" order size=v') == ["size=very large"]
    assert complete("gemel list sho") == ["shop.py"]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_scripts_have_the_syntax_of_their_shell(shell: str, folder: Path) -> None:
    program = require(shell)
    (folder / "script").write_text(SCRIPTS[shell])
    subprocess.run([program, "-n", "script"], check=True, timeout=30)
