"""`gemel proxy` in processes of its own: the reference server behind one proxy, or behind two that turn back.

The same checks run directly, through one proxy and through the chain; what they find must be the same.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Changed, Client, ElicitFormParams, Implementation, PeerError, ProgressParams, ToolCallError
from tests.ports import free_port
from tests.proxy.foreign import PEERS, listening, needs_everything, needs_official, output_of

GEMEL = [sys.executable, "-m", "gemel"]
EVERYTHING = " ".join([*PEERS.everything, "stdio"])

Found = dict[str, Any]


def answer(form: ElicitFormParams) -> dict[str, Any]:
    return {"name": "Ann", "integer": 7, "check": True}


ANSWERING: dict[str, Any] = {
    "on_elicit": answer,
    "on_elicit_url": lambda page: True,
    "on_sample": lambda params: "sampled words",
    "on_roots": ["file:///tmp"],
    "info": Implementation(name="tester", version="1"),
}


async def check(client: Client) -> Found:
    """Everything that the reference server does, as plain values."""
    found: Found = {}
    tools = {tool.name: tool for tool in await client.list_tools()}
    found["tools"] = sorted(tools)
    found["schema"] = tools["get-sum"].input_schema
    found["output schema"] = tools["get-structured-content"].output_schema
    found["prompts"] = [(one.name, len(one.arguments or ())) for one in await client.list_prompts()]
    found["resources"] = [one.uri for one in await client.list_resources()]
    found["templates"] = [one.uri_template for one in await client.list_resource_templates()]
    found["echo"] = (await client.call_tool("echo", {"message": "hé\n"})).text
    found["sum"] = (await client.call_tool("get-sum", {"a": 2.5, "b": 3})).text
    found["structured"] = sorted((await client.call_tool("get-structured-content", {"location": "New York"})).data)
    image = await client.call_tool("get-tiny-image")
    found["image"] = [type(block).__name__ for block in image.content]
    links = await client.call_tool("get-resource-links", {"count": 3})
    found["links"] = [getattr(block, "uri", None) for block in links.content]
    found["read"] = [one.mime_type for one in (await client.read_resource(found["resources"][0])).contents]
    got = await client.get_prompt("args-prompt", {"city": "Oslo", "state": "X"})
    found["prompt"] = got.messages[0].content.text  # type: ignore[union-attr]  # it is a text
    completed = await client.complete(prompt="completable-prompt", argument="department", value="E")
    found["completion"] = completed.values
    found |= await check_failures(client)
    found |= await check_questions(client)
    return found


async def check_failures(client: Client) -> Found:
    found: Found = {}
    try:
        found["wrong arguments"] = (await client.call_tool("get-sum", {"a": "x"})).text
    except ToolCallError as exc:
        found["wrong arguments"] = str(exc).partition("\n")[0]
    for name, asking in (
        ("unknown prompt", client.get_prompt("nowhere")),
        ("unknown resource", client.read_resource("demo://nowhere")),
    ):
        try:
            await asking
        except PeerError as exc:
            found[name] = exc.message
    return found


async def check_questions(client: Client) -> Found:
    found: Found = {}
    told: list[ProgressParams] = []
    arguments = {"duration": 0.3, "steps": 3}
    long = await client.call_tool("trigger-long-running-operation", arguments, on_progress=told.append)
    found["long"] = long.text
    found["progress"] = [(one.progress, one.total) for one in told]
    elicited = await client.call_tool("trigger-elicitation-request")
    found["elicited"] = "Name: Ann" in elicited.text
    sampled = await client.call_tool("trigger-sampling-request", {"prompt": "say", "maxTokens": 10})
    found["sampled"] = "sampled words" in sampled.text
    roots = await client.call_tool("get-roots-list")
    found["roots"] = "file:///tmp" in roots.text
    return found


@asynccontextmanager
async def on_http(command: str, *options: str) -> AsyncIterator[str]:
    """`gemel proxy` from a command to a URL."""
    port = free_port()
    async with listening([*GEMEL, "proxy", command, "--to", "http", "--port", str(port), *options], port):
        yield f"http://127.0.0.1:{port}/mcp"


def on_stdio(url: str, *options: str) -> list[str]:
    """`gemel proxy` from a URL to standard input and output."""
    return [*GEMEL, "proxy", url, "--to", "stdio", *options]


_direct: Found = {}


@pytest.fixture
async def direct() -> Found:
    """What the checks find without any proxy; looked at once."""
    if not _direct:
        async with Client([*PEERS.everything, "stdio"], era="2025", **ANSWERING) as client:
            await settled(client)
            _direct.update(await check(client))
    return _direct


async def settled(client: Client) -> None:
    """The reference server adds tools when it knows its client, and asks it for its roots after a while."""
    async with asyncio.timeout(10):
        while len(await client.list_tools(cache="bypass")) < 15:  # noqa: ASYNC110 - not for all eras
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


@needs_everything
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_through_a_proxy_over_http_everything_is_as_without(era: Any, direct: Found) -> None:
    async with on_http(EVERYTHING) as url, Client(url, era=era, **ANSWERING) as client:
        assert client.server_info is not None
        assert client.server_info.name == "mcp-servers/everything"
        await settled(client)
        assert await check(client) == direct


@needs_everything
@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("between", ["2025", "2026"])
async def test_through_a_chain_that_turns_back_everything_is_as_without(era: Any, between: str, direct: Found) -> None:
    """stdio → HTTP of one era → stdio again, for clients of either era."""
    async with on_http(EVERYTHING) as url, Client(on_stdio(url, "--era", between), era=era, **ANSWERING) as client:
        await settled(client)
        assert await check(client) == direct


@needs_everything
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_changes_come_through_the_chain(era: Any) -> None:
    """SUB-13, SUB-15. The server switches updates on for one session, and the requests between the proxies have none."""
    uri = "demo://resource/dynamic/text/1"
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(on_http(EVERYTHING, "--single-user"))
        client = await stack.enter_async_context(Client(on_stdio(url), era=era, **ANSWERING))
        async with client.listen(resources=[uri]) as changes:
            await client.call_tool("toggle-subscriber-updates")
            async with asyncio.timeout(20):
                assert await anext(changes) == Changed("resource", uri)
            await client.call_tool("toggle-subscriber-updates")


SLOW = """
import asyncio, sys
from gemel import Context, Server
server = Server("slow")

