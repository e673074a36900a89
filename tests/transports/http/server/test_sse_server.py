"""The first revision's transport, served: one stream out, POSTs in, behind the same door as everything else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import DefinitionError, Limits, Server
from gemel.http1.asgi import Scope
from gemel.transports.http.server.app import HttpApp
from tests.support import FIRST, HANDSHAKE_REVISIONS, V2025_03, Headers
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Site,
    Wire,
    handshake_call,
    initialize,
    make_server,
    modern,
    serving,
    text_of,
)

STREAM = {"Accept": "text/event-stream"}
JSON = {"Content-Type": "application/json"}


class Old:
    """A client of the old transport: its stream and where its messages go."""

    def __init__(self, site: Site, wire: Wire, path: str, headers: dict[str, str]) -> None:
        self.site = site
        self.wire = wire
        self.path = path
        self.headers = headers

    async def post(self, message: Any, **headers: str) -> int:
        """Send a message; the status of what the server says to that."""
        return (await self.site.ask({**JSON, **self.headers, **headers}, message, path=self.path)).status

    async def ask(self, message: Any) -> Any:
        assert await self.post(message) == 202
        return await self.wire.message()

    async def shake_hands(self, revision: str = FIRST) -> Any:
        answer = await self.ask(initialize(revision))
        assert await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202
        return answer


async def open_old(site: Site, path: str = "/sse", **headers: str) -> Old:
    wire = await site.call({**STREAM, **headers}, b"", "GET", path)
    head = await wire.head()
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
    event = await wire.event()
    assert event is not None
    assert event.type == "endpoint"
    return Old(site, wire, event.data.decode(), headers)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def site(log: Log) -> AsyncIterator[Site]:
    async with serving(make_server(log), sse_path="/sse") as site:
        yield site


# ---------------------------------------------------------------- messages


async def test_the_first_event_names_where_messages_go_and_answers_come_as_message_events(site: Site) -> None:
    """HSSE-01, HSSE-02, HSSE-04."""
    old = await open_old(site)
    assert old.path.startswith("/sse/messages?session_id=")
    assert await old.post(initialize(FIRST)) == 202
    event = await old.wire.event()
    assert event is not None
    assert event.type == "message"
    assert json.loads(event.data)["result"]["protocolVersion"] == FIRST


async def test_a_conversation_calls_asks_and_reports_on_its_one_stream(site: Site, log: Log) -> None:
    """HSSE-04: requests of the server and progress too."""
    old = await open_old(site)
    await old.shake_hands()
    assert text_of(await old.ask(handshake_call("add", 1, a=2, b=3))) == "5"
    question = await old.ask(handshake_call("ask", 2))
    assert question["method"] == "roots/list"
    roots = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///r"}]}}
    assert text_of(await old.ask(roots)) == "file:///r"
    log.gate.set()
    told = await old.ask(handshake_call("stream", 3, count=2))
    assert (told["method"], told["params"]["progressToken"]) == ("notifications/progress", "p")
    assert (await old.wire.message())["params"]["progress"] == 1
    assert text_of(await old.wire.message()) == "stream"


async def test_calls_run_side_by_side_and_one_is_cancelled_by_a_message(site: Site, log: Log) -> None:
    old = await open_old(site)
    await old.shake_hands()
    assert await old.post(handshake_call("wait", 1, name="one")) == 202
    assert await old.post(handshake_call("wait", "1", name="two")) == 202
    await log.until("one begins")
    await log.until("two begins")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert await old.post(cancelled) == 202
    await log.until("one is cancelled")
    log.gate.set()
    answer = await old.wire.message()
    assert (answer["id"], text_of(answer)) == ("1", "two")


async def test_a_second_request_with_an_id_in_flight_is_refused(site: Site, log: Log) -> None:
    """One stream carries all answers, so equal ids could not be told apart (BASE-04)."""
    old = await open_old(site)
    await old.shake_hands()
    assert await old.post(handshake_call("wait", 1)) == 202
    await log.until("wait begins")
    assert (await old.ask(handshake_call("wait", 1)))["error"]["code"] == -32600


async def test_changes_of_a_list_are_told_unasked(site: Site) -> None:
    """SUB-14."""
    old = await open_old(site)
    await old.shake_hands()
    assert await old.post(handshake_call("more")) == 202
    got = [await old.wire.message() for _ in range(2)]
    assert "notifications/tools/list_changed" in [message.get("method") for message in got]


async def test_a_batch_is_taken_in_the_revision_that_knows_batches(site: Site) -> None:
    """BASE-11."""
    old = await open_old(site)
    await old.shake_hands(V2025_03)
    answers = await old.ask([handshake_call("add", 1, a=1, b=1), handshake_call("add", 2, a=2, b=2)])
    assert [text_of(answer) for answer in answers] == ["2", "4"]


async def test_a_stateless_request_is_told_to_shake_hands(site: Site) -> None:
    """Table 4.D: the list in the error holds handshake revisions only."""
    old = await open_old(site)
    answer = await old.ask(modern("server/discover")[1])
    assert answer["error"]["code"] == -32022
    assert answer["error"]["data"]["supported"] == list(HANDSHAKE_REVISIONS)


@pytest.mark.parametrize(
    ("body", "code"), [(b"{", -32700), (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), (b"7", -32600)]
)
async def test_what_is_no_message_is_refused_at_the_post(site: Site, body: bytes, code: int) -> None:
    """ERR-01, ERR-02."""
    old = await open_old(site)
    reply = await site.ask(JSON, body, path=old.path)
    assert (reply.status, reply.json()["error"]["code"]) == (400, code)


# ---------------------------------------------------------------- whose session


async def test_a_session_is_found_by_its_id_alone_and_ends_with_its_stream(site: Site) -> None:
    old = await open_old(site)
    assert len(old.path.partition("session_id=")[2]) >= 43
    for path in ("/sse/messages", "/sse/messages?session_id=nope", "/sse/messages?session_id="):
        assert (await site.ask(JSON, initialize(), path=path)).status == 404
    old.wire.close()
    async with asyncio.timeout(5):
        while await old.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}) != 404:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_a_stream_that_ends_stops_what_runs_for_it(site: Site, log: Log) -> None:
    old = await open_old(site)
    await old.shake_hands()
    assert await old.post(handshake_call("wait", 1)) == 202
    await log.until("wait begins")
    old.wire.abort()
    await log.until("wait is cancelled")


async def who(scope: Scope, headers: Headers) -> str | None:
    return headers.get("x-user")


async def test_a_message_of_another_user_finds_no_session(log: Log) -> None:
    """The session belongs to who opened it."""
    async with serving(make_server(log), sse_path="/sse", authenticate=who) as site:
        old = await open_old(site, **{"X-User": "ann"})
        assert await old.post(initialize(), **{"X-User": "bob"}) == 404
        assert await old.post(initialize()) == 202


@asynccontextmanager
async def limited(log: Log, **limits: Any) -> AsyncIterator[Site]:
    bounds = Limits(**limits)
    async with serving(make_server(log, limits=bounds), sse_path="/sse") as site:
        yield site


async def test_sessions_and_bodies_are_bounded(log: Log) -> None:
    async with limited(log, sessions=1, body=1000) as site:
        old = await open_old(site)
        full = await site.ask(STREAM, b"", "GET", "/sse")
        assert (full.status, full.headers["retry-after"]) == (503, "1")
        assert await old.post({"jsonrpc": "2.0", "id": 1, "method": "x" * 1000}) == 413


async def test_a_reader_that_does_not_read_is_cut_off(log: Log) -> None:
    async with limited(log, stream_bytes=65536, stream_wait=0.3) as site:
        old = await open_old(site)
        await old.shake_hands(V2025_03)  # the first one has no `message` in progress
        assert await old.post(handshake_call("flood", 1, count=1000)) == 202
        await log.until("flood is cancelled")


# ---------------------------------------------------------------- the door


@pytest.mark.parametrize(("name", "status"), [("Origin", 403), ("Host", 403)])
async def test_a_foreign_origin_or_host_opens_no_stream(site: Site, name: str, status: int) -> None:
    """HSSE-05."""
    old = await open_old(site)
    headers = {name: "https://evil.example" if name == "Origin" else "evil.example"}
    assert (await site.ask({**STREAM, **headers}, b"", "GET", "/sse")).status == status
    assert (await site.ask({**JSON, **headers}, initialize(), path=old.path)).status == status


async def test_each_path_takes_its_one_method(site: Site) -> None:
    """HSSE-01: a client that tries the newer transport first sees 405, and comes back with GET."""
    refused = await site.ask(JSON_HEADERS, initialize(), path="/sse")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")
    assert (await site.ask(STREAM, b"", "GET", "/sse/messages")).status == 405


async def test_only_declared_json_is_a_message(site: Site) -> None:
    old = await open_old(site)
    assert (await site.ask({"Content-Type": "text/plain"}, initialize(), path=old.path)).status == 415


async def test_the_old_transport_is_off_unless_asked_for(log: Log) -> None:
    async with serving(make_server(log)) as site:
        assert (await site.ask(STREAM, b"", "GET", "/sse")).status == 404


@pytest.mark.parametrize(
    "options", [{"sse_path": "sse"}, {"sse_path": "/mcp/"}, {"sse_path": "/sse", "sessions": False}]
)
def test_an_option_that_can_not_work_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="sse_path"):
        HttpApp(lambda: make_server_for_nobody().serve, **options)


def make_server_for_nobody() -> Any:
    from gemel import Server

    return Server("nobody")


async def test_mounted_below_a_path_the_address_leads_back_through_it(log: Log) -> None:
    """Frameworks say in root_path what they matched; the address must hold it."""
    app = make_server(log).http_app(sse_path="/sse")
    sent: list[dict[str, Any]] = []
    leave = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if b"endpoint" in message.get("body", b""):
            leave.set()

    host = [(b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "GET", "path": "/tools/sse", "root_path": "/tools", "headers": host}
    async with asyncio.timeout(5):
        await app(scope, receive, send)
    assert b"data: /tools/sse/messages?session_id=" in sent[1]["body"]
    await app.stop()


async def test_a_stop_lets_calls_finish_and_ends_the_stream(log: Log) -> None:
    async with serving(make_server(log), sse_path="/sse") as site:
        old = await open_old(site)
        await old.shake_hands()
        assert await old.post(handshake_call("wait", 1)) == 202
        await log.until("wait begins")
        assert site.app is not None
        stopping = asyncio.create_task(site.app.stop())
        await asyncio.sleep(0.05)
        log.gate.set()
        assert text_of(await old.wire.message()) == "wait"
        assert await old.wire.event() is None
        await stopping


async def test_answers_that_nobody_reads_do_not_pile_up() -> None:
    """Each call is answered on the stream, so that calls are refused until the client has read."""
    served = 0
    server: Server[Any] = Server("big")

    @server.tool
    async def big() -> str:
        nonlocal served
        served += 1
        return "x" * 500_000

    async with serving(server, sse_path="/sse") as site:
        old = await open_old(site)
        await old.shake_hands()
        statuses = [await old.post(handshake_call("big", number)) for number in range(60)]
        assert statuses[0] == 202
        assert 503 in statuses
        taken = statuses.count(202)
        await asyncio.sleep(0.1)
        assert served <= taken < 40
        for _ in range(taken):
            assert len(text_of(await old.wire.message())) == 500_000
        assert await old.post(handshake_call("big", 99)) == 202


async def test_messages_that_wait_for_initialize_share_a_budget(log: Log) -> None:
    """Else ten thousand sessions could hold 16 MB each while `initialize` is being answered."""
    gate = asyncio.Event()

    async def slow(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "initialize":
            await gate.wait()
        return await call_next(ctx)

    server = make_server(log, middleware=[slow], limits=Limits(lines=1_000_000, sessions=100))
    async with serving(server, sse_path="/sse") as site:
        sessions = [await open_old(site) for _ in range(5)]
        large = {"jsonrpc": "2.0", "method": "notifications/acme", "params": {"x": "x" * 150_000}}
        for old in sessions:
            assert await old.post(initialize(FIRST)) == 202
        statuses = [await old.post(large) for old in sessions for _ in range(2)]
        assert statuses == [202] * 6 + [503] * 4
        small = {"jsonrpc": "2.0", "method": "notifications/acme"}
        assert [await old.post(small) for old in sessions] == [202] * 5
        sessions[0].wire.abort()
        while await sessions[3].post(large) == 503:  # noqa: ASYNC110 (only the server knows when a stream has ended)
            await asyncio.sleep(0.01)
        gate.set()
        for old in sessions[1:]:
            assert "result" in await old.wire.message()
        assert [await old.post(large) for old in sessions[1:]] == [202] * 4
