"""What clients, groups and proxies of Gemel make of logins that deviate from the specifications: see `logins.py`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import gemel
from gemel import Client, ClientGroup, GemelError, Server
from gemel.auth import MemoryTokenStore, OAuth
from tests.auth.double import AuthDouble
from tests.peers.logins import FAILS, LOGINS, Login

#: How the client that logs in is used.
USES: dict[str, Callable[[Client], Any]] = {
    "client": lambda client: client,
    "group": lambda client: ClientGroup({"a": client}),
    "proxy": lambda client: Client(Server.from_client(client)),
}


async def call(use: str, double: AuthDouble, login: Login, store: MemoryTokenStore) -> str:
    """Connect and call a tool; return its text, or the public class of the error."""
    options: dict[str, Any] = {name: double.issuer if value is ... else value for name, value in login.options.items()}
    accepted = [name.replace("@ISSUER@", double.issuer) for name in options.pop("accept_issuers", ())]
    auth = OAuth(authorizer=double.person(), store=store, scopes=["read"], accept_issuers=accepted, **options)
    try:
        async with USES[use](Client(double.url, auth=auth)) as user:
            return str((await user.call_tool("read")).text)
    except GemelError as exc:
        return next(kind.__name__ for kind in type(exc).__mro__ if kind.__name__ in gemel.__all__)


async def expire(double: AuthDouble, store: MemoryTokenStore) -> None:
    """Let all access tokens expire."""
    double.tokens.clear()
    for key, tokens in list(store._tokens.items()):
        if tokens.access_token:
            await store.set(key, msgspec.structs.replace(tokens, expires_at=time.time() - 1))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login.name)
async def test_a_login(login: Login, use: str, caplog: pytest.LogCaptureFixture) -> None:
    """What fails is an error of the group and the proxy, too, of whichever class."""
    store = MemoryTokenStore()
    async with AuthDouble() as double:
        login.change(double)
        got = [await call(use, double, login, store)]
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        await expire(double, store)
        got.append(await call(use, double, login, store))
        expected = [login.expected, login.again]
        assert [text == "read" for text in got] == [text == "read" for text in expected]
        if use == "client":
            assert got == expected
            assert len(warnings) == len(login.warns)
        assert all(any(words in text for text in warnings) for words in login.warns)
        if login.expected != FAILS:
            assert len(double.opened) == login.logins


def test_every_login_has_a_name_of_its_own() -> None:
    assert len({login.name for login in LOGINS}) == len(LOGINS)
