"""The options of `gemel run`: flags and environment variables, limits, TLS, factories and modules."""

from __future__ import annotations

import argparse
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, StartError
from gemel.cli.arguments.options import http_options, table_options
from gemel.cli.arguments.parser import parse
from gemel.cli.program.load import load
from tests.quick_commands import QUICK
from tests.transports.certificates import make_pair

FILE = """
from gemel import Limits, Server

def make_server() -> Server:
    server = Server("made", limits=Limits(calls=7, state_ttl=5))

    @server.tool
    def limits() -> list[float]:
        return [server.limits.calls, server.limits.state_ttl, server.limits.session_idle]

    server.run()
    return server

async def make_later() -> Server:
    return make_server()

def needs(name): ...

def other(): return 7
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "factory.py").write_text(FILE)
    return tmp_path / "factory.py"


def given(*words: str) -> dict[str, Any]:
    """What `server.run("http", …)` gets."""
    return http_options(parse(["run", "x.py", "--http", *words]), http=True, needs="--http")


def test_the_options_of_http_are_flags() -> None:
    words = (
        "--uds s --port 0 --allowed-hosts a --allowed-hosts b --allowed-origins https://c --no-sessions --access-log"
    )
    assert given(*words.split(), "--body-wait", "2.5", "--header-bytes", "9") == {
        "uds": "s",
        "port": 0,
        "allowed_hosts": ["a", "b"],
        "allowed_origins": ["https://c"],
        "sessions": False,
        "access_log": True,
        "body_wait": 2.5,
        "header_bytes": 9,
    }
    assert given() == {}


def test_the_options_of_http_are_variables_and_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"PORT": "0", "HOST": "::1", "ALLOWED_HOSTS": "a, b", "SESSIONS": "0", "ACCESS_LOG": "yes", "PATH": ""}
    for name, value in variables.items():
        monkeypatch.setenv(f"GEMEL_{name}", value)
    assert given("--host", "::2") == {
        "host": "::2",
        "port": 0,
        "allowed_hosts": ["a", "b"],
        "sessions": False,
        "access_log": True,
    }
    options = parse(["run", "x.py"])
    assert http_options(options, http=False, needs="--http") == {}, "on stdio the variables have no meaning"
    monkeypatch.setenv("GEMEL_LIMIT", "calls=1,body=2")
    assert table_options(options, "limit") == {"limit": ["calls=1", "body=2"]}


@pytest.mark.parametrize(
    ("variable", "value", "error"),
    [
        ("GEMEL_PORT", "http", "GEMEL_PORT=http is not possible: use a number"),
        ("GEMEL_SESSIONS", "maybe", "GEMEL_SESSIONS=maybe is not possible: use 1 or 0"),
        ("GEMEL_ENGINE", "apache", "GEMEL_ENGINE=apache is not possible: use gemel, uvicorn"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, error: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(StartError, match=error):
        given()


@pytest.mark.parametrize("name", ["make_server", "make_later"])
def test_a_factory_makes_the_server(file: Path, name: str) -> None:
    assert load(f"{file}:{name}").name == "made"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("needs", "needs can't be called without arguments: missing a required argument: 'name'"),
        ("other", r"other\(\) returned int, not a gemel.Server"),
        ("nothing", "has no server named 'nothing': it has make_server, make_later"),
    ],
)
def test_a_wrong_factory_is_named(file: Path, name: str, error: str) -> None:
    with pytest.raises(StartError, match=error):
        load(f"{file}:{name}")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (FILE, "a function returns one: use {file}:make_server or {file}:make_later"),
        ("import gemel\ndef make() -> 'gemel.Server[int]': ...", "a function returns one: use {file}:make"),
        ("from __future__ import annotations\ndef make() -> Server: ...", "a function returns one: use {file}:make"),
        ("def make(): ...", "a function that returns one is named as {file}:FUNCTION; a server of another library "),
    ],
)
def test_a_file_without_a_server_names_its_factories(file: Path, text: str, error: str) -> None:
    file.write_text(text)
    with pytest.raises(StartError) as caught:
        load(str(file))
    assert str(caught.value).startswith(f"{file} has no gemel.Server at its top level; {error.format(file=file)}")


def gemel(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return QUICK.run(*words, cwd=cwd)


def test_a_factory_in_a_module_is_called_as_a_target(file: Path) -> None:
    (file.parent / "package").mkdir()
    file.rename(file.parent / "package" / "factory.py")
    done = gemel("call", "package.factory:make_later", "limits", "--env", "GEMEL_LIMIT=calls=3", cwd=file.parent)
    assert (done.returncode, done.stdout) == (0, "[3,5,1800.0]\n"), done.stderr


MODULES = [
    ["list", "package.place"],
    ["list", "package.place:server"],
    ["list", "-m", "package"],
    ["list", "package"],
    ["list", "place", "--cwd", "package"],
    ["call", "package.place", "look"],
    ["read", "package.place", "place://here"],
    ["prompt", "package.place", "ask"],
    ["complete", "package.place", "ask", "word"],
    ["ping", "package.place", "--count", "1"],
    ["lock", "package.place", "-o", "-"],
    ["doctor", "package.place"],
    ["stubs", "package.place"],
    ["proxy", "package.place", "--to", "stdio"],
    ["record", "tape", "package.place"],
    ["run", "package.place"],
    ["run", "-m", "package"],
    ["run", "package"],
]
PLACE = """
from typing import Literal
from gemel import Server
server = Server("place")

