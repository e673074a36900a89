"""Handshake sessions over HTTP: their life, their owner, and which stream a message leaves on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Changed, Context, Limits, NotFinished, NotSent, Overloaded, Server
from gemel.http1.asgi import Scope
from gemel.protocol.records import Call
from gemel.protocol.states import CallState
from gemel.server.context import served_call
from gemel.transports.http.server.exchange import Exchange
from gemel.transports.http.server.replay import MemoryReplayLog
from gemel.transports.http.server.session import STANDING, HttpSession, SessionStream, StreamResponse
from tests.support import FIRST, V2025_03, V2025_06, V2025_11, Headers
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Site,
    exchange,
    handshake_call,
    initialize,
    make_server,
    modern_call,
    serving,
    text_of,
)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def site(log: Log) -> AsyncIterator[Site]:
    async with serving(make_server(log)) as site:
        yield site


PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}


# ---------------------------------------------------------------- life


async def test_a_handshake_makes_a_session_with_an_unguessable_visible_id(site: Site) -> None:
    """LHTTP-20, LHTTP-21, SEC-01."""
    first, second = [(await site.ask(JSON_HEADERS, initialize())).headers["mcp-session-id"] for _ in range(2)]
    assert first != second
    assert len(first) >= 43
    assert all(0x21 <= ord(character) <= 0x7E for character in first)


async def test_a_handshake_that_fails_makes_no_session(site: Site) -> None:
    """Nothing is kept of a refused one."""
    bad = initialize()
    bad["params"] = {"protocolVersion": 7}
    reply = await site.ask(JSON_HEADERS, bad)
    assert "error" in reply.json()
    assert "mcp-session-id" not in reply.headers


async def test_a_handshake_that_breaks_a_limit_is_answered_and_makes_no_session(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(values=100, sessions=1))) as site:
        bad = initialize()
        bad["params"]["_meta"] = {"numbers": list(range(20_000))}
        for _ in range(2):
            reply = await site.ask(JSON_HEADERS, bad)
            answer = reply.json()
            assert (answer["id"], answer["error"]["code"]) == (0, -32602)
            assert "Too many values" in answer["error"]["message"]
            assert "mcp-session-id" not in reply.headers
        await site.session()


@pytest.mark.parametrize(
    "member",
    [
        {"clientInfo": {"name": "x" * 70_000, "version": "1"}},
        {"capabilities": {"experimental": {"a": {"b": "x" * 70_000}}}},
        {"capabilities": {"experimental": {f"a{number}": {} for number in range(4000)}}},
    ],
    ids=["name", "text", "values"],
)
async def test_what_a_session_keeps_of_its_handshake_is_bounded(site: Site, member: dict[str, Any]) -> None:
    """Else ten thousand sessions could keep as many bodies, each as large as a body may be."""
    long = initialize()
    long["params"] |= member
    reply = await site.ask(JSON_HEADERS, long)
    assert reply.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in reply.headers
    long["params"] |= {"clientInfo": {"name": "x" * 50_000, "version": "1"}, "capabilities": {}}
    assert "mcp-session-id" in (await site.ask(JSON_HEADERS, long)).headers


async def test_a_subscription_counts_with_the_headers_that_are_kept_for_it(log: Log) -> None:
    server = make_server(log, limits=Limits(subscription_bytes=100_000))

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    async with serving(server) as site:
        session = await site.session()
        padded = {**session, "X-Padding": "x" * 60_000}

        async def subscribe(uri: str, method: str = "resources/subscribe") -> Any:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"uri": uri}}
            return (await site.ask(padded, request)).json()

        for _ in range(3):
            assert "result" in await subscribe("note://one")
            assert (await subscribe("note://two"))["error"]["code"] == Overloaded.code
            assert "result" in await subscribe("note://one", "resources/unsubscribe")


@pytest.mark.parametrize("revision", [FIRST, V2025_03, V2025_06, V2025_11])
async def test_a_session_lives_from_handshake_to_delete(site: Site, revision: str) -> None:
    """LHTTP-24."""
    session = await site.session(revision)
    reply = await site.ask(session, handshake_call("add", a=1, b=2))
    assert (reply.status, text_of(reply.json())) == (200, "3")
    assert (await site.ask(session, b"", "DELETE")).status == 204
    reply = await site.ask(session, PING)
    assert (reply.status, reply.json()["id"]) == (404, 9)
    assert "Session not found" in reply.json()["error"]["message"]
    assert (await site.ask(session, b"", "DELETE")).status == 404
    assert (await (await site.listen(session)).reply()).status == 404


async def test_a_request_without_a_session_is_400_and_with_a_wrong_one_404(site: Site) -> None:
    """LHTTP-23, table 4.A row 5."""
    assert (await site.ask(JSON_HEADERS, PING)).status == 400
    assert (await site.ask({**JSON_HEADERS, "Mcp-Session-Id": "unknown"}, PING)).status == 404
    assert (await site.ask({**JSON_HEADERS, "Mcp-Session-Id": "in valid"}, PING)).status == 400
    assert (await site.ask(JSON_HEADERS, b"", "GET")).status == 400
    assert (await site.ask(JSON_HEADERS, b"", "DELETE")).status == 400


async def test_the_version_header_is_checked_but_need_not_come(site: Site) -> None:
    """LHTTP-28, table 4.A row 6."""
    session = await site.session()
    bare = {name: value for name, value in session.items() if name != "MCP-Protocol-Version"}
    assert (await site.ask(bare, PING)).status == 200
    for headers in (session, JSON_HEADERS):
        reply = await site.ask({**headers, "MCP-Protocol-Version": "2031-01-01"}, initialize())
        assert (reply.status, reply.json()["error"]["code"]) == (400, -32022)
        assert reply.json()["error"]["data"]["supported"][0] == "2026-07-28"
    assert (await site.ask({**session, "MCP-Protocol-Version": "x"}, b"", "DELETE")).status == 400


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_what_the_stateless_revision_has_not_is_told_as_such(site: Site, method: str) -> None:
    """Not as a revision that isn't offered: it is."""
    headers = {**await site.session(), "MCP-Protocol-Version": "2026-07-28"}
    reply = await site.ask(headers, {"jsonrpc": "2.0", "id": 1, "result": {}}, method)
    error = reply.json()["error"]
    assert (reply.status, error["code"], "2026-07-28" in error["message"]) == (400, -32600, True)


