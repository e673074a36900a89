"""A shop that asks by page: its clients have no forms, so the user answers on a web page. Run this file.

The server is a usual one: `ctx.elicit` in a tool. `ask=AskByPage(…)` says where the pages are, and how the visitor is known.
Here a model and a visitor play their parts: the model calls the tool and gets a link, the visitor opens it, fills in the form,
and the model calls again.
"""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass
from html import unescape
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from gemel import Client, Context, Server
from gemel.ask_by_page import AskByPage
from gemel.auth import StaticTokens


def free_port() -> int:
    """A port that nothing listens on. A real shop has an address of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


PORT = free_port()
URL = f"http://127.0.0.1:{PORT}"


def who(scope: Any, headers: Any) -> str | None:
    """Who visits a page. A real shop looks up the session of its own login; here the cookie is the name."""
    cookie = re.search(r"\bshop_session=(\w+)", headers.get("cookie", ""))
    return cookie[1] if cookie else None


server = Server(
    "shop",
    title="Corner shop",
    auth=StaticTokens({"token-of-ann": "ann", "token-of-bob": "bob"}),
    ask=AskByPage(URL, who=who),
)
charged: list[str] = []


@dataclass
class Order:
    """The form that the user fills in."""

    size: Literal["small", "large"]


def charge(item: str) -> str:
    """Charge the card; must run only once per call."""
    charged.append(item)
    return f"receipt {len(charged)}"


@server.tool
async def buy(ctx: Context, item: str) -> str:
    """Buy something.

    Args:
        item: What to buy.
    """
    order = await ctx.elicit(f"Which size of {item}?", Order)
    receipt: str = await ctx.step(charge, item)
    gift = await ctx.elicit("Is it a gift?", bool)
    return f"A {order.size} {item}{', wrapped' if gift else ''}: {receipt}"


class Browser:
    """Opens a page and sends its form, as the browser of a person who is logged in to the shop."""

    def __init__(self, user: str) -> None:
        self._headers = {"Cookie": f"shop_session={user}"}

    def open(self, link: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        """Return the status of a page, and its HTML."""
        body = None if form is None else urlencode(form).encode()
        try:
            with urlopen(Request(link, body, {**self._headers, "Origin": URL})) as response:
                return response.status, response.read().decode()
        except HTTPError as exc:
            return exc.code, exc.read().decode()

    def answer(self, link: str, form: dict[str, str]) -> None:
        """Fill in the form of a page and send it."""
        _, html = self.open(link)
        question = re.search(r'class="question">([^<]*)<', html)
        secret = re.search(r'name="secret" value="([^"]*)"', html)
        assert question is not None
        assert secret is not None
        status, _ = self.open(link, {**form, "secret": secret[1], "action": "accept"})
        print(f"    ann answers {unescape(question[1])!r}: {status}")


def link_in(text: str) -> str:
    """The link that a result gives the model."""
    found = re.search(r"http\S+/ask/\S+", text)
    assert found is not None, text
    return found[0]


async def use(era: Literal["2025", "2026"]) -> None:
    """Buy a shirt with a client that has no forms."""
    print(f"era {era}")
    async with Client(f"{URL}/mcp", era=era, headers={"Authorization": "Bearer token-of-ann"}) as client:
        for form in ({"f0": "1"}, {"f0": "on"}):  # the second choice; a tick
            result = await client.call_tool("buy", {"item": "shirt"}, raise_on_error=False)
            print("    the model reads:", *result.text.splitlines()[:2])
            link = link_in(result.text)
            status, _ = await asyncio.to_thread(Browser("bob").open, link)
            print(f"    bob opens the link: {status}")
            await asyncio.to_thread(Browser("ann").answer, link, form)
        print("   ", (await client.call_tool("buy", {"item": "shirt"})).text)


async def main() -> None:
    """Serve the shop, and use it in both eras."""
    ready = asyncio.Event()
    serving = asyncio.create_task(server.run_async("http", port=PORT, announce=lambda address: ready.set()))
    try:
        await ready.wait()
        await use("2025")
        await use("2026")
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
