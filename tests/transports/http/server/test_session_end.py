"""The ends of a session: by its client, from the inside, and while the server stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from gemel import Changed, Context, Limits, NotFinished, Server
from gemel.server.context import served_call
from gemel.transports.http.server.app import HttpApp
from gemel.transports.http.server.replay import MemoryReplayLog, MemoryReplayStore
from tests.jumping_clock import in_no_time
from tests.support import V2025_03, V2025_11
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Site,
    exchange,
    handshake_call,
    initialize,
    make_server,
    serving,
    text_of,
)

NEWS = "news://today"
PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
#: A call, and what is neither call nor notification.
BATCH = [handshake_call("wait", 7), {"jsonrpc": "2.0", "id": 8}]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def site(log: Log) -> AsyncIterator[Site]:
    async with serving(make_busy(log)) as site:
        yield site


def make_busy(log: Log, **options: Any) -> Server[Any]:
    """A server with tools that resist their end, or end their session."""

    @asynccontextmanager
    async def connected(ctx: Any) -> AsyncIterator[None]:
        yield
        log.add("cleaned up")

    async def authorize(ctx: Context[Any], uri: str) -> bool:
        log.add(f"may watch {uri}")
        await log.gate.wait()
        return True

    server = make_server(log, connection_lifespan=connected, authorize_subscription=authorize, **options)
    server.resource(NEWS, name="news")(lambda: "nothing")

    @server.notification("notifications/acme/done")
    async def done(ctx: Context[Any], params: Any) -> None:
        await log.gate.wait()

    @server.tool
    async def change() -> None:
        log.gate.clear()
        server.notify(Changed("resource", NEWS))

    @server.tool
    async def resist() -> None:
        """Go on for a while after being cancelled."""
        log.add("running")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            log.add("resisting")
            await log.gate.wait()

    @server.tool
    async def end(ctx: Context[Any]) -> str:
        for _ in range(2):
            await served_call(ctx).session.channel.close()
        log.add("ended")
        return "ended"

    return server


@pytest.mark.parametrize(("tool", "begins"), [("wait", "wait begins"), ("resist", "running")])
async def test_a_stop_answers_the_calls_that_outlast_it(log: Log, tool: str, begins: str) -> None:
    """Whether they end when they are cancelled or not."""
    async with serving(make_busy(log, limits=Limits(drain=0.05))) as site:
        wire = await site.call(await site.session(), handshake_call(tool))
        await log.until(begins)
        assert site.app is not None
        stopping = asyncio.create_task(site.app.stop())
        error = (await wire.reply()).json()["error"]
        assert error["code"] == NotFinished.code
        assert "the server is stopping" in error["message"]
        log.gate.set()
        await stopping


async def batch_session(site: Site) -> dict[str, str]:
    session = await site.session(V2025_03)
    del session["MCP-Protocol-Version"]
    return session


def errors_of(body: bytes) -> dict[Any, int]:
    """The error codes of a batch, by id."""
    return {each["id"]: each["error"]["code"] for each in json.loads(body)}


async def test_a_batch_that_runs_when_its_session_ends_is_answered_as_a_batch(site: Site, log: Log) -> None:
    session = await batch_session(site)
    wire = await site.call(session, BATCH)
    await log.until("wait begins")
    assert (await site.ask(session, b"", "DELETE")).status == 204
    assert errors_of((await wire.reply()).body) == {7: NotFinished.code, 8: -32600}
    await log.until("wait is cancelled")


async def test_a_batch_whose_exchange_is_given_up_is_answered_as_a_batch(site: Site, log: Log) -> None:
    """By an ASGI server that cancels the task of a request."""
    session, sent = await batch_session(site), list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    done = {"jsonrpc": "2.0", "method": "notifications/acme/done"}
    serving_it = exchange(site, session, [*BATCH, done], send)
    await log.until("wait begins")
    serving_it.cancel()
    await asyncio.wait([serving_it])
    assert errors_of(b"".join(each.get("body", b"") for each in sent)) == {7: NotFinished.code, 8: -32600}
    await log.until("wait is cancelled")


async def test_a_cancelled_call_that_goes_on_gets_no_answer_when_its_session_ends(site: Site, log: Log) -> None:
    session = await site.session()
    wire = await site.call(session, handshake_call("resist", 5))
    await log.until("running")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    await site.ask(session, cancelled)
    await log.until("resisting")
    assert (await site.ask(session, b"", "DELETE")).status == 204
    assert (await wire.reply()).body == b""
    log.gate.set()


async def test_a_session_can_be_ended_from_the_inside_as_often_as_one_likes(site: Site, log: Log) -> None:
    """See `Channel.close`."""
    session = await site.session()
    standing = await site.listen(session)
    await standing.head()
    calls = [await site.call(session, handshake_call("wait", 1))]
    await log.until("wait begins")
    calls.append(await site.call(session, handshake_call("end", 2)))
    await log.until("ended")
    await log.until("wait is cancelled")
    assert log.events.index("cleaned up") < log.events.index("ended")
    for call in calls:
        assert (await call.reply()).json()["error"]["code"] == NotFinished.code
    while await standing.event() is not None:
        pass
    assert (await site.ask(session, PING)).status == 404


async def test_nothing_is_kept_for_a_session_that_ends_while_it_is_decided_what_it_may_be_told(
    site: Site, log: Log
) -> None:
    session = await site.session()
    log.gate.set()
    await site.ask(session, {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": NEWS}})
    log.events.clear()
    await site.ask(session, handshake_call("change"))
    await log.until(f"may watch {NEWS}")
    assert (await site.ask(session, b"", "DELETE")).status == 204
    log.gate.set()
    await log.until("cleaned up")
    assert site.app is not None
    assert isinstance(replay := site.app._lives.here()._sessions._replay, MemoryReplayStore)
    assert replay.bytes == 0


async def test_a_stop_while_a_slow_log_is_read_ends_the_stream(
    site: Site, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop would else wait for it, as it waits for calls."""
    stopping: list[asyncio.Task[None]] = []

    async def slowly(self: MemoryReplayLog, stream: int, position: int) -> list[bytes]:
        assert site.app is not None
        stopping.append(asyncio.create_task(site.app.stop()))
        while (await site.ask(session, PING)).status != 503:
            pass
        return []

    session = await site.session()
    call = await site.call(session, handshake_call("wait"))
    await log.until("wait begins")
    monkeypatch.setattr(MemoryReplayLog, "after", slowly)
    stream = await site.listen(session)
    await stream.head()
    while await stream.event(5) is not None:
        pass
    assert not stopping[0].done()
    log.gate.set()
    assert text_of((await call.reply()).json()) == "wait"
    await stopping[0]


