"""Typical mistakes end with one line that says what to do: those of the table, and those of scripts and commands."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, ConnectionLost, Context, Server
from gemel.cli import main
from tests.mistakes.table import MISTAKES, PREAMBLE, Mistake

_PLACE = re.compile(r" at mistake\.py:\d+:")

SERVER = """
from gemel import Server
server = Server("notes")
@server.tool
def add(text: str) -> str:
    return text
"""


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.title for mistake in MISTAKES])
def test_the_line_that_the_user_sees(mistake: Mistake) -> None:
    assert "\n" not in mistake.line
    space: dict[str, Any] = {"__name__": "mistake"}
    with pytest.raises((Exception, SystemExit)) as caught:  # noqa: PT012  # a program is a definition or a call
        exec(compile(PREAMBLE + mistake.program, "mistake.py", "exec"), space)
        asyncio.run(space["main"]())
    assert _PLACE.sub(":", str(caught.value)) == mistake.line


def test_there_are_many_and_each_once() -> None:
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES) >= 90


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (
            "@s.tool\ndef f(city: str) -> str:\n    '''Say it.\n\n    Args:\n        citty: A city.\n    '''\n    return city\n",
            "f(): the docstring describes `citty`: did you mean `city`?",
        ),
        (
            "ClientGroup.from_config({'mcpServers': {'a': {'command': 'x', 'headers': {'A': 'b'}}}})\n",
            "the configuration: server 'a': 'headers' has no effect with a command",
        ),
        (
            "ClientGroup.from_config({'mcpServers': {'a': {'url': 'http://h/mcp', 'env': {'A': 'b'}}}})\n",
            "the configuration: server 'a': 'env' has no effect with a url",
        ),
    ],
)
def test_what_does_no_harm_is_a_warning_of_one_line(program: str, line: str, caplog: pytest.LogCaptureFixture) -> None:
    exec(compile(PREAMBLE + program, "mistake.py", "exec"), {"__name__": "mistake"})
    assert [_PLACE.sub(":", message) for message in caplog.messages] == [line]


# ---------------------------------------------------------------- scripts


def run_script(folder: Path, text: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_a_bad_signature_ends_a_script_with_one_line(tmp_path: Path) -> None:
    ended = run_script(tmp_path, SERVER + "@server.tool\ndef bad(x): return x\nserver.run()\n")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("gemel.DefinitionError: bad() at ")
    assert line.endswith(
        "script.py:7: parameter `x`: has no annotation, so there is no schema for it; write e.g. `x: str`"
    )


def test_a_wrong_option_ends_a_script_with_its_place(tmp_path: Path) -> None:
    ended = run_script(tmp_path, "from gemel import Server\nserver = Server('s', instruction='x')\n")
    (line,) = ended.stderr.splitlines()
    assert line.endswith("script.py:2: Server has no option 'instruction': did you mean 'instructions'?")


def test_importing_a_server_does_not_serve(tmp_path: Path) -> None:
    ended = run_script(tmp_path, "from notes import server\nprint('on')\n", notes=SERVER + "server.run()\n")
    assert (ended.returncode, ended.stdout) == (0, "on\n")
    assert ended.stderr == "gemel: notes is being imported, so its run() does not serve\n"


def test_a_server_on_a_terminal_says_that_it_waits(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(SERVER + "server.run()\n")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "weather.py"], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        seen = os.read(ours, 4096).decode()
        assert "waits for an MCP client on standard input; Ctrl-C ends it" in seen
    finally:
        process.terminate()
        process.wait()
        os.close(ours)


def test_ctrl_c_while_a_blocking_client_connects_is_quiet(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = f"""
import gemel.sync
try:
    gemel.sync.Client("http://127.0.0.1:{silent.getsockname()[1]}/mcp").connect()
except KeyboardInterrupt:
    print("interrupted")
