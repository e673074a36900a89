"""IntrospectionAuth over HTTP: what is asked, what is remembered, and which answers let nobody in."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from gemel import DefinitionError
from gemel.auth import IntrospectionAuth
from gemel.auth.server import introspection
from tests.auth.server.issuer import AUDIENCE, Issuer, ask, issuing, protected_by, who

SECRET = "canary: 4%/ä"
TOKEN = "opaque-canary-81f2"


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        issuer.answers[TOKEN] = answer()
        yield issuer


def answer(**changes: Any) -> dict[str, Any]:
    base = {
        "active": True,
        "sub": "ann",
        "client_id": "app",
        "aud": AUDIENCE,
        "scope": "notes",
        "exp": time.time() + 60,
    }
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


def auth_of(issuer: Issuer, /, **options: Any) -> IntrospectionAuth:
    settings: dict[str, Any] = {
        "issuer": issuer.url,
        "audience": AUDIENCE,
        "client_id": "notes server",
        "client_secret": SECRET,
        "required_scopes": ["notes"],
    }
    return IntrospectionAuth(**(settings | options))


async def test_the_authorization_server_judges_the_token(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer)) as site:
        caller = await who(site, TOKEN)
        assert (caller["name"], caller["client"], caller["scopes"]) == ("ann", "app", ["notes"])
        assert (await ask(site, "other")).status == 401
    assert issuer.paths() == ["/.well-known/oauth-authorization-server", "/introspect", "/introspect"]
    asked = issuer.asked[1]
    assert (asked.method, parse_qs(asked.body.decode())) == (
        "POST",
        {"token": [TOKEN], "token_type_hint": ["access_token"]},
    )
    credentials = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
    assert credentials == "notes+server:canary%3A+4%25%2F%C3%A4"


async def test_an_answer_is_remembered_and_asked_for_once_at_a_time(issuer: Issuer) -> None:
    issuer.delay = 0.05
    async with protected_by(auth_of(issuer, endpoint=f"{issuer.url}/introspect")) as site:
        replies = await asyncio.gather(*[ask(site, TOKEN) for _ in range(20)])
        replies += [await ask(site, TOKEN) for _ in range(5)]
        assert {reply.status for reply in replies} == {200}
        assert issuer.paths() == ["/introspect"]
        for _ in range(5):
            assert (await ask(site, "not-active")).status == 401
        assert issuer.paths() == ["/introspect"] * 2


async def test_tokens_that_are_not_active_are_remembered_in_a_bounded_way(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "_INACTIVE", 3)
    auth = auth_of(issuer, endpoint=f"{issuer.url}/introspect")
    async with protected_by(auth) as site:
        for number in range(10):
            await ask(site, f"stranger-{number}")
    assert len(auth._inactive) == 3


async def test_a_revoked_token_is_refused_when_nothing_is_remembered(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer, remember=0)) as site:
        await who(site, TOKEN)
        issuer.answers[TOKEN] = {"active": False}
        assert (await ask(site, TOKEN)).status == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"active": None},
        {"active": "true"},
        {"active": 1},
        {"aud": None},
        {"aud": "https://other.example.com/mcp"},
        {"iss": "https://evil.example.com"},
        {"exp": 1},
        {"exp": "soon"},
        {"nbf": 2_000_000_000_000},
        {"sub": None, "client_id": None},
    ],
)
async def test_an_answer_that_does_not_fit_lets_nobody_in(issuer: Issuer, changes: dict[str, Any]) -> None:
    issuer.answers[TOKEN] = answer(**changes)
    async with protected_by(auth_of(issuer)) as site:
        assert (await ask(site, TOKEN)).status == 401


async def test_members_that_are_optional_may_be_missing(issuer: Issuer) -> None:
    issuer.answers[TOKEN] = answer(exp=None, aud=None, sub=None, username="ann@example.com")
    async with protected_by(auth_of(issuer, missing_audience=True)) as site:
        assert (await who(site, TOKEN))["name"] == "ann@example.com"


async def test_a_failure_is_not_the_fault_of_the_token(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    issuer.status = 500
    async with protected_by(auth_of(issuer)) as site:
        reply = await ask(site, TOKEN)
        assert (reply.status, "www-authenticate" in reply.headers) == (503, False)
        issuer.status = 200
        assert (await who(site, TOKEN))["name"] == "ann"
    assert "can't be asked" in caplog.text
    for secret in (SECRET, TOKEN, base64.b64encode(b"notes+server").decode()[:12]):
        assert secret not in caplog.text
        assert secret not in repr(auth_of(issuer)) + str(vars(auth_of(issuer))["_questions"])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"issuer": None}, "needs issuer"),
        ({"audience": None}, "needs audience"),
        ({"client_id": ""}, "needs client_id"),
        ({"client_secret": ""}, "needs client_id"),
        ({"client_secret": 7}, "client_secret of type int"),
        ({"endpoint": "http://login.example.com/x"}, "https URL"),
        ({"secret": "x"}, "has no option 'secret'"),
    ],
)
def test_a_mistake_gets_one_clear_line(changes: dict[str, Any], text: str) -> None:
    double = Issuer()
    double.url = "https://login.example.com"
    with pytest.raises(DefinitionError) as raised:
        auth_of(double, **changes)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
