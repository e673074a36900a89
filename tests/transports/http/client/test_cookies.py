"""Cookies of a server: a balancer sends all requests of a client to the process that set one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemel import Client
from tests.peers.rows import PLAIN
from tests.transports.scripted_http import Answer, Asked, ScriptedServer


async def sticky(asked: Asked, answer: Answer) -> None:
    """Answer requests of a session only with the cookie that came with it."""
    if asked.method != "POST":
        await answer.body(status=405)
        return
    message: dict[str, Any] = json.loads(asked.body)
    reply = {"jsonrpc": "2.0", "id": message.get("id"), "result": PLAIN.get(message["method"], {})}
    if message["method"] == "initialize":
        await answer.json(reply, headers={"Mcp-Session-Id": "s", "Set-Cookie": "AWSALB=node7; Path=/"})
    elif "AWSALB=node7" not in asked.headers.get("cookie", ""):
        await answer.body(status=404)
    elif "id" in message:
        await answer.json(reply)
    else:
        await answer.body(status=202)


@pytest.mark.parametrize("headers", [None, {"Cookie": "theme=dark"}])
async def test_a_sticky_session_works(headers: Any) -> None:
    async with ScriptedServer(sticky) as server, Client(server.url, era="2025", headers=headers) as client:
        assert (await client.call_tool("t")).text == "hi"
        cookie = server.messages("tools/call")[0].headers["cookie"]
        assert cookie == ("AWSALB=node7" if headers is None else "theme=dark; AWSALB=node7")
        assert "cookie" not in server.messages("initialize")[0].headers or headers is not None


async def test_a_cookie_of_one_caller_is_not_sent_for_another() -> None:
    """It may say who that is. The other caller begins a session of its own."""
    caller = "anna"
    async with ScriptedServer(sticky) as server:
        async with Client(server.url, era="2025", headers=lambda: {"X-User": caller}) as client:
            await client.call_tool("t")
            caller = "bert"
            await client.ping()
        sent = [(asked.headers["x-user"], asked.headers.get("cookie")) for asked in server.messages("ping")]
    assert sent == [("bert", None), ("bert", "AWSALB=node7")]