async def test_a_notification_reaches_its_handler(log: Log) -> None:
    server = make_server(log)

    @server.notification("notifications/acme/done")
    async def done(ctx: Context[Any], params: Any) -> None:
        log.add("done")

    async with serving(server) as site:
        reply = await site.ask(await site.session(), {"jsonrpc": "2.0", "method": "notifications/acme/done"})
        assert (reply.status, reply.body) == (202, b"")
        await log.until("done")


async def test_a_session_of_another_principal_is_not_there() -> None:
    """SEC-01: nobody learns that the id exists."""

    async def authenticate(scope: Scope, headers: Headers) -> str:
        return headers.get("authorization", "nobody")

    async with serving(make_server(Log()), authenticate=authenticate) as site:
        session = await site.session(Authorization="ada")
        thief = {**session, "Authorization": "eve"}
        assert (await site.ask(session, PING)).status == 200
        stolen = await site.ask(thief, PING)
        made_up = await site.ask({**thief, "Mcp-Session-Id": "unknown"}, PING)
        assert (stolen.status, stolen.body) == (404, made_up.body)
        assert (await (await site.listen(thief)).reply()).status == 404
        assert (await site.ask(thief, b"", "DELETE")).status == 404
        assert (await site.ask(session, PING)).status == 200


async def test_a_session_without_stream_or_call_ends_after_the_idle_limit(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(session_idle=0.3))) as site:
        idle, listening, calling = [await site.session() for _ in range(3)]
        stream = await site.listen(listening)
        await stream.head()
        call = await site.call(calling, handshake_call("wait"))
        await log.until("wait begins")
        await asyncio.sleep(0.7)
        assert (await site.ask(idle, PING)).status == 404
        assert (await site.ask(listening, PING)).status == 200
        log.gate.set()
        assert text_of((await call.reply()).json()) == "wait"


async def test_the_only_session_of_a_quiet_server_ends_after_the_idle_limit(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(session_idle=0.2))) as site:
        session = await site.session()
        await asyncio.sleep(0.6)
        assert (await site.ask(session, PING)).status == 404


