"""A server to be proxied, and the ways to proxy it: everything in memory, each era on either side."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Client, Context, ElicitFormParams, ProtocolError, Root, Server

ERAS = ("2025", "2026")

#: The era of the server behind the proxy, and the era of the client in front of it.
all_eras = pytest.mark.parametrize(("behind", "front"), [(behind, front) for behind in ERAS for front in ERAS])
each_behind = pytest.mark.parametrize("behind", ERAS)
each_front = pytest.mark.parametrize("front", ERAS)


class Behind:
    """The server behind the proxy, and what happened in it."""

    def __init__(self, **options: Any) -> None:
        self.runs: list[str] = []
        self.stopped: list[str] = []
        self.started = asyncio.Event()
        self.server: Server[Any] = Server("behind", version="7", instructions="Be kind.", **options)
        self._tools()
        self._asking_tools()
        self._rest()

    def _tools(self) -> None:
        server = self.server

        @server.tool(title="Add")
        async def add(a: int, b: int) -> dict[str, int]:
            """Add two numbers."""
            return {"sum": a + b}

        @server.tool
        async def fail(code: int, message: str) -> str:
            raise ProtocolError(message, {"why": "so"}, code=code)

        @server.tool
        async def tell(ctx: Context[Any], count: int = 3) -> str:
            for number in range(count):
                await ctx.report_progress(number + 0.5, count, f"step {number}")
            for level in ("debug", "info", "error"):
                await ctx.log(level, {"said": level}, logger="l")
            return "told"

        @server.tool
        async def wait(ctx: Context[Any], name: str = "wait") -> str:
            self.runs.append(name)
            self.started.set()
            await ctx.report_progress(1, 2, "waiting")
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(name)
            return name

    def _asking_tools(self) -> None:
        server = self.server

        @server.tool
        async def book(ctx: Context[Any], city: str) -> str:
            self.runs.append(city)
            day = await ctx.elicit("Which day?", str, key="day")
            await ctx.report_progress(1, 2, "half")
            answer = await ctx.sample("Is that good?", key="model")
            roots = await ctx.list_roots(key="roots")
            assert answer.content is not None
            return f"{city} {day} {answer.content.text} {roots[0].uri}"  # type: ignore[union-attr]  # a text was sampled

        @server.tool
        async def both(ctx: Context[Any]) -> str:
            self.runs.append("both")
            one, two = await asyncio.gather(ctx.elicit("One?", str), ctx.elicit("Two?", str))
            return f"{one} {two}"

        @server.tool
        async def page(ctx: Context[Any]) -> str:
            self.runs.append("page")
            await ctx.elicit_url("Please look", "https://example.com/x")
            return "seen"

    def _rest(self) -> None:
        server = self.server

        @server.resource("city://{name}/now")
        def now(name: str) -> str:
            return f"mild in {name}"

        @now.complete("name")
        def names(value: str) -> list[str]:
            return [f"{value}slo"]

        @server.resource("city://all")
        def everything() -> str:
            return "mild"

        @server.prompt
        async def ask(ctx: Context[Any], topic: str) -> str:
            """Ask for something."""
            self.runs.append(topic)
            return f"{topic}: {await ctx.elicit('Really?', str)}"

        @server.prompt
        def brief(city: str) -> str:
            return f"the weather in {city}"

    def proxy(self, era: Any, **options: Any) -> Server[Any]:
        """The server behind a proxy that speaks this era to it."""
        return Server.from_client(Client(self.server, era=era), **options)


def fill_in(form: ElicitFormParams) -> dict[str, str]:
    """Answer a question with its first word."""
    return {"value": form.message.split()[0].rstrip("?").lower()}


#: Everything that a client can be asked.
ANSWERING: dict[str, Any] = {
    "on_elicit": fill_in,
    "on_elicit_url": lambda page: page.url == "https://example.com/x",
    "on_sample": lambda params: "sampled",
    "on_roots": [Root(uri="file:///r")],
}
