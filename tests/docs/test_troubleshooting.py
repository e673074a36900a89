"""The page on troubleshooting quotes what its readers see: each message is produced here, by the mistake that it is about."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import gemel.sync
from gemel import Client, Context, Server
from gemel.auth import StaticTokens
from gemel.testing import ScriptedPeer
from tests.plain_installation import PlainInstallation
from tests.ports import free_port
from tests.serving import over_http
from tests.source import ROOT

PAGE = ROOT / "docs" / "how-to" / "troubleshooting.md"
FORECAST = '''\
from gemel import Context, Server

server = Server("weather")


@server.tool
async def forecast(city: str, days: int = 3) -> str:
    """The weather in a city."""
    return f"{city}: sunny"
'''
#: Code in a cell of a table; a message that has backticks stands between two.
_CODE = re.compile(r"``(?P<long> ?.+?) ?``(?!`)|`(?P<short>[^`]+)`")


def quotes() -> list[str]:
    """The messages of the page: the code in the first column of its tables."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = [_CODE.search(row.split(" | ")[0]) for row in rows]
    return [(one["long"] or one["short"]).strip() for one in found if one]


def matches(quote: str, text: str) -> bool:
    """Whether a message is the quoted one; `…` stands for names and values."""
    parts = [re.escape(" ".join(part.split())) for part in re.split(r" ?… ?", quote)]
    return re.search(".*".join(parts), " ".join(text.split())) is not None


# ---------------------------------------------------------------- programs