async def test_a_caller_whose_sessions_are_all_in_use_is_told_when_to_come_back(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=2))) as site:
        sessions = [await site.session() for _ in range(2)]
        calls = [await site.call(session, handshake_call("wait")) for session in sessions]
        await until(lambda: log.events.count("wait begins") == 2)
        reply = await site.ask(JSON_HEADERS, initialize())
        assert (reply.status, reply.headers["retry-after"], reply.json()["id"]) == (503, "1", 0)
        log.gate.set()
        assert [text_of((await call.reply()).json()) for call in calls] == ["wait", "wait"]
        assert (await site.ask(JSON_HEADERS, initialize())).status == 200


async def test_a_stop_lets_a_call_end_whose_client_went_away(log: Log) -> None:
    """In the handshake era a broken connection does not cancel a call."""
    async with serving(make_server(log)) as site:
        session = await site.session()
        call = await site.call(session, handshake_call("wait"))
        await log.until("wait begins")
        call.abort()
        assert site.app is not None
        stopping = asyncio.create_task(site.app.stop())
        await asyncio.sleep(0.2)
        log.gate.set()
        await stopping
    assert log.events == ["wait begins", "wait ends"]


async def test_a_stop_ends_the_standing_streams_while_calls_still_run(log: Log) -> None:
    async with serving(make_server(log)) as site:
        calling, listening = await site.session(), await site.session()
        standing = await site.listen(listening)
        await standing.head()
        call = await site.call(calling, handshake_call("wait"))
        await log.until("wait begins")
        assert site.app is not None
        stopping = asyncio.create_task(site.app.stop())
        while await standing.event() is not None:
            pass
        log.gate.set()
        assert text_of((await call.reply()).json()) == "wait"
        await stopping


async def test_a_stop_waits_until_the_sessions_have_cleaned_up(log: Log) -> None:
    @asynccontextmanager
    async def connected(ctx: Any) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(0.2)
        log.add("the connection has ended")

    server: Server[Any] = Server("tidy", connection_lifespan=connected)
    server.tool("hello")(lambda: "hello")
    async with serving(server) as site:
        session = await site.session()
        assert (await site.ask(session, handshake_call("hello"))).status == 200
        assert site.app is not None
        await site.app.stop()
        assert log.events == ["the connection has ended"]


def count_kept() -> int:
    """How many calls and their streams there are."""
    gc.collect()
    kept = [each for each in gc.get_objects() if type(each) in (Call, SessionStream)]
    return sum(1 for each in kept if type(each) is Call or each.number != STANDING)


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "text/event-stream"])
async def test_nothing_is_kept_of_calls_that_have_ended(site: Site, accept: str) -> None:
    before = count_kept()
    session = {**await site.session(), "Accept": accept}
    for _ in range(5):
        await site.ask(session, handshake_call("add", a=1, b=2))
    assert count_kept() <= before


async def test_nothing_is_kept_of_sessions_that_have_ended(log: Log) -> None:
    async with serving(make_server(log)) as site:
        for _ in range(3):
            await site.ask(await site.session(), b"", "DELETE")
        assert site.app is not None
        sessions = site.app._lives.here()._sessions
        async with asyncio.timeout(5):
            while sessions._ending:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert sessions.by_key == {}


# ---------------------------------------------------------------- which stream


async def test_notifications_about_a_call_leave_on_its_own_stream_after_an_opening_event(site: Site, log: Log) -> None:
    """LHTTP-06, LHTTP-07, LHTTP-08."""
    log.gate.set()
    session = await site.session()
    wire = await site.call(session, handshake_call("stream", count=2))
    assert (await wire.head()).streams
    opening = await wire.event()
    assert opening is not None
    assert (opening.data, opening.retry) == (b"", 1000)
    assert opening.id
    messages = [await wire.message() for _ in range(3)]
    assert [m.get("id") for m in messages] == [None, None, 1]
    assert await wire.event() is None


@pytest.mark.parametrize("revision", [V2025_03, V2025_06])
async def test_older_revisions_get_ids_but_no_opening_event(site: Site, log: Log, revision: str) -> None:
    """Only the revision of 2025-11-25 has one."""
    log.gate.set()
    wire = await site.call(await site.session(revision), handshake_call("stream", count=1))
    await wire.head()
    first = await wire.event()
    assert first is not None
    assert first.data
    assert first.id


async def test_a_call_without_notifications_is_one_json_object(site: Site) -> None:
    """LHTTP-05."""
    reply = await site.ask(await site.session(), handshake_call("add", a=1, b=2))
    assert reply.headers["content-type"] == "application/json"