@server.tool
async def slow(ctx: Context, file: str) -> str:
    await ctx.report_progress(1, 2, "begun")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        open(file, "w").write("stopped")
        raise
    return ""

server.run(*sys.argv[1:2], **({"port": int(sys.argv[2])} if sys.argv[2:] else {}))
"""


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("leave", ["cancel", "close"])
async def test_cancelling_at_one_end_of_the_chain_stops_the_handler_at_the_other(
    era: Any, leave: str, tmp_path: Path
) -> None:
    """CANC-03, CANC-06, MHTTP-13."""
    (tmp_path / "slow.py").write_text(SLOW)
    begun = asyncio.Event()
    async with on_http(f"{sys.executable} {tmp_path / 'slow.py'}") as url:
        client = Client(on_stdio(url), era=era)
        async with client:
            arguments = {"file": str(tmp_path / "end")}
            call = asyncio.create_task(client.call_tool("slow", arguments, on_progress=lambda one: begun.set()))
            await asyncio.wait_for(begun.wait(), 10)
            if leave == "cancel":
                call.cancel()
            else:
                await client.close()
            await written(tmp_path / "end")
            await asyncio.wait([call])


async def written(file: Path) -> None:
    async with asyncio.timeout(10):
        while not file.exists():  # noqa: ASYNC110, ASYNC240 - another process writes it
            await asyncio.sleep(0.02)


OFFICIAL = """
import asyncio, json, sys
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import ElicitResult

async def on_elicit(context, params):
    return ElicitResult(action="accept", content={"name": "Ann"})

async def main():
    told = []
    async def on_progress(progress, total, message):
        told.append([progress, total])
    target = sys.argv[2] if sys.argv[2].startswith("http") else StdioServerParameters(command=sys.argv[2], args=sys.argv[3:])
    mode = "legacy" if sys.argv[1] == "2025" else "auto"
    async with Client(target, mode=mode, elicitation_callback=on_elicit) as client:
        for _ in range(100):
            if "trigger-elicitation-request" in [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]:
                break
            await asyncio.sleep(0.05)
        echo = await client.call_tool("echo", {"message": "x"})
        long = {"duration": 0.2, "steps": 2}
        await client.call_tool("trigger-long-running-operation", long, progress_callback=on_progress)
        elicited = await client.call_tool("trigger-elicitation-request", {})
        print(json.dumps({"revision": client.protocol_version, "name": client.server_info.name, "told": told,
                          "echo": echo.content[0].text, "elicited": "Ann" in json.dumps([c.text for c in elicited.content])}))

asyncio.run(main())
"""


@needs_everything
@needs_official
@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_the_official_client_uses_the_reference_server_through_proxies(era: str, way: str) -> None:
    async with on_http(EVERYTHING) as url:
        target = [url] if way == "http" else on_stdio(url)
        found = json.loads(await output_of([str(PEERS.peers_python), "-c", OFFICIAL, era, *target]))
    assert found["name"] == "mcp-servers/everything"
    assert (found["revision"] >= "2026") == (era == "2026")
    assert (found["echo"], found["elicited"], found["told"]) == ("Echo: x", True, [[1, 2], [2, 2]])


async def test_the_first_transport_is_proxied_too() -> None:
    """VER-22: from a stdio server to HTTP+SSE."""
    port = free_port()
    program = "from gemel import Server; s = Server('s'); s.tool('hello')(lambda: 'hello'); s.run()"
    command = f"{sys.executable} -c {json.dumps(program)}"
    proxy = [*GEMEL, "proxy", command, "--to", "http", "--port", str(port), "--sse-path", "/sse"]
    async with listening(proxy, port), Client(f"http://127.0.0.1:{port}/sse") as client:
        assert client.era == "2025"
        assert (await client.call_tool("hello")).text == "hello"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://127.0.0.1:9/mcp", "--strict"], "No connection to 127.0.0.1:9"),
        (["no-such-program-here", "--to", "stdio", "--strict"], "there is no program"),
        (["http://127.0.0.1:9/mcp", "--env", "A=1"], "--env needs a command line"),
        (["python x", "--env", "NOT_SET_HERE"], "the variable is not set"),
        (["python x", "--to", "stdio", "--sse-path", "/x"], "--sse-path needs --to http"),
    ],
)
async def test_what_keeps_a_proxy_from_starting_is_said_in_one_line(arguments: list[str], words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *GEMEL, "proxy", *arguments, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert words in err.decode()
    assert err.count(b"\n") == 1
