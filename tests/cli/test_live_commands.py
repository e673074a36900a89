"""`gemel complete`, `listen` and `ping`, as real processes, in both eras."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemel import Client
from tests.quick_commands import QUICK
from tests.typist import at_the_terminal

SERVER = """
from gemel import Changed, Context, Server

server = Server("live", version="2")

@server.tool
async def change(ctx: Context) -> str:
    server.notify(Changed("tools"))
    server.notify(Changed("resource", "live://count"))
    return "done"

@server.resource("live://count")
def count() -> str:
    return "7"

@server.resource("live://{city}/now")
def now(city: str) -> str:
    return city

@server.prompt
def advice(city: str, country: str = "") -> str:
    return city

@now.complete("city")
@advice.complete("city")
def cities(value: str, chosen: dict[str, str]) -> list[str]:
    return [city for city in ("Oslo", "Osaka", "Bergen", *chosen.values()) if city.startswith(value)]
"""
ERAS = ("2025", "2026")


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "live.py").write_text(SERVER)
    return f"{tmp_path}/live.py"


def gemel(*words: str) -> subprocess.CompletedProcess[str]:
    return QUICK.run(*words)


@pytest.fixture
def url(file: str) -> Iterator[str]:
    """The server over HTTP, as a process of its own."""
    command = [sys.executable, "-m", "gemel", "run", file, "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert "http://" in line
            yield line.split()[-1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


# ---------------------------------------------------------------- complete


@pytest.mark.parametrize("era", ERAS)
def test_values_are_suggested_for_prompts_and_templates(file: str, era: str) -> None:
    of_prompt = gemel("complete", file, "advice", "city", "Os", "--era", era, "--context", "country=Ostia")
    assert (of_prompt.returncode, of_prompt.stdout, of_prompt.stderr) == (0, "Oslo\nOsaka\nOstia\n", "")
    of_template = gemel("complete", file, "live://{city}/now", "city", "--era", era, "--json")
    assert json.loads(of_template.stdout)["values"] == ["Oslo", "Osaka", "Bergen"]


def test_an_unknown_prompt_is_one_line(file: str) -> None:
    done = gemel("complete", file, "advise", "city")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "advise" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("advice", "cty"), "gemel: advice has no argument 'cty': did you mean 'city'?\n"),
        (("live://{city}/now", "street"), "gemel: live://{city}/now has no argument 'street': it has city\n"),
    ],
)
def test_an_unknown_argument_is_named(file: str, words: tuple[str, ...], said: str) -> None:
    done = gemel("complete", file, *words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_an_argument_may_be_written_as_for_a_call(file: str) -> None:
    assert gemel("complete", file, "advice", "city=Os").stdout == "Oslo\nOsaka\n"
    nothing = gemel("complete", file, "advice", "country=x")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "")


# ---------------------------------------------------------------- listen


async def first_lines(process: asyncio.subprocess.Process, url: str, count: int) -> list[str]:
    """Wait until a command listens, have something changed, and return what the command prints of it."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert (await process.stderr.readline()).startswith(b"Listening to live 2, protocol ")
    async with Client(url) as client:
        await client.call_tool("change")
    return [(await process.stdout.readline()).decode() for _ in range(count)]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("json_lines", [False, True])
async def test_changes_are_shown_as_they_come(url: str, era: str, json_lines: bool) -> None:
    words = ["-m", "gemel", "listen", url, "live://count", "--era", era, *(["--json"] if json_lines else [])]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=pipe, stderr=pipe)
    try:
        lines = await first_lines(process, url, 2)
        process.send_signal(signal.SIGINT)
        assert await process.communicate() == (b"", b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 130
    if json_lines:
        events = [json.loads(line) for line in lines]
        assert all(event.pop("time") for event in events)
        assert events == [
            {"type": "changed", "kind": "tools"},
            {"type": "changed", "kind": "resource", "uri": "live://count"},
        ]
    else:
        assert [line[9:] for line in lines] == ["tools changed\n", "live://count changed\n"]


@pytest.mark.parametrize("era", ERAS)
async def test_ctrl_c_ends_listening_to_a_program_quietly(file: str, era: str) -> None:
    command = [sys.executable, "-m", "gemel", "listen", file, "--era", era]
    async with at_the_terminal(command) as (typist, process):
        await typist.sees("Ctrl-C ends.\n")
        typist.type("\x03")
    assert process.returncode == 130
    assert typist.seen.partition("Ctrl-C ends.\n")[2] in ("", "^C")


LOGGING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    match message["method"]:
        case "initialize":
            offers = {"logging": {}}
            info = {"name": "log", "version": "1"}
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
        case "logging/setLevel":
            answer["result"] = {}
            data = {"at": message["params"]["level"], "escape": "\x1b[2J"}
            params = {"level": "warning", "logger": "disk", "data": data}
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}), flush=True)
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
    if message["method"] == "logging/setLevel":
        break