async def test_a_clients_one_type_is_respected(site: Site, log: Log) -> None:
    """LHTTP-05: who takes JSON alone gets no stream; who takes streams alone gets nothing else."""
    log.gate.set()
    session = await site.session()
    reply = await site.ask({**session, "Accept": "application/json"}, handshake_call("stream", count=3))
    assert (reply.headers["content-type"], text_of(reply.json())) == ("application/json", "stream")
    wire = await site.call({**session, "Accept": "text/event-stream"}, handshake_call("add", a=1, b=2))
    assert (await wire.head()).streams
    assert text_of(await wire.message()) == "3"
    reply = await site.ask({**JSON_HEADERS, "Accept": "text/event-stream"}, initialize())
    assert reply.streams
    assert "mcp-session-id" in reply.headers
    assert (await site.ask({**session, "Accept": "image/png"}, PING)).status == 406


async def test_the_same_id_twice_in_flight_is_served_twice_each_on_its_own_stream(site: Site, log: Log) -> None:
    """LHTTP-06; also 1 next to "1"."""
    session = await site.session()
    names = ["a", "b", "c"]
    calls = [
        handshake_call("stream", call_id, name=name, count=1) for name, call_id in zip(names, (1, 1, "1"), strict=True)
    ]
    wires = [await site.call(session, call) for call in calls]
    for name in names:
        await log.until(f"{name} has told")
    log.gate.set()
    for name, wire, call in zip(names, wires, calls, strict=True):
        await wire.head()
        progress, result = await wire.message(), await wire.message()
        assert progress["params"]["message"] == f"{name} 0"
        assert (text_of(result), result["id"]) == (name, call["id"])
        assert await wire.event() is None


async def test_what_belongs_to_no_call_leaves_on_the_get_stream_alone(site: Site, log: Log) -> None:
    """LHTTP-01, LHTTP-13, LHTTP-14, LHTTP-16."""
    session, other = await site.session(), await site.session()
    streams = [await site.listen(one) for one in (session, other)]
    for stream in streams:
        assert (await stream.head()).streams
    waiting = await site.call(session, handshake_call("stream", count=1))
    await log.until("stream has told")
    assert (await site.ask(session, handshake_call("more", 2))).status == 200
    for stream in streams:
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
    log.gate.set()
    await waiting.head()
    assert [(await waiting.message()).get("method") for _ in range(2)] == ["notifications/progress", None]
    assert await waiting.event() is None


async def test_what_came_before_the_first_get_waits_for_it(site: Site) -> None:
    session = await site.session()
    await site.ask(session, handshake_call("more"))
    stream = await site.listen(session)
    await stream.head()
    assert (await stream.message())["method"] == "notifications/tools/list_changed"


async def test_a_second_get_takes_the_place_of_the_first(site: Site) -> None:
    """LHTTP-13: the first one may be dead, which the server can't see yet. No message is on two streams, and none is lost."""
    session, ids = await site.session(), list[str | None]()
    streams = []
    for _ in range(4):
        streams.append(await site.listen(session))
        assert (await streams[-1].head()).status == 200
        await site.ask(session, handshake_call("more"))
    await site.ask(session, {"jsonrpc": "2.0", "id": 2, "method": "ping"})
    for number, stream in enumerate(streams):
        while (event := await stream.event()) is not None:
            if event.data:
                ids.append(event.id)
                if number == len(streams) - 1:
                    break
    assert len(ids) == len(set(ids)) == 4


async def test_a_get_must_take_events(site: Site) -> None:
    """LHTTP-12."""
    session = await site.session()
    assert (await site.ask({**session, "Accept": "application/json"}, b"", "GET")).status == 406


async def test_a_question_to_the_client_goes_out_on_the_calls_stream_and_its_answer_comes_by_post(site: Site) -> None:
    """LHTTP-04, LHTTP-30."""
    session = await site.session()
    wire = await site.call(session, handshake_call("ask"))
    await wire.head()
    question = await wire.message()
    assert question["method"] == "roots/list"
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///home"}]}}
    reply = await site.ask(session, answer)
    assert (reply.status, reply.body) == (202, b"")
    assert text_of(await wire.message()) == "file:///home"


