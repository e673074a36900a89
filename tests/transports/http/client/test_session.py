"""The HTTP client in the handshake era: the session's headers, resumed streams, the server's own stream, the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Client, HttpStatus, InvalidResponse, Limits, PeerError, SessionEnded
from gemel.transports.http.client.responses import Reconnection
from tests.transports.scripted_http import (
    SESSION,
    Answer,
    Asked,
    ScriptedServer,
    Talking,
    legacy,
    notification,
    request,
    result_of,
    until,
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between attempts but for what the server asks."""
    monkeypatch.setattr(Reconnection, "FIRST", 0.0)
    monkeypatch.setattr(Reconnection, "FLOOR", 0.0)


async def test_the_session_and_the_revision_go_with_everything_after_initialize() -> None:
    """LHTTP-22, LHTTP-26, LHTTP-27: not with initialize itself."""
    async with ScriptedServer(legacy) as server:
        async with Talking(server.url) as client:
            await client.handshake("2025-06-18")
            await client.call("tools/list")
            await until(lambda: bool(server.by("GET")))
        first, *rest = server.asked
        assert "mcp-session-id" not in first.headers
        assert "mcp-protocol-version" not in first.headers
        assert {asked.method for asked in rest} == {"POST", "GET", "DELETE"}
        assert all(asked.headers["mcp-session-id"] == "s-1" for asked in rest)
        assert all(asked.headers["mcp-protocol-version"] == "2025-06-18" for asked in rest)


async def test_the_servers_own_stream_is_asked_for_as_events_and_405_ends_the_matter() -> None:
    """LHTTP-12."""
    async with ScriptedServer(legacy) as server, Talking(server.url) as client:
        await client.handshake()
        assert server.by("GET")[0].headers["accept"] == "text/event-stream"
        await client.call()
        assert len(server.by("GET")) == 1


async def test_a_server_that_is_slow_with_its_own_stream_does_not_hold_up_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gemel.transports.http.client.channel._LISTEN_SECONDS", 0.02)

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await answer.gone()
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake()
        assert await client.call() == {}


