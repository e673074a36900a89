"""The commands run, list and call, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.quick_commands import QUICK

SERVER = '''
"""A server for the commands."""
from typing import Literal

from gemel import Context, ImageContent, Server, TextContent, ToolError

server = Server("shop", version="3")
other = Server("other")


@server.tool
async def price(ctx: Context, item: str, count: int = 1, currency: Literal["EUR", "NOK"] = "EUR") -> dict[str, float]:
    """What something costs.

    Args:
        item: what
    """
    await ctx.report_progress(1, 2, "looking it up")
    await ctx.info("found it")
    return {"price": 2.5 * count}


@server.tool
def note(text: str | None) -> str:
    """Echo."""
    return f"{text!r}"


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


@server.tool
def picture() -> list[TextContent | ImageContent]:
    """A picture, and words that are no good for a terminal."""
    return [TextContent(text="\x1b[2Jred"), ImageContent(data="AAECAw==", mime_type="image/png")]


@server.tool
async def favourite(ctx: Context) -> str:
    """Ask."""
    return await ctx.elicit("Which colour?", str)


@server.prompt
def ask(topic: str, tone: str = "kind") -> str:
    """Ask about it."""
    return f"{topic} {tone}"


@server.resource("shop://{item}/stock")
def stock(item: str) -> str:
    """How many there are."""
    return "7"


@server.resource("shop://logo", mime_type="image/png")
def logo() -> bytes:
    return bytes(range(256))
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "shop.py"
    found.write_text(SERVER)
    return found


def gemel(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """One command, run to its end."""
    return QUICK.run(*map(str, words))


@pytest.fixture
def url(file: Path) -> Iterator[str]:
    """The server over HTTP, as a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "gemel", "run", f"{file}:server", "--http", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_tool_of_a_file_is_called(file: Path, era: str) -> None:
    done = gemel("call", f"{file}:server", "--era", era, "price", "item=tea", "count=2")
    assert json.loads(done.stdout) == {"price": 5.0}
    assert "1/2 looking it up" in done.stderr
    assert "info: found it" in done.stderr
    assert done.returncode == 0


def test_a_tool_is_called_over_http(url: str) -> None:
    done = gemel("call", url, "price", "item=tea", "--header", "X-Mine: yes")
    assert json.loads(done.stdout) == {"price": 2.5}


def test_everything_is_listed(url: str) -> None:
    done = gemel("list", url)
    assert done.stdout.startswith("shop 3, protocol 2026-07-28\n")
    assert (
        'price(item: string, count: integer = 1, currency: "EUR" | "NOK" = "EUR") -> object\n'
        "    What something costs.\n        item: what" in done.stdout
    )
    assert "prompt ask(topic, tone?)\n    Ask about it." in done.stdout
    assert "resource shop://{item}/stock\n    How many there are." in done.stdout
    found = json.loads(gemel("list", url, "--json").stdout)
    assert [tool["name"] for tool in found["tools"]] == ["price", "note", "fail", "picture", "favourite"]
    assert [found[kind][0]["name"] for kind in ("prompts", "resources", "resourceTemplates")] == [
        "ask",
        "logo",
        "stock",
    ]


def test_formats_of_texts_are_listed(tmp_path: Path) -> None:
    (tmp_path / "invoices.py").write_text(
        "import datetime, decimal, uuid\n"
        "from gemel import Server\n"
        "server = Server('invoices')\n"
        "@server.tool\n"
        "def pay(number: uuid.UUID, amount: decimal.Decimal, at: datetime.datetime,"
        " day: datetime.date | None = None) -> datetime.date:\n"
        "    return at.date()\n"
    )
    listed = gemel("list", tmp_path / "invoices.py").stdout
    signature = "pay(number: uuid, amount: number | decimal, at: date-time, day: date (optional)) -> date"
    assert signature in listed.splitlines()


@pytest.mark.parametrize(
    ("word", "echo"),
    [("text=5", "'5'"), ("text=null", "None"), ("text=tea", "'tea'"), ("text=", "''"), ('text:="7"', "'7'")],
)
def test_a_value_is_read_by_the_type_that_the_tool_declares(file: Path, word: str, echo: str) -> None:
    assert gemel("call", f"{file}:server", "note", word).stdout == f"{echo}\n"