@pytest.mark.parametrize("members", [{"error": {}}, {"result": {}, "error": {"code": 1, "message": "x"}}, {}])
async def test_a_malformed_answer_by_post_fails_the_call_that_asked(site: Site, members: dict[str, Any]) -> None:
    session = await site.session()
    wire = await site.call(session, handshake_call("ask"))
    await wire.head()
    question = await wire.message()
    reply = await site.ask(session, {"jsonrpc": "2.0", "id": question["id"], **members})
    assert (reply.status, reply.json()["error"]["code"], reply.json().get("id")) == (400, -32600, None)
    assert (await wire.message())["id"] == handshake_call("ask")["id"]


async def test_a_client_that_takes_no_events_can_not_be_asked_and_its_call_fails(site: Site) -> None:
    session = {**await site.session(), "Accept": "application/json"}
    result = (await site.ask(session, handshake_call("ask"))).json()["result"]
    assert result["isError"]


async def test_an_explicit_cancellation_stops_the_call_and_ends_its_stream(site: Site, log: Log) -> None:
    """CANC-06: no answer after it."""
    session = await site.session()
    wire = await site.call(session, handshake_call("wait"))
    await log.until("wait begins")
    cancel: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert (await site.ask(session, cancel)).status == 202
    await log.until("wait is cancelled")
    reply = await wire.reply()
    assert (reply.status, reply.streams, b"result" in reply.body) == (200, True, False)


async def test_an_explicit_cancellation_ends_a_stream_that_has_begun(site: Site, log: Log) -> None:
    session = await site.session()
    wire = await site.call(session, handshake_call("stream", count=1))
    await log.until("stream has told")
    await wire.head()
    cancel: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert (await site.ask(session, cancel)).status == 202
    assert (await wire.message())["method"] == "notifications/progress"
    assert await wire.message() is None


async def test_an_unread_stream_delays_no_other_call_of_its_session(log: Log) -> None:
    """One slow reader must not be everybody's."""
    async with serving(make_server(log, limits=Limits(stream_bytes=100_000, stream_wait=0.3))) as site:
        session = await site.session()
        await site.call(session, handshake_call("flood", count=500))
        await asyncio.sleep(0.1)
        assert "flood ends" not in log.events
        for _ in range(5):
            async with asyncio.timeout(1):
                assert (await site.ask(session, PING)).status == 200
        await log.until("flood ends")


async def test_both_eras_share_one_endpoint(site: Site) -> None:
    """No era is inferred from what came before on a connection."""
    session = await site.session()
    headers, body = modern_call("add", a=1, b=2)
    assert (await site.ask({**headers, "Mcp-Session-Id": session["Mcp-Session-Id"]}, body)).json()["result"][
        "resultType"
    ]
    assert (await site.ask(session, handshake_call("add", a=1, b=2))).status == 200


async def test_a_batch_is_answered_as_one_where_the_revision_has_batches(site: Site) -> None:
    """BASE-11, LHTTP-04."""
    session = await site.session(V2025_03)
    del session["MCP-Protocol-Version"]
    reply = await site.ask(
        session, [handshake_call("add", n, a=n, b=1) for n in (1, 2)] + [{"jsonrpc": "2.0", "id": 3}]
    )
    assert sorted(text_of(one) for one in reply.json() if "result" in one) == ["2", "3"]
    assert len(reply.json()) == 3
    reply = await site.ask(session, [PING, handshake_call("add", 2, a=1, b=1)])
    assert {each["id"] for each in reply.json() if "result" in each} == {PING["id"], 2}
    changed = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    reply = await site.ask(session, [changed])
    assert (reply.status, reply.body) == (202, b"")
    reply = await site.ask(session, [changed, {"jsonrpc": "2.0", "id": 3}])
    assert [(answer["id"], answer["error"]["code"]) for answer in reply.json()] == [(3, -32600)]
    newer = await site.session(V2025_11)
    assert (await site.ask(newer, [PING])).json()["error"]["code"] == -32600


async def test_without_sessions_each_handshake_post_stands_alone(log: Log) -> None:
    """LHTTP-13."""
    async with serving(make_server(log), sessions=False) as site:
        reply = await site.ask(JSON_HEADERS, initialize())
        assert reply.status == 200
        assert "mcp-session-id" not in reply.headers
        reply = await site.ask({**JSON_HEADERS, "MCP-Protocol-Version": V2025_11}, handshake_call("add", a=1, b=2))
        assert text_of(reply.json()) == "3"
        assert (await site.ask(JSON_HEADERS, b"", "GET")).status == 405
        wire = await site.call(JSON_HEADERS, handshake_call("wait"))
        await log.until("wait begins")
        wire.close()
        await asyncio.sleep(0.1)
        log.gate.set()
        await log.until("wait ends")  # LHTTP-11


