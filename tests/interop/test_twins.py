"""The example servers and the same servers in FastMCP: one client uses either, and Gemel's has fewer lines of code.

FastMCP's half runs with `make interop`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import CallError, Client, ElicitFormParams, Server, ToolCallError
from tests.docs.serving import asgi
from tests.interop.peers import FOREIGN, locate
from tests.ports import free_port
from tests.serving import over_http
from tests.source import ROOT, read_package
from tools.shape import code_lines

GEMEL = ROOT / "examples" / "servers"
FASTMCP = FOREIGN / "twins"
PEERS = locate()
NAMES = ("notes", "tracker", "backup", "shop", "gateway")
Era = Literal["2025", "2026"]

pytestmark = pytest.mark.timeout(120)  # FastMCP takes seconds to start


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_shorter_than_its_twin(name: str) -> None:
    ours, theirs = (
        next(code_lines(module) for module in read_package(folder) if module.path.stem == name)
        for folder in (GEMEL, FASTMCP)
    )
    print(f"{name}: {ours} lines, FastMCP {theirs}")
    assert ours < theirs


@pytest.fixture(params=["gemel", "fastmcp"])
def side(request: pytest.FixtureRequest) -> str:
    """Whose server it is."""
    if request.param == "fastmcp" and "REQUIRE_PEERS" not in os.environ:
        pytest.skip("FastMCP takes minutes: `make interop`")
    name: str = request.param
    return name


def command(side: str, name: str) -> list[str]:
    """The command line of a server on stdio."""
    if side == "gemel":
        return [sys.executable, str(GEMEL / f"{name}.py")]
    return [str(PEERS.python("fastmcp")), str(FASTMCP / f"{name}.py")]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_notes(side: str, era: Era, tmp_path: Path) -> None:
    env = {"NOTES_DB": str(tmp_path / "notes.db")}
    async with Client(command(side, "notes"), env=env, era=era, stderr="discard") as client:
        assert client.instructions == "Keeps short notes. Search before you add one."
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools["add_note"].input_schema["properties"]) == ["title", "text"]
        assert tools["search_notes"].annotations is not None
        assert tools["search_notes"].annotations.read_only_hint
        for title, text in (("Milk", "Two litres"), ("Tea", "Green")):
            assert (await client.call_tool("add_note", {"title": title, "text": text})).text == f"Saved {title!r}."
        with pytest.raises(ToolCallError, match="A note needs a text"):
            await client.call_tool("add_note", {"title": "Milk", "text": ""})
        notes = (await client.call_tool("search_notes", {"word": "milk"}, returns=list[dict[str, str]])).data
        assert notes == [{"title": "Milk", "text": "Two litres"}]
        assert (await client.read_resource("notes://Tea")).contents[0].text == "Green"
        assert (await client.call_tool("delete_note", {"title": "Tea"})).text == "Deleted 'Tea'."
        with pytest.raises(ToolCallError, match="There is no note 'Tea'"):
            await client.call_tool("delete_note", {"title": "Tea"})
        with pytest.raises(CallError):
            await client.read_resource("notes://Tea")
        prompt = await client.get_prompt("tidy", {"topic": "food"})
        assert "about food" in str(prompt.messages[0].content)


@asynccontextmanager
async def tracker() -> AsyncIterator[str]:
    """The API, which lets nobody in without the token."""
    from fastapi import Depends, FastAPI, Header, HTTPException

    issues = [{"number": 1, "title": "It is slow", "state": "open"}]

    def check(authorization: str = Header("")) -> None:
        if authorization != "Bearer secret":
            raise HTTPException(401)

    app = FastAPI(dependencies=[Depends(check)])

    @app.get("/issues")
    def list_issues(state: str = "") -> dict[str, Any]:
        return {"issues": [issue for issue in issues if state in ("", issue["state"])]}

    @app.post("/issues", status_code=201)
    def open_issue(issue: dict[str, str]) -> dict[str, Any]:
        issues.append({"number": len(issues) + 1, "title": issue["title"], "state": "open"})
        return issues[-1]

    @app.get("/issues/{number}")
    def get_issue(number: int) -> dict[str, Any]:
        if number > len(issues):
            raise HTTPException(404, "There is no such issue")
        return issues[number - 1]

    async with asgi(app) as url:
        yield url


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_tracker(side: str, era: Era) -> None:
    async with tracker() as url:
        env = {"TRACKER_URL": url, "TRACKER_TOKEN": "secret", "TRACKER_JSON": str(GEMEL / "tracker.json")}
        async with Client(command(side, "tracker"), env=env, era=era, stderr="discard") as client:
            assert sorted(tool.name for tool in await client.list_tools()) == ["get_issue", "list_issues", "open_issue"]
            title = {"title": "It is loud"}
            # FastMCP takes the members of a body as arguments, where their names are those of no parameter.
            opened = await client.call_tool("open_issue", title if side == "fastmcp" else {"body": title})
            assert opened.structured_content == {"number": 2, "title": "It is loud", "state": "open"}
            listed = await client.call_tool("list_issues", {"state": "open"})
            assert listed.structured_content is not None
            assert [issue["number"] for issue in listed.structured_content["issues"]] == [1, 2]
            got = await client.call_tool("get_issue", {"number": 1})
            assert got.structured_content == {"number": 1, "title": "It is slow", "state": "open"}
            with pytest.raises(ToolCallError, match=r"404(.|\n)*There is no such issue"):
                await client.call_tool("get_issue", {"number": 9})


def folders(path: Path) -> set[str]:
    """The names of the folders in a folder."""
    return {inner.name for inner in path.iterdir() if inner.is_dir()}


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_backup(side: str, era: Era, tmp_path: Path) -> None:
    if side == "fastmcp" and era == "2026":
        pytest.skip("FastMCP's ctx.elicit refuses clients of the stateless era")
    for name in ("a.txt", "b.txt", ".hidden"):
        (tmp_path / name).write_text(name)
    answers: dict[str, Any] = {"How": {"name": "first"}}
    progress: list[str | None] = []

    def answer(form: ElicitFormParams) -> dict[str, Any] | None:
        given: dict[str, Any] | None = answers[form.message.split()[0]]
        return given

    async with Client(command(side, "backup"), era=era, on_elicit=answer, stderr="discard") as client:

        async def back_up() -> str:
            result = await client.call_tool(
                "back_up", {"folder": str(tmp_path)}, on_progress=lambda one: progress.append(one.message)
            )
            return result.text

        assert await back_up() == "Copied 2 files to first."
        assert progress == ["a.txt", "b.txt"]
        answers.update(How={"name": "second", "hidden": True}, Delete={"value": False})
        assert await back_up() == "Copied 3 files to second."
        assert folders(tmp_path) == {"first", "second"}
        answers.update(How={"name": "third"}, Delete={"value": True})
        assert await back_up() == "Copied 2 files to third."
        assert folders(tmp_path) == {"third"}
        answers.update(How=None)
        with pytest.raises(ToolCallError):
            await back_up()
        with pytest.raises(ToolCallError, match="There is no folder"):
            await client.call_tool("back_up", {"folder": str(tmp_path / "nowhere")})


@asynccontextmanager
async def uvicorn(side: str) -> AsyncIterator[str]:
    """The shop on a free port."""
    import asyncio
    import urllib.request

    python, folder = command(side, "shop")
    port = free_port()
    words = [python, "-m", "uvicorn", "shop:app", "--port", str(port), "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(*words, cwd=Path(folder).parent)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.returncode is None, "the application did not start"
            try:
                await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/stock/tea").close())
                break
            except OSError:
                await asyncio.sleep(0.1)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_shop(side: str, era: Era) -> None:
    from tests.docs.serving import get

    async with uvicorn(side) as url:
        async with Client(f"{url}/mcp/", era=era) as client:
            assert (await client.call_tool("sell", {"item": "tea", "number": 2}, returns=int)).data == 3
            with pytest.raises(ToolCallError, match="There are only 3 of tea"):
                await client.call_tool("sell", {"item": "tea", "number": 4})
        assert await get(f"{url}/stock/tea") == "3"


NOTES = Server("notes")


@NOTES.tool
async def count(word: str) -> dict[str, int]:
    """Count the letters of a word."""
    return {"letters": len(word)}


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_gateway(side: str, era: Era, tmp_path: Path) -> None:
    """In front of a server on stdio that others wrote, one over HTTP, and one that is dead."""
    async with over_http(NOTES) as url:
        servers: dict[str, Any] = {"letters": {"url": url}, "dead": {"command": "there-is-no-such-program"}}
        if "REQUIRE_PEERS" in os.environ:
            servers["clock"] = {"command": PEERS.time_server[0], "args": PEERS.time_server[1:]}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        env = {"GATEWAY": str(tmp_path / "mcp.json")}
        async with Client(command(side, "gateway"), env=env, era=era, stderr="discard") as client:
            names = {tool.name for tool in await client.list_tools()}
            counted = await client.call_tool("letters_count", {"word": "tea"})
            assert counted.structured_content == {"letters": 3}
            assert "letters_count" in names
            if "clock" in servers:
                assert "clock_convert_time" in names
                times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
                assert "+9" in (await client.call_tool("clock_convert_time", times)).text
