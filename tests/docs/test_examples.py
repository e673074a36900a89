"""The examples run as their first lines say, and end well."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Client
from tests.source import ROOT

EXAMPLES = ROOT / "examples"


def run(*words: str, stdin: str = "", folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run an example as a user would, from the root of the checkout or another folder."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=60, input=stdin)


def test_the_demo_shows_both_eras_on_three_transports_and_ends_with_0() -> None:
    done = run("examples/demo.py")
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "Memory, era 2025",
        "Memory, era 2026",
        "stdio, era 2025",
        "stdio, era 2026",
        "HTTP, era 2025",
        "HTTP, era 2026",
    ):
        assert part in done.stdout
    for shown in ("discovery", "typed call", "structured", "progress", "tool error", "elicitation", "cancel"):
        assert done.stdout.count(f"  {shown} ") == 6
    assert "\x1b" not in done.stdout, "no colours when nobody sees them"
    assert not done.stderr


def test_the_demo_ends_with_1_when_something_is_not_as_it_is_shown(tmp_path: Path) -> None:
    text = (EXAMPLES / "demo.py").read_text(encoding="utf-8")
    (tmp_path / "demo_server.py").write_text((EXAMPLES / "demo_server.py").read_text(encoding="utf-8"))
    (tmp_path / "demo.py").write_text(text.replace("[15.5, 14.5]", "[15.5, 99.0]"))
    done = run(str(tmp_path / "demo.py"))
    assert done.returncode == 1
    assert "A check failed: the forecast is" in done.stdout


def test_the_client_calls_the_demo_server() -> None:
    done = run("examples/client.py")
    assert done.returncode == 0, done.stderr
    assert "Oslo: Monday 15.5°, Tuesday 14.5°" in done.stdout
    assert "the outcome is unknown" in done.stdout
    assert "the tool says: Nobody knows 30 days ahead" in done.stdout


def test_a_handler_that_asks_reserves_once_in_both_eras() -> None:
    done = run("examples/elicitation.py")
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("era 2026")
    assert before.count("reserve(") == after.count("reserve(") == 1
    assert before.count("run ") == 1
    assert after.count("run ") == 3


def test_a_shop_asks_by_page_and_charges_once_in_both_eras() -> None:
    done = run("examples/ask_by_page.py")
    assert done.returncode == 0, done.stderr
    for number, era in enumerate(done.stdout.split("era ")[1:], 1):
        assert era.count("bob opens the link: 403") == 2
        assert era.count("ann answers") == 2
        assert f"A large shirt, wrapped: receipt {number}" in era


def test_a_bot_answers_many_people_from_a_pool_of_threads() -> None:
    people = [f"person {number}" for number in range(20)]
    lines = [f"{person}: forecast City{number}" for number, person in enumerate(people)]
    done = run("examples/bot.py", stdin="\n".join([*lines, "ada: compare Oslo", "hello", ""]))
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == 22
    for number, person in enumerate(people):
        assert f"@{person} City{number}, day 1: sunny, City{number}, day 2: sunny" in answers
    assert "@ada Oslo, day 1: sunny, Oslo, day 2: sunny" in answers
    assert "@you I understand: forecast CITY, compare CITY CITY…" in answers


def test_an_application_is_tested_in_three_styles() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=EXAMPLES / "fastapi_tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 passed" in done.stdout
    done = run("-m", "unittest", "test_with_unittest", folder=EXAMPLES / "fastapi_tests")
    assert done.returncode == 0, done.stdout + done.stderr


async def test_the_first_server_serves() -> None:
    async with Client(EXAMPLES / "weather_server.py") as client:
        days = (await client.call_tool("forecast", {"city": "Oslo", "days": 1}, returns=list[str])).data
    assert days == ["Oslo, day 1: sunny"]


def answer(form: Any) -> dict[str, str]:
    return {"value": "Ada"}


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_tour_offers_every_feature(era: Any) -> None:
    said: list[Any] = []
    told: list[float] = []
    client = Client(
        EXAMPLES / "everything_server.py", era=era, on_elicit=answer, on_log=lambda message: said.append(message.data)
    )
    async with client:
        names = [tool.name for tool in await client.list_tools()]
        assert len(await client.list_prompts()) > 3
        assert "restock" not in names
        assert {"shelf", "map_route", "garden_plant"} <= set(names)
        assert (
            await client.call_tool("crunch", on_progress=lambda one: told.append(one.progress), returns=int)
        ).data == 3
        assert told == [1, 2, 3]
        assert (await client.call_tool("welcome", {"city": "Oslo"}, returns=str)).data == "Ada, welcome to Oslo!"
        assert (await client.call_tool("sell", {"item": "tea"}, returns=int)).data == 2
        assert (await client.call_tool("sell", {"item": "hat"}, raise_on_error=False)).text == (
            "There is no hat. There is: tea, cups"
        )
        assert (await client.call_tool("shelf")).structured_content == {"tea": 2, "cups": 2}
        assert (await client.call_tool("garden_plant", {"seed": "rose"}, returns=str)).data == "planted rose"
        assert (await client.call_tool("map_route", {"start": "a", "end": "b"}, returns=str)).data == "a to b"
        await client.call_tool("chat")
        assert said == ["somebody called"]
        assert (await client.request("acme/search", {"words": "u"}))["found"] == ["cups"]
        assert (await client.read_resource("test://lines/2")).contents[0].text == "line 0\nline 1\n"
        source = (await client.read_resource("examples:///weather_server.py")).contents[0].text
        assert source == (EXAMPLES / "weather_server.py").read_text()


@asynccontextmanager
async def uvicorn(app: str) -> AsyncIterator[int]:
    """The port of an application that runs under uvicorn's own command line."""
    listening = socket.create_server(("127.0.0.1", 0))
    command = [sys.executable, "-m", "uvicorn", app, "--fd", str(listening.fileno()), "--log-level", "warning"]
    process = await asyncio.create_subprocess_exec(*command, cwd=EXAMPLES, pass_fds=[listening.fileno()])
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("path", ["/tools/mcp", "/tools/", "/tools"])
async def test_a_mounted_server_is_found_below_its_mount(path: str) -> None:
    async with uvicorn("mounted:app") as port, Client(f"http://127.0.0.1:{port}{path}") as client:
        assert (await client.call_tool("add", {"a": 2, "b": 3}, returns=int)).data == 5


async def test_a_mounted_server_ends_its_streams_when_the_process_is_to_end() -> None:
    async with uvicorn("mounted:app") as port:
        client = Client(f"http://127.0.0.1:{port}/tools/mcp", reconnect=False)
        await client.connect()
        listening = client.listen(tools=True)
        await listening.__aenter__()
    # The process has ended here, although a stream was open.
    await listening.close()
    await client.close()
