"""Servers that are busy: the answer to a request of the server is sent again when it says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gemel import Client
from tests.peers.rows import PLAIN
from tests.transports.scripted_http import Answer, Asked, ScriptedServer


@pytest.mark.parametrize("status", [429, 503])
async def test_an_answer_that_a_busy_server_refuses_is_sent_again(status: int) -> None:
    replies: list[dict[str, Any]] = []
    taken = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        message: dict[str, Any] = json.loads(asked.body) if asked.body else {}
        result = {"jsonrpc": "2.0", "id": message.get("id"), "result": PLAIN.get(message.get("method", ""), {})}
        if asked.method != "POST":
            await answer.body(status=405)
        elif "method" not in message:
            replies.append(message)
            await answer.body(status=status if len(replies) == 1 else 202, headers={"Retry-After": "0"})
            if len(replies) == 2:
                taken.set()
        elif message["method"] == "tools/call":
            await answer.stream()
            await answer.event({"jsonrpc": "2.0", "id": "p", "method": "ping"})
            await taken.wait()
            await answer.event(result)
            await answer.end()
        elif "id" in message:
            await answer.json(result)
        else:
            await answer.body(status=202)

    async with ScriptedServer(script) as server, Client(server.url, era="2025") as client:
        assert (await client.call_tool("t", total=10)).text == "hi"
    assert replies == [{"jsonrpc": "2.0", "id": "p", "result": {}}] * 2
