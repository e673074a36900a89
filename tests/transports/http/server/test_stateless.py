"""POSTs of the stateless era: JSON or a stream, disconnect is cancellation, nothing is resumable."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import (
    Changed,
    ChannelClosed,
    Client,
    Context,
    GemelError,
    Limits,
    NotFinished,
    Overloaded,
    PeerError,
    Server,
)
from gemel.http1.asgi import Message
from gemel.server.context import served_call
from tests.support import EraName
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Site,
    handshake_call,
    initialize,
    make_server,
    modern,
    modern_call,
    serving,
    text_of,
)
from tests.transports.sharing_rig import apps, count_operations, redis_store, store_url

__all__ = ("redis_store", "store_url")  # fixtures


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def site(log: Log) -> AsyncIterator[Site]:
    async with serving(make_server(log)) as site:
        yield site


async def test_a_call_is_answered_with_one_json_object(site: Site) -> None:
    """MHTTP-06."""
    reply = await (await site.tool("add", 7, a=1, b=2)).reply()
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert (reply.json()["id"], text_of(reply.json())) == (7, "3")


async def test_the_first_notification_turns_the_answer_into_a_stream_that_ends_with_the_result(
    site: Site, log: Log
) -> None:
    """MHTTP-06, MHTTP-07, MHTTP-08, MHTTP-09."""
    log.gate.set()
    wire = await site.tool("stream", "a", count=2)
    reply = await wire.head()
    assert (reply.status, reply.streams) == (200, True)
    assert (reply.headers["x-accel-buffering"], reply.headers["cache-control"]) == ("no", "no-store")
    messages = [await wire.message() for _ in range(3)]
    assert [m.get("method") for m in messages] == ["notifications/progress", "notifications/progress", None]
    assert (messages[2]["id"], text_of(messages[2])) == ("a", "stream")
    assert await wire.event() is None


async def test_events_arrive_while_the_handler_still_runs(site: Site, log: Log) -> None:
    wire = await site.tool("stream", count=1)
    await wire.head()
    assert (await wire.message())["params"]["message"] == "stream 0"
    assert "stream ends" not in log.events


async def test_modern_streams_carry_no_ids_and_no_retry(site: Site, log: Log) -> None:
    """MHTTP-11."""
    log.gate.set()
    wire = await site.tool("stream", count=1)
    await wire.head()
    first, last = await wire.event(), await wire.event()
    assert first is not None
    assert last is not None
    assert (first.id, first.retry, last.id, last.retry) == (None, None, None, None)


async def test_a_stream_that_can_not_be_resumed_is_not_closed(site: Site, log: Log) -> None:
    log.gate.set()
    await (await site.tool("poll")).reply()
    assert log.events == ["closed: False"]


async def test_a_call_ends_with_its_channel_and_a_channel_as_often_as_one_likes(log: Log) -> None:
    """See `Channel.close`."""
    server = make_server(log)
    left: list[asyncio.Task[None]] = []

    @server.tool
    async def end(ctx: Context[Any]) -> None:
        async def close_late() -> None:
            await log.gate.wait()
            await served_call(ctx).session.channel.close()

        left.append(asyncio.create_task(close_late()))
        await served_call(ctx).session.channel.close()
        await asyncio.get_running_loop().create_future()

    async with serving(server) as site:
        assert (await (await site.tool("end")).reply()).json()["error"]["code"] == NotFinished.code
        log.gate.set()
        await left[0]


@pytest.mark.parametrize("tool", ["wait", "stream"])
async def test_a_client_that_leaves_cancels_its_call_whatever_the_shape_of_the_answer(
    site: Site, log: Log, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    """MHTTP-13: within 100 ms, JSON and stream alike."""
    wire = await (site.tool("wait") if tool == "wait" else site.tool("flood", count=10**6))
    if tool == "wait":
        await log.until("wait begins")
    else:
        await wire.head()
    wire.close()
    await log.until("wait is cancelled" if tool == "wait" else "flood is cancelled", 1.0)
    assert text_of((await (await site.tool("add", a=1, b=2)).reply()).json()) == "3"
    assert caplog.text == ""


async def test_a_reset_cancels_as_a_close_does(site: Site, log: Log) -> None:
    """MHTTP-13."""
    wire = await site.tool("wait")
    await log.until("wait begins")
    wire.abort()
    await log.until("wait is cancelled", 1.0)


async def test_a_client_that_leaves_cancels_nobody_elses_call(site: Site, log: Log) -> None:
    first, second = await site.tool("wait", name="first"), await site.tool("wait", name="second")
    await log.until("first begins")
    await log.until("second begins")
    first.close()
    await log.until("first is cancelled")
    log.gate.set()
    assert text_of((await second.reply()).json()) == "second"


async def test_equal_ids_on_two_posts_are_two_calls(site: Site, log: Log) -> None:
    wires = [await site.tool("wait", 1, name=name) for name in ("a", "b")]
    await log.until("b begins")
    log.gate.set()
    assert [text_of((await wire.reply()).json()) for wire in wires] == ["a", "b"]


async def test_a_quick_call_costs_no_task_and_no_more_than_two_messages() -> None:
    """The handler runs in the request's own task; nothing waits for a disconnect yet."""
    tasks: list[int] = []
    server = make_server(Log())

    @server.tool
    async def count() -> None:
        tasks.append(len(asyncio.all_tasks()))

    headers, body = modern_call("count")
    pairs = [(name.lower().encode(), value.encode()) for name, value in {"Host": "localhost", **headers}.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "headers": pairs}
    sent: list[str] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    before = len(asyncio.all_tasks())
    await server.http_app()(scope, receive, send)
    assert (tasks, sent) == ([before], ["http.response.start", "http.response.body"])


