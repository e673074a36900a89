"""Clients of a session that leave, that don't read, or that accept one kind of answer, and what their handlers get to know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Context, GemelError, Limits, Principal, Server
from tests.support import V2025_06, V2025_11
from tests.transports.http_rig import (
    BOTH_TYPES,
    JSON_HEADERS,
    Log,
    Site,
    exchange,
    handshake_call,
    make_server,
    serving,
    text_of,
)

EVENTS = "text/event-stream"
JSON = "application/json"


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def site(log: Log) -> AsyncIterator[Site]:
    async with serving(make_asker(log)) as site:
        yield site


def make_asker(log: Log, **options: Any) -> Server[Any]:
    """A server with tools that go on whatever becomes of their client."""
    server = make_server(log, **options)

    async def ask(ctx: Context[Any]) -> None:
        try:
            await ctx.list_roots()
        except GemelError as exc:
            log.add(type(exc).__name__)

    @server.tool
    async def ask_late(ctx: Context[Any]) -> str:
        """Ask the client when the gate opens."""
        log.add("asking late")
        await log.gate.wait()
        await ask(ctx)
        return "asked"

    @server.tool
    async def resist(ctx: Context[Any]) -> None:
        """Ask the client after being cancelled."""
        await ctx.report_progress(1, 2, "resisting")
        log.add("resisting")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await ask(ctx)

    @server.tool
    async def leave_task(ctx: Context[Any]) -> None:
        """Leave a task behind that uses the call when the gate opens."""

        async def work() -> None:
            await log.gate.wait()
            log.add(f"closed: {await ctx.close_stream()}")
            await ask(ctx)

        tasks.append(asyncio.create_task(work()))

    @server.tool
    async def close(ctx: Context[Any], wait: bool = False) -> str:
        """Close the stream, and go on at once or when the gate opens."""
        if wait:
            log.add("closing")
            await log.gate.wait()
        log.add(f"closed: {await ctx.close_stream(10)}")
        await ctx.report_progress(1, 2, "after")
        return "closed"

    tasks: list[asyncio.Task[None]] = []
    return server


async def until_nobody_reads(site: Site) -> None:
    """Wait until the server knows that its clients have left."""
    assert site.app is not None
    sessions = site.app._lives.here()._sessions.by_key
    async with asyncio.timeout(5):
        while any(each._open_responses for each in sessions.values()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------- those that leave


async def test_a_client_that_left_without_an_event_to_come_back_with_is_not_asked(site: Site, log: Log) -> None:
    """Its call would wait for the answer without end."""
    wire = await site.call(await site.session(), handshake_call("ask_late"))
    await log.until("asking late")
    wire.abort()
    await until_nobody_reads(site)
    log.gate.set()
    await log.until("NotSent")


async def test_a_client_can_come_back_after_any_event_in_revisions_without_an_opening_event(
    site: Site, log: Log
) -> None:
    session = await site.session(V2025_06)
    wire = await site.call(session, handshake_call("stream", count=1))
    await wire.head()
    told = await wire.event()
    assert told is not None
    wire.close()
    await until_nobody_reads(site)
    log.gate.set()
    await log.until("stream ends")
    resumed = await site.listen(session, told.id)
    await resumed.head()
    assert text_of(await resumed.message()) == "stream"
    assert await resumed.event() is None


async def test_who_comes_back_without_an_event_id_gets_no_event_twice(site: Site) -> None:
    """Neither what waited for the first GET, nor what came during one."""
    session, ids = await site.session(), list[str | None]()
    for during in (0, 0, 2, 1):
        await site.ask(session, handshake_call("more"))
        stream = await site.listen(session)
        await stream.head()
        for _ in range(during):
            await site.ask(session, handshake_call("more"))
        for _ in range(1 + during):
            event = await stream.event()
            assert event is not None
            assert b"tools/list_changed" in event.data
            ids.append(event.id)
        stream.close()
        await until_nobody_reads(site)
        assert site.app is not None
        site.app._lives.here()._sessions.end_idle(
            asyncio.get_running_loop().time()
        )  # as it looks for idle ones from time to time
    assert len(set(ids)) == 7


async def test_what_nobody_can_fetch_takes_no_room_from_what_somebody_can(log: Log) -> None:
    """The replay logs of all sessions share one budget."""
    server = make_asker(log, limits=Limits(replay_total=10_000))

    @server.tool
    async def large() -> str:
        log.add("large")
        await log.gate.wait()
        log.add("large ends")
        return "x" * 9_000

    async with serving(server) as site:
        keeping, leaving, ending = [await site.session() for _ in range(3)]
        wire = await site.call(keeping, handshake_call("stream", count=1))
        await wire.head()
        opening = await wire.event()
        assert opening is not None
        wire.close()
        abandoned = await site.call(leaving, handshake_call("large"))
        await log.until("large")
        abandoned.abort()
        await until_nobody_reads(site)
        fetched = await site.call({**ending, "Accept": EVENTS}, handshake_call("stream", count=9, name="x" * 500))
        await fetched.head()
        for _ in range(9):
            await fetched.message()
        assert (await site.ask(ending, b"", "DELETE")).status == 204
        log.gate.set()
        await log.until("large ends")
        await log.until("stream ends")
        for _ in range(3):
            await site.ask(
                {**await site.session(), "Accept": EVENTS}, handshake_call("stream", count=2, name="x" * 500)
            )
        resumed = await site.listen(keeping, opening.id)
        await resumed.head()
        assert (await resumed.message())["method"] == "notifications/progress"
        assert text_of(await resumed.message()) == "stream"


async def test_a_call_whose_events_are_all_gone_is_to_be_called_again(log: Log) -> None:
    async with serving(make_asker(log, limits=Limits(replay_events=2))) as site:
        session = await site.session()
        log.gate.set()
        wire = await site.call(session, handshake_call("stream", count=1))
        await wire.head()
        opening = await wire.event()
        assert opening is not None
        while await wire.event() is not None:
            pass
        assert (await site.ask(session, handshake_call("stream", count=2))).streams
        reply = await (await site.listen(session, opening.id)).reply()
        assert (reply.status, "call again" in reply.json()["error"]["message"]) == (400, True)


async def test_a_task_that_outlives_its_call_can_neither_ask_nor_close_the_stream(site: Site, log: Log) -> None:
    session = await site.session()
    await site.ask(session, handshake_call("leave_task"))
    log.gate.set()
    await log.until("NotSent")
    assert "closed: False" in log.events


async def test_a_handler_that_resists_when_its_exchange_is_given_up_is_told_that_the_call_is_answered(
    site: Site, log: Log
) -> None:
    async def send(message: Any) -> None:
        return

    task = exchange(site, await site.session(), handshake_call("resist"), send)
    await log.until("resisting")
    task.cancel()
    await asyncio.wait([task])
    await log.until("NotSent")


# ---------------------------------------------------------------- polling


async def test_what_is_said_after_a_stream_was_closed_waits_for_the_client_to_poll(site: Site, log: Log) -> None:
    session = await site.session()
    wire = await site.call(session, handshake_call("close"))
    await wire.head()
    opening = await wire.event()
    assert opening is not None
    assert (opening.data, opening.retry) == (b"", 10)
    assert await wire.event() is None
    polled = await site.listen(session, opening.id)
    await polled.head()
    assert (await polled.message())["params"]["message"] == "after"
    assert text_of(await polled.message()) == "closed"


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_stream_that_nobody_reads_is_not_closed(site: Site, log: Log, leaves: bool) -> None:
    wire = await site.call({**await site.session(), "Accept": JSON}, handshake_call("close", wait=True))
    await log.until("closing")
    if leaves:
        wire.abort()
        await until_nobody_reads(site)
    log.gate.set()
    await log.until("closed: False")
    if not leaves:
        assert text_of((await wire.reply()).json()) == "closed"


# ---------------------------------------------------------------- one kind of answer


@pytest.mark.parametrize("accept", [BOTH_TYPES, JSON])
async def test_a_handler_that_only_tells_its_client_does_not_starve_others(accept: str) -> None:
    server: Server[Any] = Server("chatty")
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    @server.tool
    async def chat(ctx: Context[Any]) -> int:
        task = asyncio.create_task(other())
        for number in range(100):
            await ctx.report_progress(number, 100)
        task.cancel()
        return turns

    async with serving(server) as site:
        reply = await site.ask({**await site.session(), "Accept": accept}, handshake_call("chat"))
        assert reply.status == 200
    assert turns >= 99


async def test_a_slow_answer_to_a_client_without_events_stays_json(log: Log) -> None:
    async with serving(make_asker(log, limits=Limits(keep_alive=0.05))) as site:
        wire = await site.call({**await site.session(), "Accept": JSON}, handshake_call("wait"))
        await log.until("wait begins")
        await asyncio.sleep(0.3)
        log.gate.set()
        reply = await wire.reply()
        assert (reply.headers["content-type"], text_of(reply.json())) == (JSON, "wait")


@pytest.mark.parametrize("revision", [V2025_06, V2025_11])
async def test_the_answer_on_a_stream_is_an_event_with_an_id(site: Site, log: Log, revision: str) -> None:
    """So that a client whose connection breaks meanwhile can fetch it."""
    log.gate.set()
    wire = await site.call(await site.session(revision), handshake_call("stream", count=1))
    await wire.head()
    events = []
    while (event := await wire.event()) is not None:
        events.append(event)
    assert b'"result"' in events[-1].data
    assert all(event.id for event in events)


@pytest.mark.parametrize("sessions", [True, False])
async def test_a_client_of_events_alone_gets_a_challenge_as_a_403(sessions: bool) -> None:
    """It is in the headers, which a stream would have begun with a 200."""

    async def authenticate(scope: Any, headers: Any) -> Principal:
        return Principal("ben", frozenset({"read"}))

    server: Server[Any] = Server("careful")
    server.tool("erase", scopes=["write"])(lambda: "erased")
    async with serving(server, authenticate=authenticate, sessions=sessions) as site:
        headers = await site.session() if sessions else JSON_HEADERS
        reply = await site.ask({**headers, "Accept": EVENTS}, handshake_call("erase"))
        assert (reply.status, reply.headers["content-type"]) == (403, JSON)
        assert 'scope="write"' in reply.headers["www-authenticate"]