def test_a_tool_that_fails_ends_with_code_1_and_its_words(file: Path) -> None:
    done = gemel("call", f"{file}:server", "fail")
    assert (done.returncode, done.stdout) == (1, "no luck\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call", "{file}:server", "pric"], "gemel: Unknown tool: pric. Did you mean 'price'? (-32602)"),
        (["call", "{file}:server", "zzz"], "gemel: Unknown tool: zzz; there are price, note, fail, picture, favourite"),
        (
            ["call", "{file}:server", "price", "tea"],
            "gemel: 'tea' is not an argument: write KEY=VALUE, KEY:=JSON, or KEY=@FILE",
        ),
        (["call", "{file}:server", "price", "item:={"], "gemel: item: '{' is not JSON: Input data was truncated"),
        (["run", "{file}:nothing"], "gemel: {file} has no server named 'nothing': it has server, other"),
        (["run", "nowhere.py"], "gemel: No such file: nowhere.py"),
        (["run", "no_such_module"], "gemel: No such file or module: 'no_such_module'"),
        (
            ["run", "{file}:server", "--metrics"],
            "gemel: --metrics needs --http",
        ),
        (
            ["run", "{file}:server", "--reload"],
            "gemel: --reload needs --http: on stdio, a restart would lose messages of the client",
        ),
        (["read", "{file}:server", "shop://nothing"], "gemel: Resource not found: shop://nothing (-32602)"),
        (
            ["prompt", "{file}:server", "ask"],
            "gemel: Invalid arguments for prompt 'ask': topic: missing (required string) (-32602)",
        ),
        (["list", "{file}:server", "--header", "X: y"], "gemel: --header needs a URL as the target"),
    ],
)
def test_a_mistake_gets_one_line(file: Path, words: list[str], said: str) -> None:
    done = gemel(*(word.replace("{file}", str(file)) for word in words))
    assert done.stderr.strip().splitlines()[-1] == said.replace("{file}", str(file))
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "{file}:server", "price", "item=tea", "count=2"],
        ["{file}:server", "--json", "price", "item=tea", "count=2"],
        ["{file}:server", "price", "--json", "item=tea", "count=2"],
        ["{file}:server", "price", "item=tea", "--json", "count=2"],
        ["{file}:server", "price", "item=tea", "--timeout", "30", "count=2", "--json"],
    ],
)
def test_options_may_stand_anywhere(file: Path, words: list[str]) -> None:
    done = gemel("call", *(word.replace("{file}", str(file)) for word in words))
    assert json.loads(done.stdout)["structuredContent"] == {"price": 5.0}, done.stderr


def test_a_wrong_command_line_ends_with_code_2() -> None:
    assert gemel("call").returncode == gemel("call", "x", "y", "--nothing").returncode == 2


def test_pictures_are_saved_where_the_user_says_and_nothing_is_overwritten(file: Path, tmp_path: Path) -> None:
    command: list[str | Path] = ["call", f"{file}:server", "picture", "--save", tmp_path / "out"]
    assert gemel(*command).returncode == 0
    done = gemel(*command)
    assert done.returncode == 0
    assert done.stdout == "\x1b[2Jred\n[image/png, 4 bytes]\n", "into a pipe a result goes as it is"
    assert f"saved {tmp_path}/out/image-2.png" in done.stderr
    assert (tmp_path / "out" / "image.png").read_bytes() == bytes(range(4))


def test_a_resource_is_read(file: Path, tmp_path: Path) -> None:
    assert gemel("read", f"{file}:server", "shop://tea/stock").stdout == "7\n"
    assert (
        json.loads(gemel("read", f"{file}:server", "shop://tea/stock", "--json").stdout)["contents"][0]["text"] == "7"
    )
    with open(tmp_path / "logo", "wb") as out:
        subprocess.run([sys.executable, "-m", "gemel", "read", f"{file}:server", "shop://logo"], stdout=out, check=True)
    assert (tmp_path / "logo").read_bytes() == bytes(range(256)), "bytes go into a file as they are"


def test_a_prompt_is_got(file: Path) -> None:
    done = gemel("prompt", f"{file}:server", "ask", "topic=tea", "tone=stern")
    assert done.stdout == "user: tea stern\n"


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_nobody_is_asked_where_nobody_sits(file: Path, era: str) -> None:
    """The server learns at once that it can't ask: what isn't declared isn't asked for: a failed tool, or an error."""
    done = gemel("call", f"{file}:server", "favourite", "--era", era)
    assert done.returncode == 1
    assert "Missing required client capability: elicitation" in (done.stdout if era == "2025" else done.stderr)
    assert "run it in a terminal, with the extra cli" in done.stderr


def test_the_usual_name_is_found_among_several_servers(file: Path) -> None:
    assert gemel("list", file).stdout.startswith("shop 3")


