"""Workers without a backend ask the users of stateless clients, and say what they can't do for handshake clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client
from tests.transports.http.server.workers.rig import Several, several
from tests.transports.http_rig import modern, text_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="waits for workers by /proc")

PROGRAM = """
import os
from gemel import Context, Server

server = Server("asking")

def large(bytes: int) -> str:
    return "x" * bytes

@server.tool
async def asks(ctx: Context) -> str:
    asked = await ctx.step(os.getpid)
    row = await ctx.elicit("Which row?", int)
    return f"row {row} {'here' if asked == os.getpid() else 'elsewhere'}"

@server.tool
async def prepares(ctx: Context) -> int:
    await ctx.step(large, 100_000)
    return await ctx.elicit("Which row?", int)
"""


async def _round(server: Several, tool: str, **answers: Any) -> Any:
    """One round of a stateless call, on a connection of its own."""
    headers, body = modern("tools/call", {"name": tool, "arguments": {}, **answers})
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"elicitation": {}}
    return (await server.site.ask({**headers, "Mcp-Name": tool}, body)).json()


async def test_a_worker_goes_on_with_a_call_in_which_another_one_asked(tmp_path: Path) -> None:
    async with several(tmp_path, workers=2, program=PROGRAM) as server:
        found: set[str] = set()
        for _ in range(200):
            asked = (await _round(server, "asks"))["result"]
            answers = {key: {"action": "accept", "content": {"value": 7}} for key in asked["inputRequests"]}
            found.add(text_of(await _round(server, "asks", requestState=asked["requestState"], inputResponses=answers)))
            if len(found) == 2:
                break
        assert found == {"row 7 here", "row 7 elsewhere"}


async def test_a_result_of_a_step_that_other_workers_would_not_find_is_refused(tmp_path: Path) -> None:
    async with several(tmp_path, workers=2, program=PROGRAM) as server:
        assert (await _round(server, "prepares"))["result"]["isError"]
        await server.line("100002 bytes, more than the client carries .* give the server a shared backend")


async def test_handshake_clients_can_not_be_asked_and_the_server_says_so(tmp_path: Path) -> None:
    async with several(tmp_path, workers=2, program=PROGRAM) as server:
        await server.line("without a backend have no HTTP sessions: clients of the handshake era can't be asked")
        url = f"http://127.0.0.1:{server.site.port}/mcp"
        async with Client(url, era="2025", on_elicit=lambda form: {"value": 7}) as client:
            refused = await client.call_tool("asks", raise_on_error=False)
        assert refused.text.startswith("Missing required client capability: elicitation, which needs an HTTP session")


@pytest.mark.parametrize(
    ("options", "server_options"),
    [(("--no-sessions",), ""), ((), ", eras='2026'"), ((), ", backend='sqlite:///state.db'")],
)
async def test_nothing_is_said_where_nothing_is_missing(
    tmp_path: Path, options: tuple[str, ...], server_options: str
) -> None:
    program = PROGRAM.replace('"asking"', f'"asking"{server_options}')
    async with several(tmp_path, *options, workers=2, program=program) as server:
        assert server.lines == [await server.line("Serving MCP at")]
