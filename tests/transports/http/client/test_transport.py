"""The HTTP client's channel where everything goes well: exchanges, streams, many at once, cancellation, the end."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence

import pytest
import uvloop

from gemel import CallError, ChannelClosed, ConnectionLost, Limits
from gemel.http1.client.wire import HeaderPairs
from gemel.protocol.states import PendingState
from gemel.transports.http.client.transport import HttpTransport
from tests.support import Outgoing
from tests.transports.scripted_http import (
    Answer,
    Asked,
    ScriptedServer,
    Talking,
    notification,
    request,
    result_of,
    until,
)

#: One request at a time has a connection.
ONE = Limits(connections=1)


async def answers(asked: Asked, answer: Answer) -> None:
    """A server that answers requests in JSON and accepts the rest."""
    if asked.method != "POST":
        await answer.body(status=405)
    elif "id" in asked.message and "method" in asked.message:
        await answer.result(asked, {"method": asked.message["method"]})
    else:
        await answer.body(status=202)


async def streams(asked: Asked, answer: Answer) -> None:
    """A server that answers with a notification and the result, as events."""
    await answer.stream()
    await answer.event(notification("notifications/message", level="info"))
    await answer.event(result_of(asked, {"streamed": True}))
    await answer.end()


async def test_a_json_answer_settles_the_request() -> None:
    """MHTTP-06, LHTTP-05."""
    async with ScriptedServer(answers) as server, Talking(server.url) as client:
        assert await client.call("tools/list") == {"method": "tools/list"}


async def test_a_post_says_what_it_is_and_what_it_takes_and_mirrors_the_headers() -> None:
    """MHTTP-02, MHTTP-03, LHTTP-02."""
    mirrored = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add", "Mcp-Param-A": ""}
    async with ScriptedServer(answers) as server, Talking(server.url, headers={"X-Team": "blue"}) as client:
        await client.call("tools/call", mirrored, name="add")
        (asked,) = server.asked
        assert asked.message == {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}}
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["accept"] == "application/json, text/event-stream"
        assert asked.headers["x-team"] == "blue"
        assert asked.headers["host"] == f"127.0.0.1:{server.port}"
        assert {name: asked.headers[name.lower()] for name in mirrored} == mirrored
        assert "mcp-session-id" not in asked.headers


async def test_events_before_the_answer_reach_the_conversation_first() -> None:
    """MHTTP-06, LHTTP-05."""
    async with ScriptedServer(streams) as server, Talking(server.url) as client:
        assert await client.call() == {"streamed": True}
        assert client.talk.methods() == ["notifications/message"]


async def test_what_came_before_the_answer_is_served_before_the_call_is_over() -> None:
    """Who collects log messages has all of them then."""
    async with ScriptedServer(streams) as server, Talking(server.url) as client:
        await client.call()
        assert client.talk.served == ["notifications/message"]


@pytest.mark.parametrize("script", [answers, streams])
async def test_calls_one_after_another_share_one_connection(script: object) -> None:
    """One TCP connection for 50 calls, answered in JSON or as events that are read to their end."""
    async with ScriptedServer(script) as server, Talking(server.url) as client:  # type: ignore[arg-type] # a Script
        for _ in range(50):
            await client.call()
        assert server.connections == 1


async def test_an_answer_that_is_not_followed_by_the_end_at_once_still_frees_its_connection() -> None:
    """The call returns with the answer; the rest of the stream is read in the background."""
    ends = asyncio.Event()

    async def late(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        await answer.event(result_of(asked))
        await ends.wait()
        await answer.chunk(b": bye\n\n")
        await answer.end()

    async with ScriptedServer(late) as server, Talking(server.url) as client:
        await client.call()
        ends.set()
        await until(lambda: bool(client_idle(client)))
        await client.call()
        assert server.connections == 1


def client_idle(client: Talking) -> Sequence[object]:
    """The connections that the client keeps for the next request."""
    groups = client.channel._endpoint._wire._idle.values()  # type: ignore[attr-defined] # the default wire's pool
    return [connection for group in groups for connection in group]


async def test_a_stream_that_does_not_end_after_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call returns at once, and the connection doesn't stay open for ever."""
    monkeypatch.setattr("gemel.http1.client.connection.DRAIN_SECONDS", 0.05)
    gone = asyncio.Event()

    async def endless(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        await answer.event(result_of(asked, {"n": 1}))
        await answer.gone()
        gone.set()

    async with ScriptedServer(endless) as server, Talking(server.url) as client:
        assert await client.call() == {"n": 1}
        async with asyncio.timeout(5):
            await gone.wait()


async def test_a_result_of_several_megabytes_passes_as_an_event_and_as_json() -> None:
    """An event has no smaller limit than JSON."""
    text = "é" * 2_000_000

    async def large(asked: Asked, answer: Answer) -> None:
        if asked.message["method"] == "json":
            await answer.result(asked, {"text": text})
            return
        await answer.stream()
        data = b"data: " + json.dumps(result_of(asked, {"text": text})).encode() + b"\n\n"
        for start in range(0, len(data), 70_001):
            await answer.chunk(data[start : start + 70_001])
        await answer.end()

    async with ScriptedServer(large) as server, Talking(server.url) as client:
        for method in ("json", "events"):
            assert (await client.call(method))["text"] == text


async def test_a_compressed_answer_is_read() -> None:
    async def compressed(asked: Asked, answer: Answer) -> None:
        assert "gzip" in asked.headers["accept-encoding"]
        data = gzip.compress(json.dumps(result_of(asked, {"x": "y" * 100_000})).encode())
        await answer.body(data, headers={"content-encoding": "gzip"})

    async with ScriptedServer(compressed) as server, Talking(server.url) as client:
        assert (await client.call())["x"] == "y" * 100_000


async def test_a_thousand_calls_at_once_are_all_answered_over_a_bounded_number_of_connections() -> None:
    async def slow(asked: Asked, answer: Answer) -> None:
        await asyncio.sleep(0.01)
        await answer.result(asked, {"n": asked.message["params"]["n"]})

    async with ScriptedServer(slow) as server, Talking(server.url) as client:
        results = await asyncio.gather(*(client.call(n=n) for n in range(1000)))
        assert [result["n"] for result in results] == list(range(1000))
        assert server.most <= Limits().connections


async def test_notifications_and_replies_do_not_wait_for_calls() -> None:
    """With every place taken a reply must still get through, or all would hang."""
    release = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.message.get("method") == "tools/call":
            await answer.stream()
            await answer.event(request("s1", "roots/list"))
            await release.wait()
            await answer.event(result_of(asked))
            await answer.end()
        else:
            if asked.message.get("id") == "s1":
                release.set()
            await answers(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url, limits=ONE) as client:
        client.channel.set_revision("2025-11-25")
        first, second = asyncio.create_task(client.call()), asyncio.create_task(client.call())
        await client.notify("notifications/roots/list_changed")
        async with asyncio.timeout(10):
            await asyncio.gather(first, second)
        assert server.most <= 2


@pytest.mark.parametrize("where", ["head", "body"])
async def test_cancelling_the_caller_closes_the_stream_so_that_the_server_sees_it(where: str) -> None:
    """CANC-03: even while not even the head of the response has come."""
    asked_for, closed = asyncio.Event(), asyncio.Event()

    async def hanging(asked: Asked, answer: Answer) -> None:
        if where == "body":
            await answer.stream()
            await answer.event(notification("notifications/progress"))
        asked_for.set()
        await answer.gone()
        closed.set()

    async with ScriptedServer(hanging) as server, Talking(server.url) as client:
        task = asyncio.create_task(client.call())
        await asked_for.wait()
        if where == "body":
            await client.talk.heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await closed.wait()
        assert [asked.method for asked in server.asked] == ["POST"]


async def test_cancelling_a_call_that_waits_for_its_turn_sends_nothing() -> None:
    release = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        await release.wait()
        await answers(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url, limits=ONE) as client:
        first = asyncio.create_task(client.call("first"))
        await until(lambda: len(server.asked) == 1)
        second = asyncio.create_task(client.call("second"))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        release.set()
        await first
        assert not server.messages("second")


async def test_a_place_that_a_cancelled_request_was_given_is_free_again() -> None:
    """Also if the place was given in the turn of the event loop in which its caller gave up."""
    release = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        await release.wait()
        await answers(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url, limits=ONE) as client:
        first = asyncio.create_task(client.call("first"))
        await until(lambda: len(server.asked) == 1)
        second = asyncio.create_task(client.call("second"))
        await asyncio.sleep(0.01)
        first.add_done_callback(lambda _: second.cancel())  # when its place was passed on
        release.set()
        await asyncio.wait([first, second])
        async with asyncio.timeout(10):
            assert await client.call("third") == {"method": "third"}


async def test_listening_takes_no_place_from_calls() -> None:

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.message["method"] == "subscriptions/listen":
            await answer.stream()
            await answer.gone()
        else:
            await answers(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url, limits=ONE) as client:
        listening = [asyncio.create_task(client.call("subscriptions/listen")) for _ in range(3)]
        await until(lambda: len(server.asked) == 3)
        assert await client.call("tools/list") == {"method": "tools/list"}
        for task in listening:
            task.cancel()
        await asyncio.wait(listening)


async def test_a_request_of_the_server_is_not_answered_on_a_modern_stream() -> None:
    """MHTTP-02: a modern client never POSTs a response."""

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        await answer.event(request(7, "roots/list"))
        await answer.event(result_of(asked))
        await answer.end()

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call()
        assert len(client.talk.cancelled) == 1
        assert len(server.asked) == 1


async def test_closing_fails_the_calls_that_wait_and_refuses_later_ones() -> None:
    async def hanging(asked: Asked, answer: Answer) -> None:
        await answer.gone()

    async with ScriptedServer(hanging) as server, Talking(server.url) as client:
        call = asyncio.create_task(client.call())
        await until(lambda: len(server.asked) == 1)
        await asyncio.gather(client.channel.close(), client.channel.close())
        with pytest.raises(ConnectionLost):
            await call
        with pytest.raises(ChannelClosed):
            await client.call()
        with pytest.raises(ChannelClosed):
            await client.notify("notifications/x")


async def test_a_call_that_was_settled_elsewhere_ends_without_an_error_when_its_stream_breaks() -> None:
    """A conversation that is closed settles its requests itself; the channel has nothing to add."""

    async def hanging(asked: Asked, answer: Answer) -> None:
        await answer.gone()

    async with ScriptedServer(hanging) as server, Talking(server.url) as client:
        message = client.talk.ask()
        sending = asyncio.create_task(client.channel.send(message))
        await until(lambda: len(server.asked) == 1)
        assert message.pending is not None
        message.pending.state = PendingState.LOST
        await client.channel.close()
        await sending


async def test_fifty_channels_open_and_close_in_any_task_and_order() -> None:
    """Open in one task, close in another: no cancel scopes, no groups."""
    async with ScriptedServer(answers) as server:
        clients = [Talking(server.url) for _ in range(50)]
        await asyncio.gather(*(asyncio.create_task(client.__aenter__()) for client in clients))
        calls = [asyncio.create_task(client.call()) for client in clients]
        closing = [asyncio.create_task(client.channel.close()) for client in clients[::2]]
        async with asyncio.timeout(10):
            ended = await asyncio.gather(*calls, return_exceptions=True)
            await asyncio.gather(*closing, *(client.channel.close() for client in clients))
        assert all(isinstance(one, dict | CallError | ChannelClosed) for one in ended)


async def test_another_wire_can_carry_the_requests_and_is_closed_with_the_channel() -> None:
    """The interface has two methods."""
    events: list[object] = []

    class Reply:
        status = 200
        headers = {"content-type": "application/json"}  # noqa: RUF012 # the interface asks for an attribute

        def __init__(self, body: bytes) -> None:
            self._parts = [body, b""]

        async def read(self) -> bytes:
            return self._parts.pop(0)

        def close(self, *, drain: bool = False) -> None:
            events.append("released")

    class Fake:
        def __init__(self) -> None:
            events.append("made")

        async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> Reply:
            events.append((method, url))
            return Reply(b'{"jsonrpc": "2.0", "id": 1, "result": {"fake": true}}')

        async def close(self) -> None:
            events.append("closed")

    async with Talking("https://example.test/mcp", wire=Fake) as client:
        assert await client.call() == {"fake": True}
    assert events == ["made", ("POST", "https://example.test/mcp"), "released", "closed"]


def test_it_works_on_uvloop_too() -> None:
    async def scenario() -> None:
        async with ScriptedServer(streams) as server, Talking(server.url) as client:
            for _ in range(3):
                assert await client.call() == {"streamed": True}
            assert server.connections == 1
        await test_cancelling_the_caller_closes_the_stream_so_that_the_server_sees_it("head")
        await test_a_result_of_several_megabytes_passes_as_an_event_and_as_json()

    uvloop.run(scenario())


async def test_opening_a_channel_loads_no_parser_and_connects_to_nothing() -> None:
    async with ScriptedServer(answers) as server:
        channel = await HttpTransport(server.url).open(lambda made: Talking(server.url).talk)
        assert channel.kind == "post"
        await channel.close()
        assert server.connections == 0


async def test_a_reply_is_posted_and_any_2xx_accepts_it() -> None:
    """LHTTP-02, LHTTP-03."""

    async def ok(asked: Asked, answer: Answer) -> None:
        await answer.body(b"null", status=200)

    async with ScriptedServer(ok) as server, Talking(server.url) as client:
        await client.channel.send(Outgoing(b'{"jsonrpc":"2.0","id":5,"result":{}}', 5))
        assert server.asked[0].message == {"jsonrpc": "2.0", "id": 5, "result": {}}