async def test_the_end_of_a_session_stops_its_calls_and_ends_its_streams(site: Site, log: Log) -> None:
    session = await site.session()
    standing = await site.listen(session)
    await standing.head()
    await standing.event()
    call = await site.call(session, handshake_call("wait"))
    await log.until("wait begins")
    assert (await site.ask(session, b"", "DELETE")).status == 204
    await log.until("wait is cancelled")
    assert await standing.event() is None
    answer = (await call.reply()).json()
    assert (answer["id"], answer["error"]["code"]) == (1, NotFinished.code)


async def test_a_call_that_its_client_cancelled_gets_no_answer_at_the_end_of_its_session(site: Site, log: Log) -> None:
    session = await site.session()
    call = await site.call(session, handshake_call("wait", 5))
    await log.until("wait begins")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    await site.ask(session, cancelled)
    await log.until("wait is cancelled")
    await site.ask(session, b"", "DELETE")
    assert (await call.reply()).body == b""


async def test_a_call_whose_exchange_is_given_up_is_cancelled_and_its_answer_can_be_fetched(
    site: Site, log: Log
) -> None:
    session, sent = await site.session(), list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    told = exchange(site, session, handshake_call("stream", 1, count=1), send)
    waiting = exchange(site, session, handshake_call("wait", 2), send)
    await log.until("stream has told")
    await log.until("wait begins")
    told.cancel()
    waiting.cancel()
    await asyncio.wait([told, waiting])
    await log.until("wait is cancelled")
    (opening,) = (each for each in sent if b"retry:" in each.get("body", b""))
    resumed = await site.listen(session, opening["body"].decode().split("id: ")[1].split()[0])
    await resumed.head()
    assert (await resumed.message())["method"] == "notifications/progress"
    answer = await resumed.message()
    assert (answer["id"], answer["error"]["code"]) == (1, NotFinished.code)
    assert await resumed.message() is None


async def test_an_exchange_that_is_given_up_after_the_answer_tells_nothing_else(site: Site, log: Log) -> None:
    session, sent, stuck = await site.session(), list[Any](), asyncio.Event()

    async def send(message: Any) -> None:
        if text_in(message):
            stuck.set()
            await asyncio.get_running_loop().create_future()
        sent.append(message)

    def text_in(message: Any) -> bool:
        return b'"content"' in message.get("body", b"")

    task = exchange(site, session, handshake_call("add", a=1, b=2), send)
    await stuck.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not any(b'"error"' in message.get("body", b"") for message in sent)


async def test_a_client_that_leaves_while_the_end_of_its_stream_is_written_is_no_failure(
    site: Site, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message["more_body"]:
            raise ConnectionResetError("the client closed the connection")

    log.gate.set()
    await exchange(site, await site.session(), handshake_call("stream", count=1), send)
    assert caplog.text == ""


async def test_a_session_whose_client_only_answers_is_not_idle(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(session_idle=3600))) as site:
        session = await site.session()
        age(site, 3599)
        assert (await site.ask(session, {"jsonrpc": "2.0", "id": 77, "result": {}})).status == 202
        age(site, 3599)
        look(site)
        assert (await site.ask(session, PING)).status == 200


async def test_the_idle_time_of_a_session_begins_with_the_end_of_its_last_call_or_stream(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(session_idle=3600))) as site:
        calling, listening = await site.session(), await site.session()
        call, stream = await site.call(calling, handshake_call("wait")), await site.listen(listening)
        await stream.head()
        await log.until("wait begins")
        call.abort()
        await until(lambda: sum(each._open_responses for each in sessions_of(site)) == 1)
        age(site, 3700)
        log.gate.set()
        stream.abort()
        await log.until("wait ends")
        await until(lambda: not any(each.busy for each in sessions_of(site)))
        look(site)
        for session in (calling, listening):
            assert (await site.ask(session, PING)).status == 200