@server.tool
def look() -> str: return "here"

@server.resource("place://here")
def here() -> str: return "here"

@server.prompt
def ask(word: Literal["tea", "coffee"] = "tea") -> str: return word
"""


@pytest.mark.parametrize("words", MODULES, ids=" ".join)
def test_every_command_takes_a_module(words: list[str], tmp_path: Path) -> None:
    """Also a package, beside its folder."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from .place import server as server")
    (tmp_path / "package" / "place.py").write_text(PLACE)
    done = gemel(*words, cwd=tmp_path)
    assert (done.returncode, "gemel:" in done.stderr) == (0, False), done.stderr


def test_a_module_is_taken_although_a_file_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "place.py").write_text(PLACE)
    (tmp_path / "place").write_text("#!/bin/sh\n")
    assert gemel("list", "-m", "place", cwd=tmp_path).stdout.startswith("place, protocol ")


@pytest.mark.parametrize("command", [["list", "nowhere.py"], ["proxy", "nowhere.py", "--to", "stdio", "--strict"]])
def test_a_start_that_fails_has_one_cause(command: list[str], tmp_path: Path) -> None:
    done = gemel(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "gemel: No such file: nowhere.py\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--limit", "cals=1"], "There is no limit 'cals': did you mean 'calls'?"),
        (["--limit", "calls=0"], "Limits(calls=0) is not possible: use a whole number, 1 or more"),
        (["--limit", "calls"], "--limit calls is not NAME=NUMBER"),
        (["--http", "--tls-key", "x"], "--tls-key needs --tls-cert"),
        (["--http", "--tls-cert", "none.pem"], "The TLS file none.pem can't be read"),
        (
            ["--http", "--tls-cert", "factory.py"],
            "factory.py is not a PEM file with a certificate and its private key: ",
        ),
        (["--tls-cert", "x"], "--tls-cert needs --http"),
        (["--no-sessions"], "--no-sessions needs --http"),
    ],
)
def test_a_wrong_option_is_one_line(file: Path, words: list[str], error: str) -> None:
    done = gemel("run", "factory.py:make_server", *words, cwd=file.parent)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith(f"gemel: {error}")


@pytest.fixture
def secure_server(file: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of a server that `gemel run` serves with TLS, and its certificate."""
    pem, key = make_pair(tmp_path)
    words = ["run", f"{file}:make_server", "--http", "--port", "0", "--limit", "session-idle=9", "--log-level", "debug"]
    words += ["--tls-cert", str(pem), "--tls-key", str(key)]
    with subprocess.Popen([sys.executable, "-m", "gemel", *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            while "https://" not in (line := process.stderr.readline()):
                assert line
            yield line.split()[-1], pem
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


async def test_a_server_is_run_with_tls_and_limits(secure_server: tuple[str, Path]) -> None:
    url, pem = secure_server
    async with Client(url, tls=ssl.create_default_context(cafile=str(pem))) as client:
        assert (await client.call_tool("limits")).data == [7, 5, 9]


def test_one_table_makes_flags_for_every_command() -> None:
    assert isinstance(parse(["proxy", "x", "--to", "http", "--allowed-hosts", "a"]), argparse.Namespace)
