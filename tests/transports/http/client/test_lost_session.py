"""The HTTP client in the handshake era, when only its open stream can tell that the session or the server is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Changed, ChangesLost, Client, SessionEnded
from gemel.transports.http.client.responses import Reconnection
from tests.transports.scripted_http import (
    SESSION,
    Answer,
    Asked,
    ScriptedServer,
    Settling,
    Talking,
    legacy,
    notification,
    request,
    until,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between attempts but for what the server asks."""
    monkeypatch.setattr(Reconnection, "FIRST", 0.0)
    monkeypatch.setattr(Reconnection, "FLOOR", 0.0)


class Heeding(Settling):
    """Remembers why it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[str] = []

    def close(self, reason: str, /) -> None:
        self.closed.append(reason)


def talking(server: ScriptedServer) -> tuple[Talking, Heeding]:
    """A client channel and its conversation."""
    client = Talking(server.url)
    client.talk = talk = Heeding()
    return client, talk


class Speaker:
    """A server with a stream of its own: `gets` serve the GETs one after another, the last one for ever."""

    def __init__(self, *gets: Any) -> None:
        self._gets = list(gets)

    async def __call__(self, asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await (self._gets.pop(0) if len(self._gets) > 1 else self._gets[0])(asked, answer)
        else:
            await legacy(asked, answer)


async def stream(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.end()


async def breaks(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event("")
    answer.reset()


async def unknown(asked: Asked, answer: Answer) -> None:
    await answer.body(status=404)


async def fails(asked: Asked, answer: Answer) -> None:
    await answer.body(status=503)


@pytest.mark.parametrize("first", [stream, breaks])
async def test_404_for_a_stream_that_was_open_ends_the_conversation(first: Any) -> None:
    """Nobody need make a call to learn of it."""
    async with ScriptedServer(Speaker(first, fails, unknown)) as server:
        client, talk = talking(server)
        async with client:
            await client.handshake()
            await until(lambda: bool(talk.closed))
            assert talk.closed == ["the server ended the session"]
            assert client.channel.session_id is None
            await asyncio.sleep(0.02)
            assert len(server.by("GET")) == 3


async def test_404_for_a_stream_that_never_was_open_means_that_there_is_none() -> None:
    """The session goes on."""
    async with ScriptedServer(Speaker(unknown)) as server:
        client, talk = talking(server)
        async with client:
            await client.handshake()
            assert await client.call() == {}
            assert talk.closed == []
            assert client.channel.session_id == SESSION["mcp-session-id"]
            assert len(server.by("GET")) == 1


@pytest.mark.parametrize("how", ["a notification", "an answer"])
async def test_404_for_what_waits_for_no_answer_ends_the_conversation(how: str) -> None:
    """There is nobody whose error could tell it, and calls that wait would wait for ever."""
    ended = False

    async def asks(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        await until(lambda: ended)
        await answer.event(request("q", "ping"))
        await answer.gone()

    async def script(asked: Asked, answer: Answer) -> None:
        if ended and asked.method == "POST":
            await answer.body(status=404)
        else:
            await Speaker(asks if how == "an answer" else fails)(asked, answer)

    async with ScriptedServer(script) as server:
        client, talk = talking(server)
        async with client:
            await client.handshake()
            ended = True
            if how == "a notification":
                with pytest.raises(SessionEnded):
                    await client.notify("notifications/roots/list_changed")
            await until(lambda: bool(talk.closed))
            assert talk.closed == ["the server ended the session"]
            assert client.channel.session_id is None


async def test_404_without_a_session_ends_nothing() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "initialize":
            await answer.result(asked)
        else:
            await Speaker(stream if len(server.by("GET")) == 1 else unknown)(asked, answer)

    async with ScriptedServer(script) as server:
        client, talk = talking(server)
        async with client:
            await client.handshake()
            await until(lambda: len(server.by("GET")) == 2)
            assert await client.call() == {}
            assert talk.closed == []


async def test_a_server_that_can_no_longer_be_reached_ends_the_conversation_after_all_attempts() -> None:
    async with ScriptedServer(Speaker(stream)) as server:
        client, talk = talking(server)
        await client.__aenter__()
        await client.handshake()
    try:
        await until(lambda: bool(talk.closed))
        assert talk.closed == ["the server can't be reached any more"]
    finally:
        await client.__aexit__()


async def test_a_stream_that_ends_at_once_again_and_again_stays_closed_and_the_session_goes_on() -> None:
    async with ScriptedServer(Speaker(stream)) as server:
        client, talk = talking(server)
        async with client:
            await client.handshake()
            await until(lambda: len(server.by("GET")) == 9)
            assert await client.call() == {}
            assert talk.closed == []


async def test_who_only_listens_hears_again_after_the_servers_process_was_replaced() -> None:
    """LHTTP-25: a new session, with a ChangesLost before its first change."""
    sessions: list[str] = []

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            known = asked.headers.get("mcp-session-id") == sessions[-1]
            if len(server.by("GET")) == 2 or not known:
                sessions.append("gone")
                await answer.body(status=404)
                return
            await answer.stream()
            if len(server.by("GET")) > 2:
                await answer.event(notification("notifications/tools/list_changed"))
                await answer.gone()
            else:
                await answer.end()
        elif asked.method == "POST" and asked.message.get("method") == "initialize":
            sessions.append(f"s-{len(sessions)}")
            info = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": asked.message["params"]["protocolVersion"], "capabilities": {}}
            await answer.result(asked, {**result, "serverInfo": info}, headers={"mcp-session-id": sessions[-1]})
        else:
            await legacy(asked, answer)

    async with (
        ScriptedServer(script) as server,
        Client(server.url, era="2025") as client,
        client.listen(tools=True) as changes,
        asyncio.timeout(10),
    ):
        assert isinstance(await anext(changes), ChangesLost)
        assert await anext(changes) == Changed("tools")


async def test_who_begins_to_listen_in_a_session_that_is_over_gets_a_new_one() -> None:
    """LHTTP-25."""
    sessions: list[str] = []

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await answer.body(status=405)
        elif asked.method == "POST" and asked.message.get("method") == "initialize":
            sessions.append(f"s-{len(sessions)}")
            info = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": asked.message["params"]["protocolVersion"], "capabilities": {}}
            await answer.result(asked, {**result, "serverInfo": info}, headers={"mcp-session-id": sessions[-1]})
        elif asked.method == "POST" and asked.headers.get("mcp-session-id") == "s-0" and "id" in asked.message:
            await answer.body(status=404)
        else:
            await legacy(asked, answer)

    async with (
        ScriptedServer(script) as server,
        Client(server.url, era="2025") as client,
        asyncio.timeout(10),
        client.listen(resources=["file:///a"]),
    ):
        subscribed = server.messages("resources/subscribe")
        assert [asked.headers["mcp-session-id"] for asked in subscribed] == ["s-0", "s-1"]
