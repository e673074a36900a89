"""Gemel's client logs in to the example servers of the official SDKs, with a real browser."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from gemel import Client
from gemel.auth import BrowserLogin, OAuth
from tests.auth.real.browser import Page
from tests.auth.real.conftest import missing
from tests.auth.real.foreign_servers import SERVERS, ForeignServer, Visitor, foreign_server, is_installed
from tests.auth.real.person import PersonAtBrowser


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignServer]:
    if not is_installed(request.param):
        missing(f"the example server of the {request.param} SDK is not installed: python -m tests.interop.peers")
    with foreign_server(request.param, tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.mark.parametrize("era", ["2025", "auto"])
async def test_a_login_at_a_foreign_server_serves_further_connections(
    server: ForeignServer, era: Literal["2025", "auto"], page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with PersonAtBrowser(page, Visitor()) as person:
        auth = OAuth(authorizer=BrowserLogin(open_url=person.open, show=lambda text: None))
        for _ in range(2):
            async with Client(server.url, auth=auth, era=era) as client:
                result = await client.call_tool(server.tool, server.arguments)
                assert not result.is_error
    assert len(person.opened) == 1
    tokens = await auth.bind(server.url).tokens()
    assert tokens is not None
    assert tokens.access_token not in caplog.text