"""
        (tmp_path / "script.py").write_text(text)
        process = subprocess.Popen(
            [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            assert process.communicate() == (b"interrupted\n", b"")


# ---------------------------------------------------------------- files and commands


async def test_a_file_without_run_is_explained(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(SERVER)
    with pytest.raises(Exception, match=r"Does .*notes.py call server.run\(\)\? Without it use `gemel run .*notes.py`"):
        await Client(tmp_path / "notes.py").connect()
    async with Client(f"{tmp_path / 'notes.py'}:server") as client:
        assert [tool.name for tool in await client.list_tools()] == ["add"]


async def test_a_file_that_served_is_not_said_to_lack_run(tmp_path: Path) -> None:
    leave = "import os\n@server.tool\ndef leave() -> None:\n    os._exit(0)\n"
    (tmp_path / "notes.py").write_text(f"{SERVER}\n{leave}\nserver.run()\n")
    async with Client(tmp_path / "notes.py") as client:
        with pytest.raises(ConnectionLost, match=r"exited with code 0; it wrote nothing to standard error$"):
            await client.call_tool("leave")


def test_an_imported_server_does_not_make_the_choice_hard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemel.cli.program.load import load

    (tmp_path / "own_notes.py").write_text(SERVER)
    text = "from own_notes import server\nfrom gemel import Server\nmine = Server('mine')\nmine.mount(server, 'n')\n"
    (tmp_path / "own_mine.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load(str(tmp_path / "own_mine.py")).name == "mine"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["list", "localhost:1", "--header", "Host:"], "gemel: --header Host: the protocol sets this header itself"),
        (["list", "localhost:1", "--header", "X"], "gemel: --header 'X' is not a header: write NAME:VALUE"),
        (["run", "no_server.py"], "gemel: no_server.py has no gemel.Server at its top level; "),
        (["run", "nothere.py"], "gemel: No such file: nothere.py"),
        (["run", "broken.py"], "gemel: broken.py can't be imported: ZeroDivisionError: "),
        (["list", "localhost:1"], "gemel: No connection to localhost:1: "),
        (
            ["list", "with_factory.py:makeserver"],
            "gemel: with_factory.py has no server named 'makeserver': did you mean 'make_server'?",
        ),
    ],
)
def test_a_command_ends_with_one_line(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no_server.py").write_text("other = 1\n")
    (tmp_path / "with_factory.py").write_text("def make_server(): return 1\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(line)
    assert all("/src/gemel/" not in one for one in lines)


def test_a_syntax_error_is_shown_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text("from gemel import Server\ndef sell(:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "shop.py"]) == 1
    *where, line = capsys.readouterr().err.splitlines()
    assert line == "gemel: shop.py can't be imported: SyntaxError: invalid syntax"
    assert any("shop.py" in one and "line 2" in one for one in where)
    assert any("def sell(:" in one for one in where)


def test_a_missing_module_is_named_with_the_place_of_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text("import shop_storage\n")
    (tmp_path / "shop_storage.py").write_text("\nimport nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "shop.py"]) == 1
    *frames, line = capsys.readouterr().err.splitlines()
    assert line == "gemel: shop.py can't be imported: No module named 'nothing_of_this_name'"
    assert any("shop_storage.py" in frame and "line 2" in frame for frame in frames)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["call", "weather.py"], "gemel: the following arguments are required: TOOL (see gemel call --help)"),
        (
            ["call", "weather.py", "forecast", "--city=Oslo"],
            "gemel: unrecognized arguments: --city=Oslo; what is not an option of gemel is written city=VALUE "
            "(see gemel call --help)",
        ),
        (
            ["tasks", "weather.py"],
            "gemel: argument ACTION: invalid choice: 'weather.py' (choose from list, get, result, cancel); the target comes "
            "after it, as in gemel tasks list weather.py (see gemel tasks --help)",
        ),
    ],
)
def test_a_wrong_command_line_ends_with_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert capsys.readouterr().err.splitlines() == [line]


# ---------------------------------------------------------------- HTTP


async def ask(app: Any, path: str, root: str = "") -> tuple[int, bytes]:
    """GET a path of an ASGI app."""
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "root_path": root, "scheme": "http", "http_version": "1.1"}
    headers = [(b"host", b"localhost"), (b"accept", b"text/event-stream")]
    await app(
        {**scope, "headers": headers, "query_string": b"", "server": ("localhost", 80), "client": None}, receive, send
    )
    await app.stop()
    return messages[0]["status"], b"".join(one.get("body", b"") for one in messages)


async def test_a_trailing_slash_does_not_matter() -> None:
    with_slash, without = [await ask(Server("s").http_app(), path) for path in ("/mcp/", "/mcp")]
    assert with_slash == without
    assert with_slash[0] != 404


async def test_a_mounted_app_names_its_real_path() -> None:
    status, body = await ask(Server("s").http_app(), "/api/tools/x", "/api/tools")
    assert (status, b"the MCP endpoint is /api/tools" in body) == (404, True)


# ---------------------------------------------------------------- middleware


async def test_middleware_gets_decoded_params() -> None:
    server: Server[Any] = Server("s")
    seen: list[Any] = []

    @server.tool
    def add(a: int) -> int:
        return a

    async def look(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method == "tools/call":
            seen.append(ctx.decoded_params["arguments"])
        return await call_next(ctx)

    server.add_middleware(look)
    async with Client(server) as client:
        await client.call_tool("add", {"a": 1})
    assert seen == [{"a": 1}]