async def test_one_connection_carries_calls_one_after_the_other(site: Site) -> None:
    wire = await site.open()
    headers, body = modern_call("add", a=1, b=2)
    for _ in range(3):
        await wire.send("POST", headers, json.dumps(body).encode())
        assert text_of((await wire.reply()).json()) == "3"


async def test_a_notification_is_accepted_without_a_body(site: Site) -> None:
    """MHTTP-04: no Mcp-Method is demanded."""
    headers, body = modern("notifications/cancelled", {"requestId": 1})
    del body["id"], headers["Mcp-Method"]
    reply = await site.ask(headers, body)
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize(
    ("method", "change", "status", "code"),
    [
        ("nothing/here", {}, 404, -32601),
        ("initialize", {}, 404, -32601),
        ("tools/list", {"Mcp-Method": "tools/call"}, 400, -32020),
        ("tools/list", {"MCP-Protocol-Version": "2031-01-01"}, 400, -32020),
    ],
)
async def test_errors_of_the_envelope_have_their_status_and_the_requests_id(
    site: Site, method: str, change: dict[str, str], status: int, code: int
) -> None:
    """MHTTP-14, MHTTP-15, ERR-17, table 4.A row 1."""
    headers, body = modern(method, {}, "id")
    reply = await site.ask({**headers, **change}, body)
    assert (reply.status, reply.json()["error"]["code"], reply.json()["id"]) == (status, code, "id")


async def test_a_modern_header_without_a_claim_is_missing_meta(site: Site) -> None:
    """Table 4.A row 3."""
    headers, _ = modern("tools/list")
    reply = await site.ask(headers, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert (reply.status, reply.json()["error"]["code"]) == (400, -32602)


async def test_session_and_event_headers_are_ignored_and_never_minted(site: Site) -> None:
    """MHTTP-17."""
    headers, body = modern_call("add", a=1, b=2)
    reply = await site.ask({**headers, "Mcp-Session-Id": "no such", "Last-Event-ID": "x.1.1"}, body)
    assert reply.status == 200
    assert "mcp-session-id" not in reply.headers


@pytest.mark.parametrize(("accept", "status"), [("application/json", 406), ("text/event-stream", 406), ("*/*", 200)])
async def test_a_modern_client_must_take_both_types(site: Site, accept: str, status: int) -> None:
    """MHTTP-03."""
    headers, body = modern_call("add", a=1, b=2)
    reply = await site.ask({**headers, "Accept": accept}, body)
    assert (reply.status, reply.json()["id"]) == (status, 1)


async def test_a_subscription_in_a_batch_is_refused(site: Site) -> None:
    """The stateless era has no batches."""
    headers, body = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 1)
    reply = await site.ask(headers, [body, {**body, "id": 2}])
    assert reply.status == 400
    assert not reply.streams
    assert reply.json()["error"]["code"] == -32600