async def test_a_stream_opens_with_an_event_before_its_client_says_that_it_is_initialized(site: Site, log: Log) -> None:
    reply = await site.ask(JSON_HEADERS, initialize())
    session = {**JSON_HEADERS, "Mcp-Session-Id": reply.headers["mcp-session-id"], "MCP-Protocol-Version": V2025_11}
    call = await site.call(session, handshake_call("stream", count=1))
    await call.head()
    opening = await call.event()
    assert opening is not None
    assert (opening.data, bool(opening.id)) == (b"", True)
    log.gate.set()


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_handler_waits_while_its_stream_is_not_read(log: Log, resumed: bool) -> None:
    server: Server[Any] = Server("busy", limits=Limits(stream_bytes=100_000))
    told = 0

    @server.tool
    async def flood(ctx: Context[Any]) -> None:
        nonlocal told
        await ctx.report_progress(0, 1000, "begin")
        await log.gate.wait()
        for number in range(1, 1000):
            await ctx.report_progress(number, 1000, "x" * 65536)
            told += 1

    async with serving(server) as site:
        session = await site.session()
        wire = await site.call(session, handshake_call("flood"))
        await wire.head()
        opening = await wire.event()
        if resumed:
            assert opening is not None
            await (await site.listen(session, opening.id)).head()
        log.gate.set()
        before = -1
        while before != told:
            before = told
            await asyncio.sleep(0.2)
        assert 0 < told * 65536 < 32_000_000  # most of it in the buffers of the sockets


async def test_several_tasks_of_a_handler_may_wait_for_a_slow_client() -> None:
    server: Server[Any] = Server("busy", limits=Limits(stream_bytes=100_000))

    @server.tool
    async def flood(ctx: Context[Any]) -> str:
        async def tell() -> None:
            for _ in range(20):
                await ctx.notify("notifications/acme", {"x": "x" * 65536})

        await asyncio.gather(tell(), tell())
        return "told"

    async with serving(server) as site:
        wire = await site.call(await site.session(), handshake_call("flood"))
        await wire.head()
        told = 0
        while "result" not in await wire.message():
            told += 1
        assert told == 40


def sessions_of(site: Site) -> list[HttpSession]:
    assert site.app is not None
    return list(site.app._lives.here()._sessions.by_key.values())


def look(site: Site) -> None:
    """End the sessions whose idle time is over, as a timer does now and then."""
    assert site.app is not None
    site.app._lives.here()._sessions.end_idle(asyncio.get_running_loop().time())


def age(site: Site, seconds: float) -> None:
    """Let all sessions have been idle for so much longer."""
    for session in sessions_of(site):
        session.idle_since -= seconds


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_a_session_that_was_not_used_yet_may_wait_while_there_is_room(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=2))) as site:
        unused = (await site.ask(JSON_HEADERS, initialize())).headers["mcp-session-id"]
        age(site, 600)
        assert (await site.ask(JSON_HEADERS, initialize())).status == 200
        assert (await site.ask({**JSON_HEADERS, "Mcp-Session-Id": unused}, PING)).status == 200


