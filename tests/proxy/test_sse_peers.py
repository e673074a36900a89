"""HTTP+SSE against programs of others: the official SDK on either side, and the reference server."""

from __future__ import annotations

import asyncio
import json
import sys

from gemel import Client
from tests.ports import free_port
from tests.proxy.foreign import PEERS, listening, needs_everything, needs_official, output_of
from tests.transports.http_rig import Log, make_server, serving

SERVER = """
import sys
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
server = MCPServer("official", version="1")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

@server.tool()
async def count(ctx: Context, steps: int) -> str:
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "counted"

@server.tool()
async def roots(ctx: Context) -> str:
    return str((await ctx.session.list_roots()).roots[0].uri)

server.run("sse", port=int(sys.argv[1]))
"""

CLIENT = """
import asyncio, json, sys
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp_types import ListRootsResult, Root

async def on_roots(context):
    return ListRootsResult(roots=[Root(uri="file:///r")])

async def main(url):
    told = []
    async def on_progress(progress, total, message):
        told.append([progress, total])
    async with sse_client(url) as streams, ClientSession(*streams, list_roots_callback=on_roots) as session:
        found = await session.initialize()
        added = await session.call_tool("add", {"a": 2, "b": 3})
        asked = await session.call_tool("ask", {})
        await session.call_tool("stream", {"count": 3}, progress_callback=on_progress)
        tools = [tool.name for tool in (await session.list_tools()).tools]
    print(json.dumps({"revision": found.protocol_version, "name": found.server_info.name, "tools": tools, "told": told,
                      "added": added.content[0].text, "asked": asked.content[0].text}))

asyncio.run(main(sys.argv[1]))
"""


@needs_official
async def test_the_official_server_is_found_and_used() -> None:
    """VER-21, HSSE-03."""
    command = [str(PEERS.peers_python), "-c", SERVER, str(port := free_port())]
    async with listening(command, port):
        client = Client(f"http://127.0.0.1:{port}/sse", on_roots=["file:///r"])
        async with client:
            assert client.server_info is not None
            assert (client.era, client.server_info.name) == ("2025", "official")
            assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
            assert (await client.call_tool("roots")).text.rstrip("/") == "file:///r"
            told: list[float] = []
            await client.call_tool("count", {"steps": 3}, on_progress=lambda one: told.append(one.progress))
            assert told == [1, 2, 3]


@needs_official
async def test_the_official_client_is_served() -> None:
    """HSSE-01, HSSE-02, HSSE-04, VER-22."""
    log = Log()
    log.gate.set()
    async with serving(make_server(log), sse_path="/sse") as site:
        command = [str(PEERS.peers_python), "-c", CLIENT, f"http://127.0.0.1:{site.port}/sse"]
        found = json.loads(await output_of(command))
    assert (found["name"], found["added"], found["asked"]) == ("rig", "5", "file:///r")
    assert found["told"] == [[0, 3], [1, 3], [2, 3]]
    assert "wait" in found["tools"]


@needs_everything
async def test_the_reference_server_is_found_and_used() -> None:
    """VER-21."""
    port = free_port()
    async with (
        listening([*PEERS.everything, "sse"], port, PORT=str(port)),
        Client(f"http://127.0.0.1:{port}/sse") as client,
    ):
        assert client.era == "2025"
        assert (await client.call_tool("echo", {"message": "hello"})).text == "Echo: hello"
        resources = await client.list_resources()
        assert (await client.read_resource(resources[0].uri)).contents
        told: list[float] = []
        await client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.2, "steps": 2},
            on_progress=lambda one: told.append(one.progress),
        )
        assert told == [1, 2]


async def test_our_two_ends_in_two_processes() -> None:
    program = (
        "from gemel import Server\nserver = Server('other')\n"
        "@server.tool\ndef add(a: int, b: int) -> int: return a + b\n"
        f"server.run('http', port={(port := free_port())}, sse_path='/old')"
    )
    async with listening([sys.executable, "-c", program], port), Client(f"http://127.0.0.1:{port}/old") as client:
        texts = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": n}) for n in range(20)))
        assert [one.text for one in texts] == [str(2 * n) for n in range(20)]