async def test_a_server_without_sessions_gets_no_delete() -> None:
    async def stateless(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await answer.body(status=405)
        elif "id" in asked.message:
            await answer.result(asked)
        else:
            await answer.body(status=202)

    async with ScriptedServer(stateless) as server:
        async with Talking(server.url) as client:
            await client.handshake()
        assert not server.by("DELETE")


async def test_a_session_id_with_illegal_characters_is_refused() -> None:
    """LHTTP-21."""

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.result(asked, headers={"mcp-session-id": "a b"})

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        with pytest.raises(InvalidResponse, match="session id"):
            await client.call("initialize")


@pytest.mark.parametrize(
    "body", [b"", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}']
)
async def test_404_ends_the_session_and_the_next_initialize_begins_without_it(body: bytes) -> None:
    """LHTTP-25."""
    ended = False

    async def script(asked: Asked, answer: Answer) -> None:
        if ended and asked.headers.get("mcp-session-id") == "s-1":
            await answer.body(body, status=404)
        elif asked.method == "POST" and asked.message.get("method") == "initialize" and ended:
            await answer.result(asked, headers={"mcp-session-id": "s-2"})
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake()
        ended = True
        with pytest.raises(SessionEnded):
            await client.call("tools/list")
        await client.handshake()
        await client.call("tools/list")
        again = server.messages("initialize")[1]
        assert "mcp-session-id" not in again.headers
        assert "mcp-protocol-version" not in again.headers
        assert server.messages("tools/list")[1].headers["mcp-session-id"] == "s-2"


async def test_a_new_initialize_leaves_nothing_of_the_old_session() -> None:
    sessions = iter([SESSION, None])

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "initialize":
            await answer.result(asked, headers=next(sessions))
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake("2025-06-18")
        await client.call("initialize")
        await client.call("tools/list")
        assert not {"mcp-session-id", "mcp-protocol-version"} & set(server.messages("initialize")[1].headers)
        assert not {"mcp-session-id", "mcp-protocol-version"} & set(server.messages("tools/list")[0].headers)


async def test_a_late_404_of_the_old_session_does_not_end_the_new_one() -> None:
    """Many calls fail at once when a session ends; only the first may have an effect on the channel."""
    release = asyncio.Event()
    sessions = iter(["s-1", "s-2"])

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message["method"] == "initialize":
            await answer.result(asked, headers={"mcp-session-id": next(sessions)})
        elif asked.headers.get("mcp-session-id") == "s-1":
            if asked.message["method"] == "late":
                await release.wait()
            await answer.body(status=404)
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        late = asyncio.create_task(client.call("late"))
        await until(lambda: len(server.messages("late")) == 1)
        with pytest.raises(SessionEnded):
            await client.call("early")
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        release.set()
        with pytest.raises(SessionEnded):
            await late
        assert client.channel.session_id == "s-2"


async def test_404_for_an_unknown_method_is_not_the_end_of_the_session() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "no/such":
            error = {"code": -32601, "message": "Method not found"}
            await answer.json({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, 404)
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake()
        with pytest.raises(PeerError):
            await client.call("no/such")
        assert client.channel.session_id == "s-1"


async def test_a_request_of_the_server_is_answered_by_a_post_while_its_stream_is_open() -> None:
    """LHTTP-03."""
    replied = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "tools/call":
            await answer.stream()
            await answer.event(request("q-1", "roots/list"))
            await replied.wait()
            await answer.event(result_of(asked, {"done": True}))
            await answer.end()
        else:
            if asked.method == "POST" and asked.message.get("id") == "q-1":
                replied.set()
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake()
        async with asyncio.timeout(10):
            assert await client.call() == {"done": True}
        (reply,) = [asked for asked in server.by("POST") if asked.message.get("id") == "q-1"]
        assert reply.message == {"jsonrpc": "2.0", "id": "q-1", "result": {"for": "roots/list"}}
        assert reply.headers["mcp-session-id"] == "s-1"


async def test_a_malformed_request_of_the_server_is_answered_by_a_post() -> None:
    replied = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "tools/call":
            await answer.stream()
            await answer.event({"jsonrpc": "2.0", "id": "q-1", "method": "roots/list", "params": 5})
            await replied.wait()
            await answer.event(result_of(asked, {"content": []}))
            await answer.end()
        elif asked.method == "POST" and asked.message.get("method") == "initialize":
            await answer.stream()
            me = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": me}
            await answer.event(result_of(asked, result))
            await answer.end()
        else:
            if asked.method == "POST" and asked.message.get("id") == "q-1":
                replied.set()
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Client(server.url, era="2025") as client:
        async with asyncio.timeout(10):
            await client.call_tool("x")
        (reply,) = [asked for asked in server.by("POST") if asked.message.get("id") == "q-1"]
        assert reply.message["error"]["code"] == -32600


async def test_the_messages_of_a_batch_in_one_event_are_taken_one_by_one() -> None:
    """BASE-11: one revision lets a server batch what it sends."""

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "tools/call":
            await answer.stream()
            await answer.event([notification("notifications/message"), result_of(asked, {"n": 1})])
            await answer.end()
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake("2025-03-26")
        assert await client.call() == {"n": 1}
        assert client.talk.methods() == ["notifications/message"]


async def empty(call: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.end()


async def not_allowed(call: Asked, answer: Answer) -> None:
    await answer.body(status=405)


class Speaker:
    """A server with a stream of its own: `gets` serve the GETs one after another."""

    def __init__(self, *gets: Any) -> None:
        self._gets = iter(gets)

    async def __call__(self, asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await next(self._gets, not_allowed)(asked, answer)
        else:
            await legacy(asked, answer)


async def says(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event(notification("notifications/tools/list_changed"), id="g-1")
    await answer.end()


async def asks(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event(request("q-2", "ping"))
    await answer.gone()


async def answers_wrongly(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event({"jsonrpc": "2.0", "id": 4711, "result": {"stolen": True}})
    await answer.chunk(b"data: {oops\n\n")
    await answer.event({"jsonrpc": "2.0", "error": {"code": -32000, "message": "no"}})
    await answer.event(notification("notifications/tools/list_changed"))
    await answer.gone()


@pytest.mark.usefixtures("quick")
async def test_the_servers_own_stream_is_opened_again_after_its_last_event() -> None:
    """LHTTP-18."""
    async with ScriptedServer(Speaker(says, empty, says)) as server, Talking(server.url) as client:
        await client.handshake()
        await until(lambda: len(server.by("GET")) == 4)
        assert client.talk.methods() == ["notifications/tools/list_changed"] * 2
        assert [get.headers.get("last-event-id") for get in server.by("GET")] == [None, "g-1", "g-1", "g-1"]


@pytest.mark.usefixtures("quick")
async def test_the_servers_own_stream_is_given_up_after_eight_attempts_and_calls_go_on() -> None:
    async with ScriptedServer(Speaker(*[empty] * 50)) as server, Talking(server.url) as client:
        await client.handshake()
        await until(lambda: len(server.by("GET")) == 9)
        await asyncio.sleep(0.05)
        assert len(server.by("GET")) == 9
        assert await client.call() == {}


async def test_a_request_on_the_servers_own_stream_is_answered_by_a_post() -> None:
    async with ScriptedServer(Speaker(asks)) as server, Talking(server.url) as client:
        await client.handshake()
        await until(lambda: any(asked.message.get("id") == "q-2" for asked in server.by("POST")))


async def test_what_does_not_belong_on_the_servers_own_stream_settles_nothing() -> None:
    async with ScriptedServer(Speaker(answers_wrongly)) as server, Talking(server.url) as client:
        waiting = client.talk.ask()
        await client.handshake()
        await client.talk.heard.wait()
        assert waiting.pending is not None
        assert client.talk.waiting[1] is waiting.pending
        assert client.talk.methods() == ["notifications/tools/list_changed"]


@pytest.mark.parametrize("how", ["405", "hangs", "breaks"])
async def test_closing_tolerates_a_server_that_does_not_end_sessions(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LHTTP-26."""
    monkeypatch.setattr("gemel.transports.http.client.channel._DELETE_SECONDS", 0.1)

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method != "DELETE":
            await legacy(asked, answer)
        elif how == "405":
            await answer.body(status=405)
        elif how == "hangs":
            await answer.gone()
        else:
            answer.reset()

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake()
        async with asyncio.timeout(5):
            await client.channel.close()
            await client.channel.close()
        assert len(server.by("DELETE")) == 1


async def test_closing_stops_what_is_being_answered() -> None:
    async with ScriptedServer(Speaker(asks)) as server, Talking(server.url, Limits(teardown=1.0)) as client:
        client.talk.gate.clear()
        await client.handshake()
        await client.talk.heard.wait()
        async with asyncio.timeout(5):
            await client.channel.close()
        assert not [asked for asked in server.by("POST") if asked.message.get("id") == "q-2"]


@pytest.mark.usefixtures("quick")
async def test_a_refused_initialize_leaves_no_session_behind() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.body(b"no", kind="text/plain", status=400, headers=SESSION)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        with pytest.raises(HttpStatus):
            await client.call("initialize")
        assert client.channel.session_id is None


async def test_a_server_that_asks_much_gets_its_answers_over_a_bounded_number_of_connections() -> None:
    """A burst of questions must not make the client open a connection for each."""
    asking, over = 300, asyncio.Event()
    answered: set[str] = set()

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and "method" not in asked.message:
            answered.add(asked.message["id"])
            if len(answered) == asking:
                over.set()
            await answer.body(kind="", status=202)
        elif asked.method == "POST" and asked.message["method"] == "tools/call":
            await answer.stream()
            for number in range(asking):
                await answer.event({"jsonrpc": "2.0", "id": f"q{number}", "method": "ping"})
            await over.wait()
            await answer.event(result_of(asked))
            await answer.end()
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake()
        async with asyncio.timeout(60):
            assert await client.call() == {}
        assert len(answered) == asking
        assert server.most <= 40
