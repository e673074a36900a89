"""An answer that breaks the rules fails its call at once: no time limit is set, so nothing else can end the call."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Discovery, InvalidResponse, Limits

LINE = 20_000
#: The first call is answered when the second one has come, so that both are in flight; then the second one, correctly.
SERVER = """
import json, sys
form, first = sys.argv[1], None
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
    elif message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    else:
        result = {"resultType": "complete", "content": []}
    good = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    if message["method"] == "tools/call" and first is None:
        first = good
        continue
    if message["method"] == "tools/call":
        long = {**result, "content": [{"type": "text", "text": "x" * 50_000}]}
        print({
            "float id": json.dumps({**first, "id": float(first["id"])}),
            "id in a list": json.dumps({**first, "id": [first["id"]]}),
            "text before": "INFO: answer " + json.dumps(first),
            "braces before": "INFO {pid: 7} " + json.dumps(first),
            "NUL before": chr(0) + json.dumps(first),
            "over the limit": json.dumps({**first, "result": long}),
            "over the limit, id last": json.dumps({"result": long, "id": first["id"]}),
            "over the limit, other member first": json.dumps({"x": {"y": 1}, "result": long, "id": first["id"]}),
            "over the limit, text before": "INFO " + json.dumps({**first, "result": long}),
        }[form])
    print(json.dumps(good), flush=True)
"""
FORMS = (
    "float id",
    "id in a list",
    "text before",
    "braces before",
    "NUL before",
    "over the limit",
    "over the limit, id last",
    "over the limit, other member first",
    "over the limit, text before",
)


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_malformed_answer_fails_its_call_and_no_other(form: str, era: Any, tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    limits = Limits(line=LINE, retries=0)
    async with Client([sys.executable, str(path), form], era=era, limits=limits) as client:
        bad = asyncio.create_task(client.call_tool("a", idle=None, total=None))
        good = asyncio.create_task(client.call_tool("b"))
        with pytest.raises(InvalidResponse) as caught:
            await bad
        assert "tools/call" in str(caught.value) or "over the limit" not in form
        assert "limits=Limits(line=…)" in str(caught.value) or "over the limit" not in form
        assert (await good).content == []
        assert client.connected


#: Answers a tool call with a result over the limit whose id stands between two long members, where it isn't looked for.
HIDDEN = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    elif message["method"] == "tools/call" and message["params"]["name"] == "long":
        long = {"content": [{"type": "text", "text": "x" * 50_000}]}
        print(json.dumps({"jsonrpc": "2.0", "result": long, "id": message["id"], "x": "y" * 5_000}), flush=True)
        continue
    else:
        result = {"content": []}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_an_answer_over_the_limit_that_hides_its_id_fails_the_only_request_that_waits(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(HIDDEN)
    async with Client([sys.executable, str(path)], era="2025", limits=Limits(line=LINE)) as client:
        with pytest.raises(InvalidResponse, match=r"The answer to tools/call .* 20000 bytes, the limit `limits\.line`"):
            await client.call_tool("long", idle=None, total=None)
        assert (await client.call_tool("other")).content == []


async def _listening(answer: bytes, kind: str) -> asyncio.Server:
    """A server of HTTP that answers each tool call with the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_over_the_limit_of_http_says_which_limit_and_for_which_request(kind: str) -> None:
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":"' + b"y" * LINE + b'"}}'
    answer = answer if kind == "application/json" else b"data: " + answer + b"\n\n"
    discovery = Discovery(era="2026", revision="2026-07-28")
    async with await _listening(answer, kind) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
        async with Client(url, discovery=discovery, limits=Limits(reply=1000)) as client:
            with pytest.raises(
                InvalidResponse, match=r"The answer to tools/call .* 1000 bytes, the limit `limits\.reply`"
            ):
                await client.call_tool("a")
