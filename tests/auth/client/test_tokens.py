"""Tokens of a login: when they are refreshed, by whom, and what is stored."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from gemel import GemelError, NotSent
from gemel.auth.client.stores import MemoryTokenStore
from gemel.auth.client.tokens import InvalidGrant, Tokens, TokenSource, TokenStoreError, token_key

KEY = token_key("https://login.example.com", "https://notes.example.com/mcp", "cli")
SECRET = "secret-canary"


def tokens(name: str, lasts: float | None = 3600.0, *, lifetime: float = 3600.0, **members: Any) -> Tokens:
    """Tokens that expire in so many seconds."""
    now = time.time()
    expires = None if lasts is None else now + lasts
    issued = None if expires is None else expires - lifetime
    defaults: dict[str, Any] = {"refresh_token": f"refresh-{name}", "issuer": "https://login.example.com"}
    return Tokens(access_token=name, expires_at=expires, issued_at=issued, **{**defaults, **members})


class Login:
    """A login in memory whose authorization server rotates refresh tokens: each works once."""

    def __init__(self, stored: Tokens | None = None) -> None:
        self.store = MemoryTokenStore()
        if stored is not None:
            self.store._tokens[KEY] = stored
        self.used: list[str | None] = []
        self.answers = 0
        self.free = asyncio.Event()
        self.free.set()
        self.started = asyncio.Event()
        self.failure: GemelError | None = None
        self.lasts = 3600.0

    async def refresh(self, old: Tokens) -> Tokens:
        self.used.append(old.refresh_token)
        self.started.set()
        await self.free.wait()
        if self.failure is not None:
            raise self.failure
        if self.used.count(old.refresh_token) > 1:
            raise InvalidGrant("used already")
        self.answers += 1
        return tokens(f"new-{self.answers}", self.lasts)

    def source(self, **options: Any) -> TokenSource:
        return TokenSource(self.store, KEY, self.refresh, **options)

    @property
    def stored(self) -> Tokens | None:
        return self.store._tokens.get(KEY)


async def test_a_valid_token_is_used_without_a_refresh() -> None:
    login = Login(tokens("old"))
    got = await login.source().get()
    assert got is not None
    assert got.access_token == "old"
    assert login.used == []


async def test_without_a_login_there_are_no_tokens() -> None:
    assert await Login().source().get() is None
    assert await Login(tokens("old", -1, refresh_token=None)).source().get() is None


async def test_many_calls_with_an_expired_token_make_one_refresh() -> None:
    login = Login(tokens("old", -1))
    source = login.source()
    results = await asyncio.gather(*(source.get() for _ in range(50)))
    assert {each.access_token for each in results if each is not None} == {"new-1"}
    assert len(results) == 50
    assert login.used == ["refresh-old"]
    assert login.stored is results[0]


async def test_several_sources_of_one_store_make_one_refresh() -> None:
    login = Login(tokens("old", -1))
    results = await asyncio.gather(*(login.source().get() for _ in range(10)))
    assert {each.access_token for each in results if each is not None} == {"new-1"}
    assert login.used == ["refresh-old"]


def test_threads_with_their_own_loops_make_one_refresh() -> None:
    async def slow(old: Tokens) -> Tokens:
        used.append(old.refresh_token)
        await asyncio.sleep(0.05)
        return tokens("new")

    used: list[str | None] = []
    login = Login(tokens("old", -1))
    source = TokenSource(login.store, KEY, slow)
    results: list[Tokens | None] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(source.get()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.access_token for each in results if each is not None] == ["new"] * 8
    assert used == ["refresh-old"]


async def test_calls_with_a_valid_token_do_not_wait_for_its_refresh() -> None:
    login = Login(tokens("old", 30))
    login.free.clear()
    source = login.source()
    for _ in range(5):
        got = await source.get()
        assert got is not None
        assert got.access_token == "old"
    await asyncio.sleep(0)
    login.free.set()
    await source.close()
    got = await source.get()
    assert got is not None
    assert got.access_token == "new-1"
    assert login.used == ["refresh-old"]


async def test_a_short_token_is_not_refreshed_all_the_time() -> None:
    """A token that lives for less than the usual 60 seconds is refreshed in the last tenth of its life."""
    login = Login(tokens("old", 15, lifetime=20))
    source = login.source()
    await source.get()
    await source.close()
    assert login.used == []
    login = Login(tokens("old", 1.5, lifetime=20))
    source = login.source()
    await source.get()
    await source.close()
    assert login.used == ["refresh-old"]


async def test_a_cancelled_call_does_not_cancel_the_refresh() -> None:
    """The answer has the next refresh token: losing it would lose the login."""
    login = Login(tokens("old", -1))
    login.free.clear()
    source = login.source()
    call = asyncio.create_task(source.get())
    await login.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    login.free.set()
    await source.close()
    assert login.stored is not None
    assert login.stored.refresh_token == "refresh-new-1"


async def test_a_token_that_another_process_refreshed_is_used_after_a_refusal() -> None:
    login = Login(tokens("old"))
    source = login.source()
    await source.get()
    login.store._tokens[KEY] = tokens("newer")
    got = await source.replace("old")
    assert got is not None
    assert got.access_token == "newer"
    assert login.used == []


async def test_a_refused_token_is_refreshed_once_for_all_calls() -> None:
    login = Login(tokens("old"))
    source = login.source()
    await source.get()
    results = [await source.replace("old") for _ in range(3)]
    assert [each.access_token for each in results if each is not None] == ["new-1"] * 3
    assert login.used == ["refresh-old"]


async def test_a_rotated_token_in_the_store_is_used_after_invalid_grant() -> None:
    login = Login(tokens("old", -1))

    async def refresh(old: Tokens) -> Tokens:
        used.append(old.refresh_token)
        if old.refresh_token == "refresh-old":
            login.store._tokens[KEY] = tokens("theirs", -1)  # another program, which knows no lock
            raise InvalidGrant("rotated")
        return tokens("new")

    used: list[str | None] = []
    got = await TokenSource(login.store, KEY, refresh).get()
    assert got is not None
    assert got.access_token == "new"
    assert used == ["refresh-old", "refresh-theirs"]


async def test_a_valid_rotated_token_needs_no_further_refresh() -> None:
    login = Login(tokens("old", -1))

    async def refresh(old: Tokens) -> Tokens:
        login.store._tokens[KEY] = tokens("theirs")
        raise InvalidGrant("rotated")

    got = await TokenSource(login.store, KEY, refresh).get()
    assert got is not None
    assert got.access_token == "theirs"


async def test_a_revoked_login_keeps_the_client_registration() -> None:
    login = Login(tokens("old", -1, client={"client_id": "x"}))
    login.failure = InvalidGrant("revoked")
    source = login.source()
    assert await source.get() is None
    assert await source.get() is None
    assert len(login.used) == 1
    assert login.stored is not None
    assert login.stored.client == {"client_id": "x"}
    assert (login.stored.access_token, login.stored.refresh_token) == ("", None)


async def test_an_early_refresh_that_is_refused_leaves_the_valid_token() -> None:
    login = Login(tokens("old", 30))
    login.failure = InvalidGrant("revoked")
    source = login.source()
    await source.get()
    await source.close()
    got = await source.get()
    assert got is not None
    assert got.access_token == "old"
    assert len(login.used) == 1


async def test_an_early_refresh_that_fails_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    login = Login(tokens("old", 30))
    login.failure = NotSent("the login server is away")
    source = login.source()
    for _ in range(5):
        got = await source.get()
        assert got is not None
        assert got.access_token == "old"
        await source.close()
    assert len(login.used) == 1
    assert "refresh-postponed: " in caplog.text
    source._next_attempt = 0.0
    login.failure = None
    login.used.clear()
    await source.get()
    await source.close()
    assert login.used == ["refresh-old"]


async def test_a_refresh_that_fails_keeps_the_refresh_token() -> None:
    login = Login(tokens("old", -1))
    login.failure = NotSent("the login server is away")
    source = login.source()
    with pytest.raises(NotSent, match="away"):
        await source.get()
    assert login.stored is not None
    assert login.stored.refresh_token == "refresh-old"


async def test_what_a_refresh_leaves_out_stays() -> None:
    stored = tokens("old", -1, scopes=("a", "b"), token_endpoint="https://login.example.com/token", client={"x": 1})
    login = Login(stored)

    async def refresh(old: Tokens) -> Tokens:
        return Tokens(access_token="new", expires_at=time.time() + 100)

    got = await TokenSource(login.store, KEY, refresh).get()
    assert got is not None
    assert (got.access_token, got.refresh_token, got.scopes) == ("new", "refresh-old", ("a", "b"))
    assert (got.token_endpoint, got.client, got.issuer) == (stored.token_endpoint, {"x": 1}, stored.issuer)
    assert got.issued_at is not None


async def test_many_calls_that_need_a_login_make_one() -> None:
    login = Login()
    source = login.source()
    logins = 0

    async def log_in(stored: Tokens | None) -> Tokens:
        nonlocal logins
        logins += 1
        await asyncio.sleep(0)
        return tokens("fresh")

    results = await asyncio.gather(*(source.obtain(log_in) for _ in range(10)))
    assert {each.access_token for each in results if each is not None} == {"fresh"}
    assert logins == 1
    got = await login.source().obtain(log_in)
    assert got is not None
    assert got.access_token == "fresh"
    assert logins == 1


async def test_a_login_for_more_scopes_replaces_the_token_that_lacks_them() -> None:
    login = Login(tokens("old", scopes=("a",)))
    source = login.source()
    await source.get()

    async def log_in(stored: Tokens | None) -> Tokens:
        assert stored is not None
        assert stored.access_token == "old"
        return tokens("wider", scopes=("a", "b"))

    got = await source.obtain(log_in, refused="old")
    assert got is not None
    assert got.scopes == ("a", "b")


async def test_a_failed_login_fails_once_for_all_who_wait() -> None:
    source = Login().source()
    attempts = 0

    async def log_in(stored: Tokens | None) -> Tokens:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        raise GemelError("denied")

    results = await asyncio.gather(*(source.obtain(log_in) for _ in range(10)), return_exceptions=True)
    assert [str(each) for each in results] == ["denied"] * 10
    assert attempts == 1


async def test_a_lock_that_is_never_free_is_an_error() -> None:
    login = Login(tokens("old", -1))
    async with login.store.lock(KEY):
        with pytest.raises(NotSent, match="has held the lock"):
            await login.source(lock_timeout=0.02).get()
    assert login.used == []


async def test_a_store_that_cannot_be_written_loses_no_call(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryTokenStore):
        async def set(self, key: str, tokens: Tokens, /) -> None:
            raise TokenStoreError("the disk is full")

    login = Login()
    store = Full()
    store._tokens[KEY] = tokens("old", -1)
    got = await TokenSource(store, KEY, login.refresh).get()
    assert got is not None
    assert got.access_token == "new-1"
    assert "the disk is full" in caplog.text


async def test_forget_deletes_the_login() -> None:
    login = Login(tokens("old"))
    source = login.source()
    await source.get()
    await source.forget()
    assert login.stored is None
    assert await source.get() is None


@pytest.mark.parametrize("work", [lambda source: source.get(), lambda source: source.replace("old")])
async def test_secrets_are_neither_shown_nor_logged(
    work: Callable[[TokenSource], Awaitable[Tokens | None]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stored = tokens("old", 30, refresh_token=SECRET, client={"client_secret": SECRET})
    login = Login(stored)
    login.failure = NotSent("away")
    source = login.source()
    with suppress(NotSent):
        await work(source)
    await source.close()
    assert SECRET not in caplog.text
    assert SECRET not in repr(stored)
    assert SECRET not in str(stored)
    assert "login.example.com" in repr(stored)
