"""Where a server that asks by page is reached: in memory as over stdio, over HTTP with and without authorization."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from gemel import Client, Server
from gemel.ask_by_page import AskByPage
from gemel.auth import StaticTokens
from tests.ask_by_page.visitor import Visitor, link_in, name_in

URL = "https://shop.example"
TOKENS = StaticTokens({"ann-token": "ann", "bob-token": "bob"})


def who(scope: Any, headers: Any) -> str | None:
    """Who visits, as the cookie of another login would say."""
    name: str | None = headers.get("x-user")
    return name


class Place:
    """A server with a client that has no forms, and the browser of its user."""

    def __init__(self, client: Client, browser: Visitor, opened: list[str]) -> None:
        self.client = client
        self.browser = browser
        #: What the server opened in the browser itself.
        self.opened = opened
        self._names: dict[str, Any] = {}

    async def call(self, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool as the model would: a name that the result gives is brought back with the next call."""
        result = await self.client.call_tool(tool, {**(arguments or {}), **self._names}, raise_on_error=False)
        self._names = {"_call": name_in(result.text)} if "'_call'" in result.text else {}
        return result

    def link(self, result: Any) -> str:
        """The page of a result."""
        return link_in(result.text) if "/ask/" in result.text else self.opened[-1]


@asynccontextmanager
async def local(make: Callable[..., Server[Any]], era: Any, **options: Any) -> AsyncIterator[Place]:
    opened: list[str] = []

    def open_url(url: str) -> bool:
        opened.append(url)
        return True

    server = make(ask=AskByPage(open_url=open_url, **options))
    async with Client(server, era=era) as client, Visitor() as browser:
        yield Place(client, browser, opened)


@asynccontextmanager
async def authorized(make: Callable[..., Server[Any]], era: Any, **options: Any) -> AsyncIterator[Place]:
    server = make(ask=AskByPage(URL, who=who, **options), auth=TOKENS)
    app = server.http_app(allowed_hosts=["shop.example"])
    headers = {"Authorization": "Bearer ann-token"}
    async with Client(app, era=era, headers=headers) as client, Visitor(app, **{"x-user": "ann"}) as browser:
        yield Place(client, browser, [])


@asynccontextmanager
async def anonymous(make: Callable[..., Server[Any]], era: Any, **options: Any) -> AsyncIterator[Place]:
    server = make(ask=AskByPage(URL, anybody_with_the_link=True, **options))
    app = server.http_app(allowed_hosts=["shop.example"])
    async with Client(app, era=era) as client, Visitor(app) as browser:
        yield Place(client, browser, [])


PLACES = {"stdio": local, "authorized": authorized, "anonymous": anonymous}