async def test_a_slow_json_answer_becomes_a_stream_with_the_first_keep_alive(log: Log) -> None:
    """MHTTP-10."""
    async with serving(make_server(log, limits=Limits(keep_alive=0.1))) as site:
        wire = await site.tool("wait")
        reply = await wire.head()
        assert reply.streams
        assert await wire.chunk() == b": keep-alive\n\n"
        log.gate.set()
        assert text_of(await wire.message()) == "wait"
        assert await wire.event() is None


async def test_a_quiet_stream_is_kept_open_by_comments(log: Log) -> None:
    """MHTTP-10."""
    async with serving(make_server(log, limits=Limits(keep_alive=0.1))) as site:
        wire = await site.tool("stream", count=1)
        await wire.head()
        await wire.event()
        assert await wire.chunk() == b": keep-alive\n\n"
        assert await wire.chunk() == b": keep-alive\n\n"
        log.gate.set()
        assert text_of(await wire.message()) == "stream"


async def test_a_reader_that_does_not_read_loses_its_stream_and_delays_nobody(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(stream_wait=0.3))) as site:
        await site.tool("flood", count=1000)
        await asyncio.sleep(0.1)
        for _ in range(5):
            async with asyncio.timeout(1):
                assert (await (await site.tool("add", a=1, b=2)).reply()).status == 200
        await log.until("flood is cancelled")


async def test_a_server_of_the_stateless_era_alone_takes_no_get_and_no_delete(log: Log) -> None:
    """MHTTP-16."""
    async with serving(make_server(log, eras="2026")) as site:
        for method in ("GET", "DELETE", "PUT"):
            reply = await site.ask({"Accept": "text/event-stream"}, b"", method)
            assert (reply.status, reply.headers["allow"]) == (405, "POST")


async def test_a_server_of_the_stateless_era_alone_refuses_the_handshake_in_words_that_help(log: Log) -> None:
    """Table 4.A row 10, and row 7 for responses."""
    async with serving(make_server(log, eras="2026")) as site:
        reply = await site.ask(JSON_HEADERS, initialize())
        assert (reply.status, reply.json()["id"]) == (400, 0)
        assert reply.json()["error"]["data"]["supported"] == ["2026-07-28"]
        reply = await site.ask(JSON_HEADERS, {"jsonrpc": "2.0", "id": 1, "result": {}})
        assert reply.status == 400
        reply = await site.ask(JSON_HEADERS, [initialize()])
        assert (reply.status, reply.json()["error"]["code"]) == (400, -32600)


def busy_server() -> Server[Any]:
    server: Server[Any] = Server("busy")

    @server.tool
    async def busy(ctx: Context[Any], streams: bool = False) -> str:
        if streams:
            await ctx.report_progress(1)
        raise Overloaded("Come back later", retry_after_ms=1500)

    return server


async def test_a_call_that_is_overloaded_is_503_with_the_delay_in_whole_seconds() -> None:
    async with serving(busy_server()) as site:
        reply = await (await site.tool("busy", 3)).reply()
        assert (reply.status, reply.headers["retry-after"]) == (503, "2")
        assert reply.json()["id"] == 3
        assert reply.json()["error"] == {"code": 429, "message": "Come back later", "data": {"retryAfterMs": 1500}}


async def test_a_stream_that_has_begun_ends_with_the_overloaded_error() -> None:
    async with serving(busy_server()) as site:
        wire = await site.tool("busy", streams=True)
        assert (await wire.head()).status == 200
        messages = [await wire.message(), await wire.message()]
        assert messages[1]["error"]["data"] == {"retryAfterMs": 1500}


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_sees_overloaded_as_the_same_error_in_both_eras(era: EraName, streams: bool) -> None:
    async with serving(busy_server()) as site, Client(f"http://127.0.0.1:{site.port}/mcp", era=era) as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("busy", {"streams": streams})
        assert (caught.value.code, caught.value.data) == (Overloaded.code, {"retryAfterMs": 1500})