def run(folder: Path, *words: str, **files: str) -> str:
    """What a program prints that gets no input."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def serve(folder: Path, *words: str, **files: str) -> str:
    """What `gemel run weather.py` prints."""
    return run(folder, "-m", "gemel", "run", "weather.py", *words, **files)


def no_annotation(folder: Path) -> str:
    return serve(folder, weather=f"{FORECAST}\n@server.tool\ndef broken(city): ...\n")


def no_server(folder: Path) -> str:
    return serve(folder, weather="def make_server(): ...\n")


def several_servers(folder: Path) -> str:
    return serve(folder, weather='from gemel import Server\nnorth = Server("north")\nsouth = Server("south")\n')


def failing_lifespan(folder: Path) -> str:
    text = "from contextlib import asynccontextmanager\nfrom gemel import Server\n@asynccontextmanager\nasync def opened(server):\n"
    return serve(
        folder,
        weather=f'{text}    raise OSError("no database")\n    yield\n\nserver = Server("weather", lifespan=opened)\n',
    )


def not_importable(folder: Path) -> str:
    return serve(folder, weather="import requests_of_nobody\n")


def relative_import(folder: Path) -> str:
    return serve(folder, weather="from .tools import forecast\n")


def imported_twice(folder: Path) -> str:
    tools = 'from weather import server\n@server.tool\ndef forecast(city: str) -> str:\n    return "sunny"\n'
    text = 'from gemel import Server\nserver = Server("weather")\nimport tools\nif __name__ == "__main__":\n    server.run()\n'
    return run(folder, "weather.py", weather=text, tools=tools)


def offers_nothing(folder: Path) -> str:
    return serve(folder, weather='from gemel import Server\nserver = Server("weather")\n')


def not_an_application(folder: Path) -> str:
    pytest.importorskip("uvicorn")
    return run(folder, "-m", "uvicorn", "weather:server", "--port", "0", weather=FORECAST)


def port_in_use(folder: Path) -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        return serve(folder, "--http", "--port", str(port), weather=FORECAST).replace(str(port), "8000")


def running_loop(folder: Path) -> str:
    return run(
        folder,
        "main.py",
        main=f"import asyncio\n{FORECAST}\nasync def main():\n    server.run()\n\nasyncio.run(main())\n",
    )


def name_clash(folder: Path) -> str:
    return serve(folder, weather=f'{FORECAST}\n@server.tool("forecast")\ndef again(city: str) -> str: ...\n')


def misspelt_option(folder: Path) -> str:
    return serve(folder, weather='from gemel import Server\nserver = Server("weather", instruction="…")\n')


def sessions_of_workers(folder: Path) -> str:
    return run(folder, "weather.py", weather=f'{FORECAST}\nserver.run("http", port=0, workers=4, sessions=True)\n')


def memory_of_workers(folder: Path) -> str:
    text = 'from gemel import RateLimit, Server\nserver = Server("weather", middleware=[RateLimit(10)])\n'
    return run(folder, "weather.py", weather=f'{text}server.run("http", port=0, workers=2)\n')


def plain(folder: Path, *words: str) -> str:
    """What a program prints where no extra is installed."""
    packages = folder / "packages"
    packages.mkdir()
    done = PlainInstallation(packages).run(*words)
    return done.stdout + done.stderr


def missing_metrics(folder: Path) -> str:
    return plain(folder, "-c", "import gemel; gemel.metrics_app()")


def missing_auth(folder: Path) -> str:
    return plain(
        folder,
        "-c",
        "from gemel.auth import JWTAuth; JWTAuth(issuer='https://a.example', audience='https://b.example/mcp')",
    )


# ---------------------------------------------------------------- clients


async def failure(target: Any, **options: Any) -> str:
    """The error of a client that connects."""
    with pytest.raises(gemel.GemelError) as caught:
        async with Client(target, **options):
            pass
    return str(caught.value)


def weather() -> Server:
    """The server of the page."""
    server = Server("weather")

    @server.tool
    async def forecast(city: str, days: int = 3) -> str:
        return f"{city}: sunny"

    @server.tool
    async def buy(item: str) -> str:
        return {"sun": "1"}[item]

    @server.tool
    async def wait() -> str:
        await asyncio.sleep(60)
        return ""

    @server.tool
    async def forget(ctx: Context[Any]) -> str:
        ctx.elicit("Which day?", {"type": "object", "properties": {"day": {"type": "string"}}})
        return ""

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit("Which day?")

    @server.tool
    async def remember(ctx: Context[Any]) -> str:
        await ctx.session_state.set("city", "Oslo")
        return ""

    return server


async def result_of(name: str, arguments: dict[str, Any], **options: Any) -> str:
    """The error of a call."""
    async with Client(weather(), **options) as client:
        with pytest.raises(gemel.GemelError) as caught:
            await client.call_tool(name, arguments)
    return str(caught.value)


async def no_program(folder: Path) -> str:
    return await failure(["weather-of-nobody"])


async def crash_at_start(folder: Path) -> str:
    (folder / "weather.py").write_text("1 / 0\n", encoding="utf-8")
    return await failure([sys.executable, str(folder / "weather.py")], stderr="discard")


async def nobody_listens(folder: Path) -> str:
    port = free_port()
    return (await failure(f"http://127.0.0.1:{port}/mcp")).replace(str(port), "8000")


async def too_slow(folder: Path) -> str:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        text = await failure(f"http://127.0.0.1:{port}/mcp", limits=gemel.Limits(connect=0.5))
    return text.replace(str(port), "8000").replace("0.5 seconds", "30 seconds")


async def other_era(folder: Path) -> str:
    return await failure(Server("weather", eras=["2026"]), era="2025")


async def other_revision(folder: Path) -> str:
    async def from_the_future(peer: ScriptedPeer) -> None:
        request = await peer.expect("server/discover")
        data = {"supported": ["2099-01-01"], "requested": "2026-07-28"}
        await peer.answer(request, error={"code": -32022, "message": "Unsupported protocol version", "data": data})

    async with ScriptedPeer(from_the_future) as peer:
        return await failure(peer)


async def credentials_in_a_url(folder: Path) -> str:
    return await failure("http://ann:secret@127.0.0.1:8000/mcp")


async def no_token(folder: Path) -> str:
    server = Server("weather", auth=StaticTokens({"secret-of-a-test": "ann"}))
    async with over_http(server) as url:
        return await failure(url)


async def wrong_path(folder: Path) -> str:
    async with over_http(weather()) as url:
        return await failure(url.replace("/mcp", "/other"))


async def wrong_host(folder: Path) -> str:
    return await failure(weather().http_app(), url="http://mcp.example.com/mcp")


async def wrong_origin(folder: Path) -> str:
    async with over_http(weather()) as url:
        return await failure(url, headers={"Origin": "https://app.example.com"})


async def wrong_type(folder: Path) -> str:
    return await result_of("forecast", {"city": "Oslo", "days": "soon"})


async def unknown_tool(folder: Path) -> str:
    return await result_of("forcast", {"city": "Oslo"})


async def unexpected_failure(folder: Path) -> str:
    return await result_of("buy", {"item": "moon"})


async def no_answer(folder: Path) -> str:
    text = await result_of("wait", {}, limits=gemel.Limits(call_idle=0.2))
    return text.replace("0.2 seconds", "60 seconds")


async def not_awaited(folder: Path) -> str:
    return await result_of("forget", {}, on_elicit=lambda params: {"day": "Friday"}, raise_exceptions=True)


async def no_session(folder: Path) -> str:
    return await result_of("remember", {}, era="2026", raise_exceptions=True)


async def no_forms(folder: Path) -> str:
    return await result_of("ask", {}, era="2025")


async def no_session_to_ask_in(folder: Path) -> str:
    async with (
        over_http(weather(), sessions=False) as url,
        Client(url, era="2025", on_elicit=lambda form: None) as client,
    ):
        return (await client.call_tool("ask", raise_on_error=False)).text


async def not_connected(folder: Path) -> str:
    with pytest.raises(gemel.NotSent) as caught:
        await Client(weather()).call_tool("forecast", {"city": "Oslo"})
    return str(caught.value)


#: What readers do, by the beginning of a part of the message that only one row of the page has.
MISTAKES: dict[str, Callable[[Path], str] | Callable[[Path], Awaitable[str]]] = {
    "has no annotation": no_annotation,
    "has no gemel.Server": no_server,
    "has several servers": several_servers,
    "The lifespan of": failing_lifespan,
    "can't be imported": not_importable,
    "No module named": not_importable,
    "add an empty __init__.py": relative_import,
    "was imported twice": imported_twice,
    "offers nothing": offers_nothing,
    "not an ASGI application": not_an_application,
    "the port is in use": port_in_use,
    "run() starts an event loop": running_loop,
    "There is a tool 'forecast' already": name_clash,
    "has no option": misspelt_option,
    "4 workers can't share": sessions_of_workers,
    "Several workers can't share": memory_of_workers,
    "… needs the extra": missing_metrics,
    "… need the extra": missing_auth,
    "there is no program": no_program,
    "the server process": crash_at_start,
    "Is the server running?": nobody_listens,
    "within 30 seconds": too_slow,
    "speaks only the stateless era": other_era,
    "No protocol revision in common": other_revision,
    "holds a user name or password": credentials_in_a_url,
    "HTTP 401": no_token,
    "Nothing is served here": wrong_path,
    "is not served here": wrong_host,
    "may not call this server": wrong_origin,
    "Invalid arguments": wrong_type,
    "Unknown tool": unknown_tool,
    "failed unexpectedly": unexpected_failure,
    "got no answer … 60 seconds": no_answer,
    "was not awaited": not_awaited,
    "have no session": no_session,
    "elicitation; the tool": no_forms,
    "elicitation, which needs": no_session_to_ask_in,
    "the client is not connected": not_connected,
}


@pytest.mark.parametrize("part", MISTAKES)
async def test_the_page_quotes_the_message_that_a_mistake_leads_to(part: str, tmp_path: Path) -> None:
    (quote,) = [quote for quote in quotes() if part in quote]
    made = MISTAKES[part](tmp_path)
    text = made if isinstance(made, str) else await made
    assert matches(quote, text), f"{quote}\n{text}"


def test_every_message_of_the_page_is_one_of_a_mistake() -> None:
    assert [quote for quote in quotes() if not any(part in quote for part in MISTAKES)] == []


def test_the_same_message_is_written_without_async(tmp_path: Path) -> None:
    with pytest.raises(gemel.NotSent, match=r"^Nothing was sent: the client is not connected$"):
        gemel.sync.Client(weather()).call_tool("forecast", {"city": "Oslo"})
