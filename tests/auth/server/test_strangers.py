"""Strangers who flood a server with tokens: what they cause is bounded, and is in nobody's way but their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import pytest

from gemel import Principal
from gemel.auth import IntrospectionAuth, TokenAuth
from gemel.auth.server import introspection, questions
from tests.auth.server.issuer import AUDIENCE, Issuer, ask, issuing, protected_by, who
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Reply,
    Site,
    Wire,
    initialize,
    make_server,
    modern_call,
    serving,
)

FLOOD = "127.0.0.2"


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        for name in ("ann", "bob"):
            issuer.answers[name] = {
                "active": True,
                "sub": name,
                "client_id": "app",
                "aud": AUDIENCE,
                "exp": time.time() + 60,
            }
        yield issuer


def auth_of(issuer: Issuer, **options: Any) -> IntrospectionAuth:
    endpoint = f"{issuer.url}/introspect"
    return IntrospectionAuth(
        issuer=issuer.url, audience=AUDIENCE, client_id="notes", client_secret="secret", endpoint=endpoint, **options
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def calls(site: Site, *tokens: str, era: Literal["2025", "2026"] = "2026") -> list[Wire]:
    """Send a request with each token, each on a connection of its own."""
    headers, body = modern_call("who") if era == "2026" else (JSON_HEADERS, initialize())
    return [await site.call({**headers, "Authorization": f"Bearer {token}"}, body) for token in tokens]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_flood_of_tokens_opens_few_connections_and_hinders_no_other_address(
    issuer: Issuer, era: Literal["2025", "2026"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "AT_ONCE", 8)
    monkeypatch.setattr(questions, "WAITING", 20)
    async with protected_by(auth_of(issuer)) as site:
        assert (await ask(site, "ann")).status == 200
        issuer.delay = 3600
        flood = await calls(site.at(FLOOD), *(f"garbage-{number}" for number in range(60)), era=era)
        refused = [await wire.reply() for wire in flood[8:40]]
        assert {reply.status for reply in refused} == {503}
        assert {reply.headers["retry-after"] for reply in refused} == {"5"}
        assert (await ask(site, "ann")).status == 200, "a token that is remembered needs no question"
        assert len(issuer.asked) == 9
        issuer.quick.add(b"token=bob&token_type_hint=access_token")
        async with asyncio.timeout(5):
            assert (await who(site, "bob"))["name"] == "bob"
        assert issuer.server is not None
        assert issuer.server.most <= 9


async def test_further_questions_of_one_address_wait_for_their_turn(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst of callers behind one address is served, over a few connections that are used again."""
    monkeypatch.setattr(questions, "AT_ONCE", 4)
    issuer.delay = 0.01
    for number in range(60):
        issuer.answers[f"token-{number}"] = {**issuer.answers["ann"], "sub": f"user-{number}"}
    async with protected_by(auth_of(issuer)) as site:
        wires = await calls(site, *(f"token-{number}" for number in range(60)))
        assert {(await wire.reply()).status for wire in wires} == {200}
        assert issuer.server is not None
        assert (issuer.server.most, issuer.server.connections) == (4, 4)


async def test_who_waits_for_a_question_of_another_address_that_gives_way_asks_anew(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "AT_ONCE", 3)
    issuer.delay = 3600
    auth = auth_of(issuer)
    async with protected_by(auth) as site:
        first, *_ = await calls(site.at(FLOOD), "ann", "garbage-1", "garbage-2")
        await until(lambda: len(issuer.asked) == 3)
        (same,) = await calls(site, "ann")
        await until(lambda: [one.waiters for one in auth._questions._work._by_loop.here().by_key.values()] == [2, 1, 1])
        issuer.quick.update(b"token=%b&token_type_hint=access_token" % token for token in (b"ann", b"bob"))
        assert (await who(site.at("127.0.0.3"), "bob"))["name"] == "bob"
        assert (await first.reply()).status == 503
        assert (await same.reply()).status == 200


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
async def test_a_question_ends_when_all_who_waited_for_the_answer_have_left(
    issuer: Issuer, engine: Literal["gemel", "uvicorn"]
) -> None:
    issuer.delay = 3600
    async with serving(make_server(Log(), auth=auth_of(issuer)), engine=engine) as site:
        first, second = await calls(site, "ann", "ann")
        server = issuer.server
        assert server is not None
        await until(lambda: len(issuer.asked) == 1)
        first.abort()
        await asyncio.sleep(0.1)
        assert server.open == 1
        second.abort()
        await until(lambda: server.open == 0)
        issuer.delay = 0
        assert (await ask(site, "ann")).status != 503


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
async def test_a_body_that_comes_while_the_caller_is_being_verified_is_read(
    issuer: Issuer, engine: Literal["gemel", "uvicorn"]
) -> None:
    issuer.delay = 0.1
    async with serving(make_server(Log(), auth=auth_of(issuer)), engine=engine) as site, asyncio.timeout(5):
        headers, body = modern_call("add", a=1, b=2)
        assert (await site.ask({**headers, "Authorization": "Bearer ann"}, body)).status == 200


async def test_garbage_of_one_address_pushes_out_no_refused_token_of_others(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "_INACTIVE", 10)
    async with protected_by(auth_of(issuer)) as site:
        assert (await ask(site, "withdrawn")).status == 401
        for number in range(30):
            assert (await ask(site.at(FLOOD), f"garbage-{number}")).status == 401
        asked = len(issuer.asked)
        assert (await ask(site, "withdrawn")).status == 401
        assert len(issuer.asked) == asked


async def test_tokens_of_one_user_push_out_no_remembered_token_of_others() -> None:
    verified: list[str] = []

    async def verify(token: str) -> Principal:
        verified.append(token)
        return Principal(token.partition("-")[0])

    async with protected_by(TokenAuth(verify, remember=60, remembered=5)) as site:
        await who(site, "ann")
        for number in range(20):
            await who(site, f"mallory-{number}")
        await who(site, "ann")
        assert verified.count("ann") == 1


async def test_a_connection_that_was_closed_while_it_was_idle_costs_no_refusal(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer)) as site:
        await who(site, "ann")
        issuer.drops = 1
        reply: Reply = await ask(site, "bob")
        assert reply.status == 200