async def test_stateless_requests_touch_no_backend(store_url: str) -> None:
    async with apps(store_url) as (app, other):
        operations, elsewhere = count_operations(app), count_operations(other)
        for number in range(5):
            wire = await app.site.tool("add", number, a=number, b=1)
            assert text_of((await wire.reply()).json()) == str(number + 1)
            wire.close()
            streamed = await app.site.tool("stream", number, count=2)
            app.log.gate.set()
            assert (await streamed.head()).streams
            while await streamed.message() is not None:
                pass
            streamed.close()
        for method, params in (
            ("server/discover", {}),
            ("tools/list", {}),
            ("resources/templates/list", {}),
            ("resources/read", {"uri": "note://a"}),
        ):
            headers, body = modern(method, params)
            named = {"Mcp-Name": params["uri"]} if "uri" in params else {}
            answer = (await app.site.ask({**headers, **named}, body)).json()
            assert "result" in answer, answer
        assert operations == elsewhere == []
        app.server.notify(Changed("tools"))
        assert len(operations) == 1, "they are counted"


# ---------------------------------------------------------------- handshake clients of a server without HTTP sessions


@pytest.fixture
async def plain(log: Log) -> AsyncIterator[Site]:
    server = make_server(log)

    @server.notification("notifications/acme/done")
    async def done(ctx: Context[Any], params: Any) -> None:
        with pytest.raises(ChannelClosed):
            await served_call(ctx).session.notify("notifications/acme/heard")
        await served_call(ctx).session.channel.close()
        log.add("refused")

    @server.tool
    async def ping_client(ctx: Context[Any]) -> str:
        try:
            await served_call(ctx).session.request("ping", about=served_call(ctx).call)
        except GemelError as exc:
            return type(exc).__name__
        return "answered"

    async with serving(server, sessions=False) as site:
        yield site


async def test_a_post_of_its_own_may_be_a_batch(plain: Site) -> None:
    reply = await plain.ask(
        JSON_HEADERS, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, handshake_call("add", 2, a=1, b=2)]
    )
    assert [each["id"] for each in reply.json()] == [1, 2]


@pytest.mark.parametrize(
    "message",
    [{"method": "notifications/cancelled", "params": {"requestId": 1}}, {"id": 1, "result": {}}],
)
async def test_what_needs_no_answer_is_accepted_without_a_body(plain: Site, message: dict[str, Any]) -> None:
    """LHTTP-04: a response, too, though nothing was asked."""
    reply = await plain.ask(JSON_HEADERS, {"jsonrpc": "2.0", **message})
    assert (reply.status, reply.body) == (202, b"")


async def test_a_handler_of_a_notification_can_not_send_to_a_client_that_was_answered(plain: Site, log: Log) -> None:
    reply = await plain.ask(JSON_HEADERS, {"jsonrpc": "2.0", "method": "notifications/acme/done"})
    assert (reply.status, reply.body) == (202, b"")
    await log.until("refused")


async def test_a_client_without_a_session_is_sent_no_request(plain: Site) -> None:
    """It would answer with another POST, which nothing connects with this one."""
    reply = await plain.ask(JSON_HEADERS, handshake_call("ping_client"))
    assert text_of(reply.json()) == "NotSent"


@pytest.mark.parametrize(
    ("accept", "call", "streams"),
    [
        ("application/json", handshake_call("stream", count=1), False),
        ("text/event-stream", handshake_call("add", a=1, b=2), True),
    ],
)
async def test_a_client_of_one_type_gets_it(plain: Site, log: Log, accept: str, call: Any, streams: bool) -> None:
    """Whether its call sends notifications or not."""
    log.gate.set()
    wire = await plain.call({**JSON_HEADERS, "Accept": accept}, call)
    assert (await wire.head()).streams is streams