async def test_sessions_share_the_bytes_of_a_change_that_all_are_told(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What 10,000 sessions keep of one changed list is one text."""
    kept: list[bytes] = []
    append = MemoryReplayLog.append

    def record(self: MemoryReplayLog, stream: int, data: bytes) -> bytes:
        kept.append(data)
        return append(self, stream, data)

    monkeypatch.setattr(MemoryReplayLog, "append", record)
    server = make_server(log)
    async with serving(server) as site:
        for _ in range(3):
            await site.session()
        server.notify(Changed("tools"))
        await until(lambda: len(kept) >= 3)
    assert b"tools/list_changed" in kept[0]
    assert all(data is kept[0] for data in kept)


async def test_each_change_of_a_list_is_told_once(log: Log) -> None:
    server = make_server(log)
    async with serving(server) as site:
        stream = await site.listen(await site.session())
        await stream.head()
        for kind in ("tools", "prompts", "resources", "tools"):
            server.notify(Changed(kind))
            assert (await stream.message())["method"] == f"notifications/{kind}/list_changed"


async def test_changes_that_a_client_does_not_read_take_a_bounded_room(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit waits outside, where repeats are merged."""
    server = make_server(log, limits=Limits(stream_bytes=1000))
    flush = StreamResponse._flush

    async def wait(self: StreamResponse) -> None:
        await log.gate.wait()
        await flush(self)

    async with serving(server) as site:
        stream = await site.listen(await site.session())
        await stream.head()
        monkeypatch.setattr(Exchange, "write_now", lambda self, data: False)
        monkeypatch.setattr(StreamResponse, "_flush", wait)
        for _ in range(200):
            server.notify(Changed("tools"))
            await asyncio.sleep(0)
        server.notify(Changed("prompts"))
        log.gate.set()
        told = [(await stream.message())["method"]]
        while told[-1] != "notifications/prompts/list_changed":
            told.append((await stream.message())["method"])
    assert 10 < len(told) < 30


# ---------------------------------------------------------------- requests of the server that belong to no call


def curious_server() -> tuple[Server[Any], asyncio.Queue[str]]:
    """It asks from the handlers of notifications; what came of it."""
    server: Server[Any] = Server("curious")
    came: asyncio.Queue[str] = asyncio.Queue()

    async def ask(ctx: Context[Any], params: Any) -> None:
        try:
            came.put_nowait(" ".join(root.uri for root in await ctx.list_roots()))
        except NotSent as exc:
            came.put_nowait(str(exc))

    server.notification("notifications/initialized")(ask)
    server.notification("notifications/roots/list_changed")(ask)

    @server.tool
    async def leave(ctx: Context[Any]) -> str:
        async def later() -> None:
            while served_call(ctx).call.state is CallState.RUNNING:  # noqa: ASYNC110 - not signalled
                await asyncio.sleep(0.001)
            try:
                await ctx.ping()
                came.put_nowait("answered")
            except NotSent as exc:
                came.put_nowait(str(exc))

        asyncio.get_running_loop().create_task(later())
        return "left"

    return server, came


async def said(queue: asyncio.Queue[str]) -> str:
    async with asyncio.timeout(10):
        return await queue.get()


async def test_a_handler_of_initialized_asks_on_the_stream_that_the_client_opens_next() -> None:
    server, came = curious_server()
    async with serving(server) as site:
        session = await site.session()
        stream = await site.listen(session)
        await stream.head()
        question = await stream.message()
        assert question["method"] == "roots/list"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///a"}]}}
        assert (await site.ask(session, answer)).status == 202
        assert await said(came) == "file:///a"


async def test_without_an_open_stream_the_client_can_not_be_asked() -> None:
    """At once, except for the handler of `initialized`, which waits for the stream a few seconds."""
    server, came = curious_server()
    async with serving(server) as site:
        session = await site.session()
        begin = asyncio.get_running_loop().time()
        assert (await site.ask(session, {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})).status == 202
        refusal = "roots/list was not sent: the client has no stream open (GET) on which it could be asked"
        assert await said(came) == refusal
        assert (await site.ask(session, handshake_call("leave"))).status == 200
        assert await said(came) == refusal.replace("roots/list", "ping")
        assert asyncio.get_running_loop().time() - begin < 4
        assert await said(came) == refusal


async def test_a_call_that_is_over_asks_on_the_standing_stream() -> None:
    server, came = curious_server()
    async with serving(server) as site:
        session = await site.session()
        stream = await site.listen(session)
        await stream.head()
        assert (await stream.message())["method"] == "roots/list"
        assert (await site.ask(session, handshake_call("leave"))).status == 200
        question = await stream.message()
        assert question["method"] == "ping"
        assert (await site.ask(session, {"jsonrpc": "2.0", "id": question["id"], "result": {}})).status == 202
        assert await said(came) == "answered"


async def test_initialize_within_a_session_opens_another_one(site: Site, log: Log) -> None:
    """As gateways send it, which initialize by themselves. The first session and its calls go on."""
    session = await site.session()
    wire = await site.call(session, handshake_call("wait", 7))
    await log.until("wait begins")
    reply = await site.ask(session, initialize(V2025_06))
    other = {**session, "Mcp-Session-Id": reply.headers["mcp-session-id"], "MCP-Protocol-Version": V2025_06}
    assert other["Mcp-Session-Id"] != session["Mcp-Session-Id"]
    assert (await site.ask(other, PING)).status == 200
    assert (await site.ask(other, b"", "DELETE")).status == 204
    assert (await site.ask(session, PING)).status == 200
    log.gate.set()
    assert (await wire.reply()).status == 200


async def test_initialize_within_a_session_that_has_ended_is_not_found(site: Site) -> None:
    """2025-11-25, Transports, "Session Management": 404 for each request that names it."""
    session = await site.session()
    await site.ask(session, b"", "DELETE")
    assert (await site.ask(session, initialize())).status == 404
