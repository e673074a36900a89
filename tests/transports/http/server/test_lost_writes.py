"""Streams of shared sessions when their store comes back without its newest writes, as a replica that takes over does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gemel import Context, GemelError
from tests.backends.redis_server import RedisServer, needs_redis
from tests.transports.http_rig import Wire, handshake_call, text_of
from tests.transports.sharing_rig import App, apps, call

pytestmark = needs_redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that keeps what it saved, and loses the rest when it is killed."""
    server = RedisServer(tmp_path / "redis", {"appendonly": "no"})
    server.start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def losing_writes(redis: RedisServer, served: list[App]) -> AsyncIterator[None]:
    """What is written inside is confirmed and then lost; then the store is back, and all apps reach it."""
    await asyncio.to_thread(redis.ask, "SAVE")
    yield
    for app in served:  # answers come in order; what has none would be written again
        await app.server.backend.get("any")
    redis.kill()
    await asyncio.to_thread(redis.start)
    for app in served:
        async with asyncio.timeout(20):
            while True:
                with suppress(GemelError):
                    await app.server.backend.get("any")
                    break
                await asyncio.sleep(0.05)


async def announcements(stream: Wire, last: str) -> list[str]:
    """What was announced on a standing stream, up to a text."""
    texts: list[str] = []
    while last not in texts:
        message = await stream.message()
        if message.get("method") == "notifications/message":
            texts.append(message["params"]["data"])
    return texts


@pytest.mark.parametrize("lost", [1, 3, 50])
async def test_messages_of_a_session_arrive_once_though_the_store_has_lost_others(
    redis: RedisServer, lost: int
) -> None:
    """The positions of what was lost belong to what is written next, whether that is less, as much, or more."""
    async with apps(redis.url) as (a, b):
        session = await a.site.session()
        stream = await a.site.listen(session)
        await stream.head()
        await call(b, session, "announce", text="kept")
        assert await announcements(stream, "kept") == ["kept"]
        async with losing_writes(redis, [a, b]):
            told = [f"lost {number}" for number in range(lost)]
            for text in told:
                await call(b, session, "announce", text=text)
            assert await announcements(stream, told[-1]) == told
        for new in (f"new {number}" for number in range(3)):
            await call(b, session, "announce", text=new)
            assert await announcements(stream, new) == [new]


@pytest.mark.parametrize("lost", [1, 3, 50])
async def test_a_resumed_call_gets_its_result_though_the_store_has_lost_some_of_its_events(
    redis: RedisServer, lost: int
) -> None:
    async with apps(redis.url) as (a, b):
        steps = asyncio.Queue[int]()

        @a.server.tool
        async def count(ctx: Context[Any]) -> str:
            number = 0
            while more := await steps.get():
                for _ in range(more):
                    number += 1
                    await ctx.report_progress(number, message=f"{number}")
            return "counted"

        async def told(count: int) -> list[str]:
            return [(await resumed.message())["params"]["message"] for _ in range(count)]

        session = await a.site.session()
        wire = await a.site.call(session, handshake_call("count"))
        steps.put_nowait(1)
        await wire.head()
        first = await wire.event()
        assert first is not None
        wire.close()
        resumed = await b.site.listen(session, first.id)
        await resumed.head()
        assert await told(1) == ["1"]
        async with losing_writes(redis, [a, b]):
            steps.put_nowait(lost)
            assert await told(lost) == [f"{2 + number}" for number in range(lost)]
        steps.put_nowait(2)
        assert await told(2) == [f"{2 + lost}", f"{3 + lost}"]
        steps.put_nowait(0)
        assert text_of(await resumed.message()) == "counted"


async def test_a_stream_ends_if_the_store_has_lost_its_session(redis: RedisServer) -> None:
    """So that its client begins a new session, and does not wait for messages that never come."""
    async with apps(redis.url) as (a, b):
        session = await a.site.session()
        stream = await a.site.listen(session)
        assert (await stream.head()).status == 200
        await asyncio.to_thread(redis.ask, "FLUSHALL")
        while await stream.event(20) is not None:
            pass
        for app in (a, b):
            assert (await (await app.site.listen(session)).reply()).status == 404
