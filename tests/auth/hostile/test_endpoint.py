"""The hostile tokens, proofs, key sets and requests against a protected server on loopback."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Server
from gemel.auth import JWTAuth
from tests.auth.hostile import proofs, requests, tokens
from tests.auth.hostile.cases import ENDPOINT_REQUESTS, PING, REVISION_2025, Request, authorized, problem
from tests.auth.hostile.issuer import AUDIENCE, ISSUER, SCOPE, TokenCase, good_token, key_set
from tests.auth.hostile.requests import RequestCase
from tests.auth.hostile.wire import exchange, problems
from tests.transports.http_rig import serving


def make_server(**options: Any) -> Server[Any]:
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, required_scopes=[SCOPE], keys=key_set(), **options)
    return Server("notes", version="1", auth=auth)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving(make_server()) as site:
        yield site.port


def named(wrong: str | None, *names: str) -> str | None:
    return None if wrong is None else f"{', '.join(names)}: {wrong}"


@pytest.mark.parametrize("over", ENDPOINT_REQUESTS)
async def test_hostile_tokens_are_answered_as_specified(port: int, over: str) -> None:
    """AUTHS-05, AUTHS-06, SEC-03."""

    async def run(case: TokenCase) -> str | None:
        token = case.token()
        response = await exchange(port, authorized(ENDPOINT_REQUESTS[over], f"Bearer {token}"))
        expect = case.expect._replace(hides=(*case.expect.hides, token)) if len(token) > 20 else case.expect
        return named(problem(expect, response), case.name)

    assert await problems(tokens.cases(), run) == []


@pytest.mark.parametrize("over", ENDPOINT_REQUESTS)
async def test_hostile_requests_are_answered_as_specified(port: int, over: str) -> None:
    """AUTHS-05, SEC-03."""

    async def run(case: RequestCase) -> str | None:
        response = await exchange(port, case.change(ENDPOINT_REQUESTS[over]))
        return named(problem(case.expect, response), case.name)

    assert await problems([case for case in requests.cases() if over in case.over], run) == []


async def test_a_session_belongs_to_who_opened_it(port: int) -> None:
    ours = f"Bearer {good_token()}"
    opened = await exchange(port, authorized(ENDPOINT_REQUESTS["POST 2025"], ours))
    (session,) = opened.all("mcp-session-id")

    def request(name: str, *values: str) -> Request:
        base = ENDPOINT_REQUESTS[name]
        headers = tuple(pair for pair in base.headers if pair[0] not in ("Mcp-Session-Id", "MCP-Protocol-Version"))
        headers += (("Mcp-Session-Id", session), ("MCP-Protocol-Version", REVISION_2025))
        return authorized(base._replace(headers=headers, body=PING if base.body else b""), *values)

    others = {
        "another person": {"sub": "grace"},
        "another client of the same person": {"client_id": "viewer"},
        "a person named as the session": {"sub": session},
    }
    for name, over in itertools.product(others, ("POST 2025", "GET", "DELETE")):
        response = await exchange(port, request(over, f"Bearer {good_token(**others[name])}"))
        assert response.status == 404, f"{over} by {name}: {response}"
    for over in ("POST 2025", "GET", "DELETE"):
        assert (await exchange(port, request(over))).status == 401
    assert (await exchange(port, request("POST 2025", ours))).status == 200
    assert (await exchange(port, request("DELETE", ours))).status in (200, 204)


def test_the_corpus_is_as_large_as_it_says() -> None:
    tables = [[case.name for case in table] for table in (tokens.cases(), requests.cases(), proofs.cases())]
    assert sum(map(len, tables)) >= 270
    assert all(len(set(names)) == len(names) for names in tables)