def test_a_file_that_runs_its_server_by_itself_is_run_by_the_command(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("from gemel import Server\nmine = Server('mine')\nmine.run()\n")
    assert gemel("list", file).stdout.startswith("mine, protocol ")


def test_a_port_in_use_is_said_in_one_line(file: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = gemel("run", f"{file}:server", "--http", "--port", str(port))
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("words", [["list"], ["call", "x"], ["lock"], ["proxy", "--to", "stdio", "--strict"]])
@pytest.mark.parametrize("target", ["{file}", "{python} {file}", "{config}"])
def test_what_a_server_said_before_it_died_is_shown_once(words: list[str], target: str, tmp_path: Path) -> None:
    file, config = tmp_path / "dead.py", tmp_path / "servers.json"
    file.write_text("raise SystemExit('no database')\n")
    config.write_text(json.dumps({"mcpServers": {"dead": {"command": sys.executable, "args": [str(file)]}}}))
    found = target.format(file=file, python=sys.executable, config=config)
    done = gemel(words[0], found, *words[1:])
    assert (done.returncode, done.stdout) == (1, "")
    own, ours = done.stderr.splitlines()
    assert own == "no database"
    sent = "gemel: initialize got no answer", "gemel: initialize was not sent"  # if it died before that
    assert ours.startswith(tuple(f"{one}: the server process (" for one in sent))
    assert ours.endswith(") exited with code 1; see what it wrote to standard error")


def test_a_call_that_may_have_run_is_said_to(tmp_path: Path) -> None:
    file = tmp_path / "dying.py"
    file.write_text(
        "import os, signal\nfrom gemel import Server\nserver = Server('dying')\n"
        "@server.tool\ndef die() -> None:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = gemel("call", str(file), "die")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gemel: tools/call got no answer: the server process (")
    assert done.stderr.endswith("; the tool may have run\n")

    program = [sys.executable, "-m", "gemel", "run", str(file), "--http", "--port", "0"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = next(line for line in process.stderr if "http://" in line)
        done = gemel("call", re.search(r"http://\S+", url)[0], "die", "--era", "2026")  # type: ignore[index]  # it is there
        process.wait(10)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("; the tool may have run\n")


def test_a_server_that_wants_authorization_gets_it_where_the_command_line_says(tmp_path: Path) -> None:
    """The words of the error are an option of the command."""
    (tmp_path / "closed.py").write_text(CLOSED)
    with subprocess.Popen([sys.executable, tmp_path / "closed.py"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().removeprefix("Serving MCP at ").strip()
        refused, taken = gemel("list", url), gemel("list", url, "--header", "Authorization: Bearer ok")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert refused.returncode == 1
    assert re.fullmatch("gemel: .* wants a login .*--header on the command line\n", refused.stderr)
    assert taken.stdout.startswith("closed, protocol "), taken.stderr


CLOSED = """
from gemel import Refusal, Server

async def authenticate(scope, headers):
    return "me" if headers.get("authorization") == "Bearer ok" else Refusal(401, "who are you?")

server = Server("closed")
server.tool("open")(lambda: None)
server.run("http", port=0, authenticate=authenticate)
"""


def test_an_edit_in_the_same_second_and_of_the_same_length_is_seen(tmp_path: Path) -> None:
    """Python's own bytecode would be taken for that of the new text."""
    path = tmp_path / "small.py"
    for default in ("1", "2"):
        tool = f"@server.tool\ndef f(n: int = {default}) -> int: return n\n"
        path.write_text("from gemel import Server\nserver = Server('x')\n" + tool)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        assert f"f(n: integer = {default})" in gemel("list", str(path)).stdout


def test_a_change_of_a_file_starts_the_server_again(file: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "gemel", "run", f"{file}:server", "--http", "--port", str(port), "--reload"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=file.parent) as process:
        assert process.stderr is not None
        assert "Serving" in process.stderr.readline()
        file.write_text(SERVER.replace('"shop", version="3"', '"shop", version="4"'))
        os.utime(file, (time.time() + 5, time.time() + 5))
        assert "starting again" in process.stderr.readline()
        assert "Serving" in process.stderr.readline()
        assert gemel("list", f"http://127.0.0.1:{port}/mcp").stdout.startswith("shop 4")
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


PARTIAL = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    match message["method"]:
        case "initialize":
            offers = {"resources": {}, "prompts": {}}
            info = {"name": "partial", "version": "1"}
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
        case "resources/list":
            answer["result"] = {"resources": [{"uri": "file:///a", "name": "a"}]}
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"""


def test_a_server_without_one_of_the_lists_that_it_declares_is_listed(tmp_path: Path) -> None:
    (tmp_path / "partial.py").write_text(PARTIAL)
    command = f"{sys.executable} {tmp_path}/partial.py"
    done = gemel("list", command, "--era", "2025")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "partial 1, protocol 2025-11-25\n\nresource file:///a\n"
    assert json.loads(gemel("list", command, "--json").stdout) == {"resources": [{"uri": "file:///a", "name": "a"}]}
    stubs = gemel("stubs", command, "--era", "2025")
    assert (stubs.returncode, stubs.stderr) == (0, "")
    lock = tmp_path / "partial.lock"
    assert gemel("lock", command, "--era", "2025", "--output", str(lock)).returncode == 0
    assert json.loads(lock.read_text())["resources"].keys() == {"file:///a"}
