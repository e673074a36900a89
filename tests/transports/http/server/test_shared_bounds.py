"""What bounds the sessions that all processes store together, and their bytes."""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from typing import Any

import pytest

from gemel import Limits
from gemel.backends import MemoryBackend
from gemel.backends.keys import make_key
from gemel.transports.http.server.sharing import session_store
from gemel.transports.http.server.sharing.events import Budget
from gemel.transports.http.server.sharing.session_count import SessionRegister
from gemel.transports.http.server.sharing.stored_sessions import SessionKeys, session_key
from tests.transports.http_rig import JSON_HEADERS, initialize, text_of
from tests.transports.sharing_rig import App, apps, call, redis_store, request, store_url, until

__all__ = ("redis_store", "store_url")  # fixtures


async def opened(app: App) -> int:
    """The status of a handshake."""
    return (await app.site.ask(JSON_HEADERS, initialize())).status


async def end(app: App, session: dict[str, str]) -> None:
    assert (await app.site.ask(session, b"", "DELETE")).status in (200, 204)


async def test_sessions_of_all_processes_are_bounded_together(store_url: str) -> None:
    """The oldest one of the caller who has most gives way, in whatever process it was opened."""
    async with apps(store_url, limits=Limits(stored_sessions=4)) as (a, b):
        stranger = b.site.at("127.0.0.2")
        mine = [await app.site.session() for app in (a, b, a)]
        other = await stranger.session()
        newest = await stranger.session()
        async with asyncio.timeout(5):
            while (await a.site.ask(mine[0], request("ping"))).status != 404:  # noqa: ASYNC110 - it is told soon
                await asyncio.sleep(0.02)
        for session in (*mine[1:], other, newest):
            assert text_of(await call(a, session, "add", a=1, b=1)) == "2"


async def test_sessions_that_expired_make_room_before_those_in_use(store_url: str) -> None:
    limits = Limits(stored_sessions=3, session_idle=0.8)  # they expire after a second without use
    async with apps(store_url, limits=limits) as (a, b):
        used = await a.site.session()
        for app in (a, b):
            await app.site.session()
        begin = time.monotonic()
        while time.monotonic() - begin < 2.5:
            await call(a, used, "add", a=1, b=1)
            await asyncio.sleep(0.1)
        for app in (a, b, a, a):
            assert await opened(app) == 200
            assert text_of(await call(a, used, "add", a=1, b=1)) == "2"


async def test_a_client_that_describes_itself_at_length_is_refused(store_url: str) -> None:
    async with apps(store_url, limits=Limits(handshake_bytes=1 << 20)) as (a, _):
        long = initialize()
        long["params"]["capabilities"]["experimental"] = {"a": {"b": "x" * 200_000}}
        refused = await a.site.ask(JSON_HEADERS, long)
        assert (refused.status, "at most 128 KiB" in refused.json()["error"]["message"]) == (503, True)
        session = await a.site.session()
        uris = [f"note://{number:03}" + "x" * 5000 for number in range(40)]
        answers = [(await a.site.ask(session, request("resources/subscribe", uri=uri))).json() for uri in uris]
        assert 20 < sum("result" in answer for answer in answers) < 27
        assert "at most 128 KiB" in answers[-1]["error"]["message"]
        assert text_of(await call(a, session, "add", a=1, b=1)) == "2"


async def test_events_of_a_session_are_dropped_when_its_client_ends_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_store, "BEAT", 0.1)
    async with apps(store_url) as (a, b):
        session = await a.site.session()
        for app in (a, b):
            app.log.gate.set()
            await call(app, session, "stream", count=50)
        keys: SessionKeys = a.session(session).keys
        backend, logs = a.server.backend, [keys.events(each.session(session).writer) for each in (a, b)]
        for app in (a, b):
            await app.session(session)._events.flush(5.0)
            assert app.store._sharing.budget.bytes > 50 * 50
        assert [await backend.end_of(log) > 50 for log in logs] == [True, True]
        await end(b, session)
        for app in (a, b):
            await until(lambda app=app: app.store._sharing.budget.bytes == 0)
        async with asyncio.timeout(10):
            while any([await backend.end_of(log) for log in logs]):  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.05)


def test_events_are_counted_until_they_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    budget = Budget(100)
    budget.bytes = 150
    budget.leave(60, 30.0)
    budget.leave(40, 10.0)
    assert budget.exceeded
    now += 10.0
    assert budget.exceeded
    assert budget.bytes == 110
    now += 20.0
    assert [budget.exceeded, budget.bytes] == [False, 50]


def digest_of(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()[:40]


async def add(register: SessionRegister, digest: str, holder: str) -> list[str]:
    """Add a session. Returns those that gave way."""
    return [gone for gone, _ in await register.add(digest, holder, "process", lambda digest: 0.0)]


async def test_the_register_counts_each_session_once_and_is_nearly_full_before_one_gives_way() -> None:
    register = SessionRegister(MemoryBackend(), 1000, ttl=60)
    added = 0
    while not await add(register, digest_of(added), "a"):
        added += 1
    assert 750 < added <= 1000


async def test_the_register_does_not_count_a_session_that_has_ended() -> None:
    register = SessionRegister(MemoryBackend(), 2, ttl=60)
    for number in (0, 1):
        assert not await add(register, digest_of(number), "a")
    await register.remove(digest_of(0))
    assert not await add(register, digest_of(2), "a")
    assert await add(register, digest_of(3), "b") == [digest_of(1)]


async def test_a_flood_of_one_caller_ends_no_session_of_others() -> None:
    register = SessionRegister(MemoryBackend(), 1000, ttl=60)
    numbers = iter(range(10_000))
    others = [digest_of(next(numbers)) for _ in range(100)]
    for at, digest in enumerate(others):
        assert not await add(register, digest, f"other {at % 50}")
    gone = [each for _ in range(2000) for each in await add(register, digest_of(next(numbers)), "flood")]
    assert len(gone) > 900
    assert not set(gone) & set(others)
    late = [each for at in range(50) for each in await add(register, digest_of(next(numbers)), f"late {at}")]
    assert late
    assert not set(late) & set(others)


async def test_a_session_in_use_is_looked_up_once_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryBackend()
    register = SessionRegister(backend, 10, ttl=60)
    digests = [f"{number:040x}" for number in range(10)]
    for digest in digests:
        await backend.set(session_key(digest), b"1")
        assert not await add(register, digest, "a")
    looked: list[str] = []
    get = backend.get

    async def counted(key: str) -> Any:
        looked.append(key)
        return await get(key)

    monkeypatch.setattr(backend, "get", counted)
    later = time.time() + 100
    monkeypatch.setattr(time, "time", lambda: later)
    for at in range(5):
        assert await add(register, f"{at:01}" + "f" * 39, "a")
    assert sum(key.startswith(make_key("session")) for key in looked) == 10
