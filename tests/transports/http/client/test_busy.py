"""Servers that are busy: the answer to a request of the server is sent again when it says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gemel import Client
from tests.peers.rows import PLAIN
from tests.transports.scripted_http import Answer, Asked, ScriptedServer

#: What Gemel's server answers while its store is away.
OVERLOADED = {"jsonrpc": "2.0", "error": {"code": 429, "message": "busy", "data": {"retryAfterMs": 10}}}


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, None), (502, None), (503, None), (503, OVERLOADED)],
    ids=["429", "502", "503", "503 with an error"],
)
@pytest.mark.parametrize("refusals", [1, 3, 9])
async def test_an_answer_that_a_busy_server_refuses_is_sent_again_as_long_as_its_call_waits(
    status: int, error: dict[str, Any] | None, refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemel.transports.http.client.channel._ANSWER_PAUSES", (0.01, 0.01))
    replies: list[dict[str, Any]] = []
    taken = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        message: dict[str, Any] = json.loads(asked.body) if asked.body else {}
        result = {"jsonrpc": "2.0", "id": message.get("id"), "result": PLAIN.get(message.get("method", ""), {})}
        if asked.method != "POST":
            await answer.body(status=405)
        elif "method" not in message:
            replies.append(message)
            if len(replies) > refusals:
                await answer.body(status=202)
                taken.set()
            elif error is not None:
                await answer.json(error, status=status)
            else:
                await answer.body(status=status, headers={"Retry-After": "0"})
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
    assert replies == [{"jsonrpc": "2.0", "id": "p", "result": {}}] * (refusals + 1)
