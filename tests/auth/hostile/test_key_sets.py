"""A protected server whose issuer publishes hostile key sets, or none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from gemel import Server
from gemel.auth import JWTAuth
from gemel.auth.server import jwks
from tests.auth.hostile.cases import ACCEPTED, ENDPOINT_REQUESTS, Expect, authorized, problem
from tests.auth.hostile.issuer import AUDIENCE, ISSUER, TokenCase, good_token, key_set
from tests.auth.hostile.key_sets import CASES, KeySetCase
from tests.auth.hostile.wire import exchange
from tests.transports.http_rig import serving

DISCOVER = ENDPOINT_REQUESTS["POST 2026"]
#: What a client sees while the keys are not to be had.
CLOSED = Expect((401, 503))


class KeyServer:
    """The issuer's URL for keys.

    Attributes:
        case: What it answers; None hangs up.
        asked: How often it was asked.
    """

    def __init__(self, case: KeySetCase | None) -> None:
        self.case = case
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.asked += 1
                if self.case is None:
                    break
                body = self.case.body()
                headers = [("Content-Length", str(len(body))), ("Content-Type", "application/json")]
                lines = [f"{name}: {value}" for name, value in (*headers, *self.case.headers)]
                writer.write("\r\n".join([f"HTTP/1.1 {self.case.status} x", *lines, "", ""]).encode() + body)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def protected(case: KeySetCase | None) -> AsyncIterator[tuple[int, KeyServer]]:
    """A server whose keys come from a URL: its port, and who answers there."""
    keys = KeyServer(case)
    listener = await asyncio.start_server(keys.answer, "127.0.0.1", 0)
    jwks_url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/keys"
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=jwks_url)
    try:
        async with serving(Server("notes", version="1", auth=auth)) as site:
            yield site.port, keys
    finally:
        listener.close()
        await listener.wait_closed()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hostile_key_sets_let_nobody_in_and_are_not_asked_for_again_and_again(case: KeySetCase) -> None:
    async with protected(case) as (port, keys):
        request = authorized(DISCOVER, f"Bearer {case.token()}")
        responses = await asyncio.gather(*[exchange(port, request) for _ in range(5)])
        responses += [await exchange(port, request) for _ in range(5)]
    assert [problem(case.expect, response) for response in responses] == [None] * 10
    assert keys.asked <= case.requests


async def test_unknown_key_ids_do_not_make_the_server_ask_each_time() -> None:
    good = CASES[0]
    async with protected(good) as (port, keys):
        for number in range(50):
            token = TokenCase("unknown", header={"kid": f"unknown-{number}"}, key="other-rs").token()
            response = await exchange(port, authorized(DISCOVER, f"Bearer {token}"))
            assert problem(CLOSED, response) is None
        assert problem(ACCEPTED, await exchange(port, authorized(DISCOVER, f"Bearer {good_token()}"))) is None
    assert keys.asked <= 3


async def test_an_issuer_that_is_down_locks_nobody_out_who_was_let_in() -> None:
    async with protected(CASES[0]) as (port, keys):
        first = await exchange(port, authorized(DISCOVER, f"Bearer {good_token()}"))
        keys.case = None
        again = await exchange(port, authorized(DISCOVER, f"Bearer {good_token(jti='2')}"))
    assert [problem(ACCEPTED, response) for response in (first, again)] == [None, None]


async def test_an_issuer_that_comes_back_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "PAUSE", 0.2)
    async with protected(None) as (port, keys):
        request = authorized(DISCOVER, f"Bearer {good_token()}")
        assert problem(CLOSED, await exchange(port, request)) is None
        keys.case = CASES[0]
        for _ in range(100):
            if (await exchange(port, request)).status == 200:
                return
            await asyncio.sleep(0.1)
    pytest.fail("the keys were not fetched again")


def test_the_good_key_set_is_one() -> None:
    assert json.loads(CASES[0].body()) == key_set()