"""


def test_log_messages_are_shown_and_what_is_not_announced_is_named(tmp_path: Path) -> None:
    """The program ends by itself, again at each attempt to connect: then the command fails, with JSON in lines."""
    (tmp_path / "log.py").write_text(LOGGING)
    command = f"{sys.executable} {tmp_path}/log.py"
    done = gemel("listen", command, "--era", "2025", "--log-level", "notice", "--json")
    assert done.returncode == 1
    assert "The server does not announce changes of tools, prompts, the list of resources.\n" in done.stderr
    log, *_, error = (json.loads(line) for line in done.stdout.splitlines())
    assert (log["level"], log["logger"], log["data"]["at"]) == ("warning", "disk", "notice")
    assert error["error"]["type"] == "ConnectionLost"


# ---------------------------------------------------------------- ping


@pytest.mark.parametrize(("era", "method"), [("2025", "ping"), ("2026", "server/discover")])
def test_the_time_of_each_answer_is_measured(file: str, era: str, method: str) -> None:
    words = ("ping", file, "--era", era, "--count", "3", "--interval", "0")
    text, encoded = gemel(*words), gemel(*words, "--json")
    assert text.returncode == encoded.returncode == 0
    title, *lines, summary = text.stdout.splitlines()
    assert re.fullmatch(rf"live 2, protocol [0-9-]+, by {method}", title)
    assert all(re.fullmatch(rf"{number}: [0-9.]+ ms", line) for number, line in enumerate(lines, 1))
    assert len(lines) == 3
    assert re.fullmatch(r"3 sent, 3 answered; min [0-9.]+, average [0-9.]+, max [0-9.]+ ms", summary)
    result = json.loads(encoded.stdout)
    assert (result["method"], result["sent"], result["answered"]) == (method, 3, 3)
    assert result["min"] == min(result["times"]) <= result["average"] <= result["max"] == max(result["times"])


SILENT = LOGGING.replace("case _:", 'case "ping":\n            continue\n        case _:')


def test_a_missing_answer_ends_with_code_1(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(SILENT.replace('"logging": {}', ""))
    command = f"{sys.executable} {tmp_path}/silent.py"
    done = gemel("ping", command, "--era", "2025", "--count", "2", "--interval", "0", "--timeout", "0.1")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[1:] == [
        "1: no answer within 0.1 seconds",
        "2: no answer within 0.1 seconds",
        "2 sent, 0 answered",
    ]


async def test_ctrl_c_ends_pings_with_their_summary(file: str) -> None:
    command = [sys.executable, "-m", "gemel", "ping", file, "--count", "0", "--interval", "0.1"]
    async with at_the_terminal(command) as (typist, process):
        await typist.sees("2: ")
        typist.type("\x03")
        await typist.sees(" answered; min ")
    assert process.returncode == 0
    assert "Traceback" not in typist.seen


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["ping", "x", "--count", "-1"], "argument --count: use a whole number, 0 or more (see gemel ping --help)"),
        (["ping", "x", "--interval", "nan"], "argument --interval: use a number of seconds, 0 or more"),
        (["listen", "x", "--log-level", "loud"], "argument --log-level: invalid choice: 'loud'"),
    ],
)
def test_a_wrong_value_is_named(words: list[str], error: str) -> None:
    done = gemel(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gemel: {error}")