async def post(app: HttpApp, headers: dict[str, str], body: Any) -> dict[str, str]:
    """Send a request without a socket; return the headers of the response."""
    pairs = [(name.lower().encode(), value.encode()) for name, value in {"Host": "localhost", **headers}.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "query_string": b"", "headers": pairs}
    heads: list[Any] = []
    incoming = asyncio.Queue[Any]()
    incoming.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            heads.append({name.decode(): value.decode() for name, value in message["headers"]})

    await app(scope, incoming.get, send)
    headers_sent: dict[str, str] = heads[0]
    return headers_sent


@in_no_time
async def test_a_stop_waits_for_a_handler_and_a_clean_up_that_do_not_end_no_longer_than_one_may_take() -> None:
    """In the time of the event loop."""
    log, loop, limits = Log(), asyncio.get_running_loop(), Limits(drain=10, teardown=20, stall=0)

    @asynccontextmanager
    async def connected(ctx: Any) -> AsyncIterator[None]:
        yield
        await log.gate.wait()

    server = make_server(log, connection_lifespan=connected, limits=limits)

    @server.tool
    async def resist() -> None:
        log.add("running")
        while not log.gate.is_set():
            with suppress(asyncio.CancelledError):
                await log.gate.wait()

    app = server.http_app()
    found = await post(app, JSON_HEADERS, initialize())
    session = {**JSON_HEADERS, "MCP-Protocol-Version": V2025_11, "Mcp-Session-Id": found["mcp-session-id"]}
    calling = asyncio.create_task(post(app, session, handshake_call("resist")))
    await log.until("running")
    began = loop.time()
    await app.stop()
    assert loop.time() - began < limits.drain + limits.teardown + 1
    log.gate.set()
    await calling
    await asyncio.sleep(2 * limits.teardown)
