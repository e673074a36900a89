"""Visitors who log in to the authorization server of the MCP server: only the principal of the call answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gemel import Client, Context, Principal, Server
from gemel.ask_by_page import AskByPage, PageLogin
from gemel.auth import TokenAuth
from tests.ask_by_page.visitor import Visitor, link_in
from tests.auth.double import AuthDouble, Reply

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
URL = "http://127.0.0.1:9"  # served in memory
REDIRECT = f"{URL}/mcp/ask/login"


class Company:
    """An authorization server, an MCP server that needs its tokens, and one person after another at the login."""

    def __init__(self, double: AuthDouble, **login: Any) -> None:
        self.double = double
        #: Who is logged in to the authorization server.
        self.person = "ann"
        self._people: dict[str, str] = {}
        double.clients["pages"] = {"client_id": "pages", "client_secret": "a secret", "redirect_uris": [REDIRECT]}
        auth = TokenAuth(
            self._verify, authorization_servers=[double.issuer], resource=f"{URL}/mcp", required_scopes=["shop"]
        )
        page_login = PageLogin("pages", "a secret", **{"scopes": ["shop"], **login})
        server: Server[Any] = Server("shop", auth=auth, ask=AskByPage(URL, login=page_login))

        @server.tool
        async def pay(ctx: Context, to: str) -> str:
            """Pay somebody."""
            return f"{await ctx.elicit(f'How much for {to}?', int)} for {to}"

        self.app = server.http_app()

    def _verify(self, token: str) -> Principal | None:
        if token not in self.double.tokens:
            return None
        name = self._people.setdefault(token, self.person)
        return Principal(name, scopes=self.double.tokens[token], client="pages")

    def client(self, era: Any) -> Client:
        token = self.double.grant("shop")[0]
        return Client(self.app, era=era, headers={"Authorization": f"Bearer {token}"})

    def browser(self) -> Visitor:
        browser = Visitor(self.app)
        browser.web = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), mounts={self.double.issuer: httpx.AsyncHTTPTransport()}
        )
        return browser


@asynccontextmanager
async def company(**login: Any) -> AsyncIterator[Company]:
    async with AuthDouble() as double:
        yield Company(double, **login)


async def ask(client: Client) -> Any:
    return await client.call_tool("pay", {"to": "Carl"}, raise_on_error=False)


@both_eras
async def test_a_visitor_logs_in_and_answers(era: str) -> None:
    async with company(parameters={"prompt": "login"}) as here, here.client(era) as client, here.browser() as browser:
        link = link_in((await ask(client)).text)
        page = await browser.open(link)
        assert page.url == link
        assert "Signed in as ann" in page.text
        assert (await browser.send(page, {"Your answer": "5"})).status == 200
        assert (await ask(client)).text == "5 for Carl"
        form = here.double.forms("/token")[0]
        assert form["resource"] == f"{URL}/mcp"
        assert form["code_verifier"]
        assert [asked for asked in here.double.authority.asked if "prompt=login" in asked.path]


@both_eras
async def test_somebody_else_logs_in_and_sees_nothing(era: str) -> None:
    async with company() as here, here.client(era) as client, here.browser() as browser:
        link = link_in((await ask(client)).text)
        here.person = "bob"
        page = await browser.open(link)
        assert page.status == 403
        assert "Carl" not in page.html
        here.person = "ann"
        assert (await browser.open(link)).status == 200  # with another login


async def test_a_login_serves_for_further_pages() -> None:
    async with company() as here, here.client("2026") as client, here.browser() as browser:
        for _ in range(2):
            await browser.answer(link_in((await ask(client)).text), {"Your answer": "5"})
            assert (await ask(client)).text == "5 for Carl"
        assert len(here.double.forms("/token")) == 1
        page = await browser.open(link_in((await ask(client)).text))
        browser.web.cookies.clear()
        assert (await browser.send(page, {"Your answer": "5"})).status == 401


async def test_cookies_of_a_login_are_not_for_scripts() -> None:
    async with company() as here, here.client("2026") as client, here.browser() as browser:
        link = link_in((await ask(client)).text)
        begun = await browser.web.get(link)
        assert begun.status_code == 303
        assert "HttpOnly; SameSite=Lax; Path=/mcp/ask" in begun.headers["set-cookie"]


async def test_a_login_of_another_browser_is_not_taken() -> None:
    """Otherwise somebody could let others answer in his name, or the other way round."""
    async with company() as here, here.client("2026") as client, here.browser() as one, here.browser() as other:
        link = link_in((await ask(client)).text)
        begun = await one.web.get(link)
        agreed = await one.web.get(begun.headers["location"])
        back = agreed.headers["location"]
        assert (await other.open(back)).status == 400
        assert (await one.open(back)).status == 400  # it is used up
        assert (await one.open(f"{REDIRECT}?code=x&state=y")).status == 400
        assert (await one.web.post(REDIRECT, data={"state": "x"})).status_code == 400


@pytest.mark.parametrize(
    "changes",
    [{"iss": "https://evil.example"}, {"iss": None}, {"code": "another"}, {"code": None, "error": "access_denied"}],
)
async def test_a_login_that_goes_wrong_admits_nobody(changes: Any) -> None:
    async with company() as here, here.client("2026") as client, here.browser() as browser:
        link = link_in((await ask(client)).text)
        here.double.redirect_changes = changes
        assert (await browser.open(link)).status == 400
        assert browser.web.cookies.get("gemel_ask") is None


async def test_a_token_that_the_server_refuses_admits_nobody() -> None:
    async with company(scopes=["other"]) as here, here.client("2026") as client, here.browser() as browser:
        assert (await browser.open(link_in((await ask(client)).text))).status == 400


async def test_without_the_authorization_server_visitors_are_told_to_come_back() -> None:
    async with company() as here, here.client("2026") as client, here.browser() as browser:
        link = link_in((await ask(client)).text)
        here.double.change("/.well-known/oauth-authorization-server", Reply(500))
        assert (await browser.open(link)).status == 503
