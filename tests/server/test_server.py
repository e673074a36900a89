"""The server as one object: what it says of itself, what it offers as things are registered, which eras it speaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Client, ConnectFailed, Context, DefinitionError, Icon, Server
from tests.server.bare_end import BareEnd, Era
from tests.support import V2025_11, Call
from tests.wire import routes
from tests.wire.talk import Talk

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
INFO = "io.modelcontextprotocol/serverInfo"


@both_eras
async def test_it_says_who_it_is(era: Era) -> None:
    """REQM-07: in the handshake, or with each result."""
    server: Server[Any] = Server(
        "weather",
        version="1.2",
        title="Weather",
        description="For all cities",
        website_url="https://example.com",
        icons=[Icon(src="https://example.com/sun.png")],
        instructions="Ask for one city at a time.",
    )
    server.tool("x")(lambda: "x")
    async with BareEnd(server, era) as end:
        if era == "2025":
            welcome, info = end.welcome, end.welcome["serverInfo"]
        else:
            welcome = await end.ask("server/discover")
            info = welcome["_meta"][INFO]
            assert (await end.ask("tools/list"))["_meta"][INFO] == info
    assert welcome["instructions"] == "Ask for one city at a time."
    assert info == {
        "name": "weather",
        "version": "1.2",
        "title": "Weather",
        "description": "For all cities",
        "websiteUrl": "https://example.com",
        "icons": [{"src": "https://example.com/sun.png"}],
    }


async def capabilities(server: Server[Any], era: Era) -> dict[str, Any]:
    async with BareEnd(server, era) as end:
        found = end.welcome if era == "2025" else await end.ask("server/discover")
        said: dict[str, Any] = found["capabilities"]
        return said


@both_eras
async def test_features_are_always_offered_and_completion_once_there_is_some(era: Era) -> None:
    """TOOL-01, PRM-01, COMP-01, RES-01: what is registered after the handshake was negotiated in it."""
    server: Server[Any] = Server("weather", log_level=None)

    @server.prompt
    def brief(city: str) -> str:
        return city

    assert await capabilities(server, era) == {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
    }
    brief.complete("city")(lambda value: ["Oslo"])
    assert (await capabilities(server, era))["completions"] == {}
    assert "logging" in await capabilities(Server("talking"), era)


@both_eras
async def test_a_server_may_speak_one_era_only(era: Era) -> None:
    """A client of the other one is told which there are."""
    other: Era = "2025" if era == "2026" else "2026"
    server: Server[Any] = Server("pinned", eras=era)
    server.tool("x")(lambda: "x")
    async with Client(server) as client:
        assert client.era == era
        assert (await client.call_tool("x")).text == "x"
    with pytest.raises(ConnectFailed):
        async with Client(server, era=other):
            pass


@pytest.mark.parametrize("eras", [(), "2024", ("2025", "2027"), ["x"]])
def test_eras_that_there_are_not_are_told(eras: Any) -> None:
    with pytest.raises(DefinitionError, match='is not possible: use "2025", "2026", or both'):
        Server("x", eras=eras)


async def test_one_server_serves_clients_of_both_eras_at_once() -> None:
    """And keeps nothing of either."""
    server: Server[Any] = Server("both")
    server.tool("x")(lambda: "x")
    async with Client(server, era="2025") as older, Client(server, era="2026") as newer:
        assert (await older.call_tool("x")).text == (await newer.call_tool("x")).text == "x"
        server.tool("y")(lambda: "y")
        assert (await older.call_tool("y")).text == (await newer.call_tool("y")).text == "y"


async def test_what_initialize_announces_is_what_is_there_when_it_is_answered() -> None:
    server: Server[Any] = Server("late")
    async with routes.memory(server) as route:
        talk = Talk(route, "2025")

        @server.prompt
        async def brief(topic: str) -> str:
            return topic

        @brief.complete("topic")
        async def topics(value: str) -> list[str]:
            return ["weather"]

        params = {"protocolVersion": V2025_11, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        capabilities = (await talk.ask("initialize", **params))["result"]["capabilities"]
    assert "completions" in capabilities


async def test_a_second_initialize_ends_calls_as_cancelled_and_keeps_the_session() -> None:
    """As gateways send it: https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle."""
    server: Server[Any] = Server("again")
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @server.tool
    async def count(ctx: Context[Any]) -> int:
        return await ctx.session_state.update("count", lambda now: now + 1, default=0)

    async with BareEnd(server, "2025") as end:
        await end.call_tool("count")
        call = end.begin("tools/call", {"name": "wait"})
        assert isinstance(call, Call)
        waiting = asyncio.create_task(end.session.answer(call))
        await begun.wait()
        info = {"name": "gateway", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        assert (await end.ask("initialize", hello))["protocolVersion"] == "2025-06-18"
        assert await waiting is None
        assert cancelled.is_set()
        await end.tell("notifications/initialized")
        assert (await end.call_tool("count"))["content"][0]["text"] == "2"


async def test_it_lists_what_callers_see() -> None:
    server: Server[Any] = Server("weather", page_size=1)

    @server.tool
    def forecast(city: str) -> str:
        return city

    @server.tool
    def stations() -> list[str]:
        return []

    @server.tool
    def secret() -> str:
        return ""

    server.disable("secret")

    @server.resource("weather://oslo")
    def oslo() -> str:
        return ""

    @server.resource("weather://{city}/{day}")
    def of_day(city: str, day: str) -> str:
        return city + day

    @server.prompt
    def packing(city: str) -> str:
        return city

    assert [tool.name for tool in await server.list_tools()] == ["forecast", "stations"]
    assert [resource.uri for resource in await server.list_resources()] == ["weather://oslo"]
    assert [one.uri_template for one in await server.list_resource_templates()] == ["weather://{city}/{day}"]
    assert [prompt.name for prompt in await server.list_prompts()] == ["packing"]


async def test_a_server_without_anything_lists_nothing() -> None:
    server: Server[Any] = Server("empty")
    assert await server.list_tools() == []
    assert await server.list_prompts() == []
    assert await server.list_resources() == []
    assert await server.list_resource_templates() == []
