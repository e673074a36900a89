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
from gemel.transports.http.server.sharing.records import SessionKeys, session_key
from gemel.transports.http.server.sharing.register import SessionRegister
from tests.transports.http_rig import JSON_HEADERS, initialize, text_of
from tests.transports.sharing_rig import App, apps, call, redis_store, request, store_url, until

__all__ = ("redis_store", "store_url")  # fixtures


async def refusal(app: App) -> int:
    """The status of a handshake."""
    return (await app.site.ask(JSON_HEADERS, initialize())).status


async def end(app: App, session: dict[str, str]) -> None:
    assert (await app.site.ask(session, b"", "DELETE")).status in (200, 204)


async def test_sessions_of_all_processes_are_bounded_together(store_url: str) -> None:
    async with apps(store_url, limits=Limits(stored_sessions=4)) as (a, b):
        opened = [await app.site.session() for app in (a, b, a, b)]
        assert [await refusal(a), await refusal(b)] == [503, 503]
        for session in opened:
            assert text_of(await call(b, session, "add", a=1, b=1)) == "2"
        await end(b, opened[0])
        async with asyncio.timeout(10):
            while await refusal(a) == 503:  # noqa: ASYNC110  # the end is counted soon
                await asyncio.sleep(0.02)
        assert await refusal(b) == 503


async def test_sessions_that_expired_make_room_and_those_in_use_do_not(store_url: str) -> None:
    limits = Limits(stored_sessions=3, session_idle=0.8)  # they expire after a second without use
    async with apps(store_url, limits=limits) as (a, b):
        used = await a.site.session()
        for app in (a, b):
            await app.site.session()
        assert await refusal(b) == 503
        begin = time.monotonic()
        while time.monotonic() - begin < 2.5:
            await call(b, used, "add", a=1, b=1)
            await asyncio.sleep(0.1)
        assert [await refusal(app) for app in (a, b, a)] == [200, 200, 503]
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


async def test_the_register_counts_each_session_once_and_is_nearly_full_before_it_refuses() -> None:
    backend = MemoryBackend()
    register = SessionRegister(backend, 1000, ttl=60)
    added = 0
    while await register.add(sha256(str(added).encode()).hexdigest()[:40]):
        added += 1
    assert 750 < added <= 1000


async def test_a_session_in_use_is_looked_up_once_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryBackend()
    register = SessionRegister(backend, 10, ttl=60)
    digests = [f"{number:040x}" for number in range(10)]
    for digest in digests:
        await backend.set(session_key(digest), b"1")
        assert await register.add(digest)
    looked: list[str] = []
    get = backend.get

    async def counted(key: str) -> Any:
        looked.append(key)
        return await get(key)

    monkeypatch.setattr(backend, "get", counted)
    later = time.time() + 100
    monkeypatch.setattr(time, "time", lambda: later)
    for _ in range(5):
        assert not await register.add("f" * 40)
    assert sum(key.startswith(make_key("session")) for key in looked) == 10
    await backend.delete(session_key(digests[3]))
    later += 100
    assert await register.add("f" * 40)
    assert not await register.add("e" * 40)
