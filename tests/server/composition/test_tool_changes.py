"""Tools of another server in other words: what callers see and what the server gets, mounted, proxied and as middleware."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from gemel import ArgumentChange, Client, Context, DefinitionError, PeerError, Server, ToolChange, ToolChanges
from tests.serving import over_http

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def weather() -> Server[Any]:
    server: Server[Any] = Server("weather")

    @server.tool
    async def forecast(
        city: Annotated[str, "name of the city"], unit: str, days: int = 3, big: int = 0
    ) -> dict[str, str | int]:
        """The weather."""
        return {"city": city, "unit": unit, "days": days, "big": big}

    @server.tool
    async def reset() -> str:
        return "reset"

    @server.tool
    async def book(ctx: Context, city: str) -> str:
        return f"{city} on {await ctx.elicit('Which day?', str)}"

    return server


CHANGES: dict[str, ToolChange | None] = {
    "forecast": ToolChange(
        name="tomorrow",
        title="Tomorrow",
        description="The weather of tomorrow.",
        annotations={"read_only_hint": True},
        arguments={
            "city": ArgumentChange(name="place", description="where"),
            "unit": ArgumentChange(value="C"),
            "days": ArgumentChange(value=1),
        },
    ),
    "reset": None,
    "book": ToolChange(arguments={"city": ArgumentChange(name="place")}),
}


def mounted() -> Server[Any]:
    host: Server[Any] = Server("host")
    host.mount(weather(), "w", tools=CHANGES)
    return host


def mounted_plainly() -> Server[Any]:
    host: Server[Any] = Server("host")
    host.mount(weather(), tools=CHANGES)
    return host


def proxied() -> Server[Any]:
    host: Server[Any] = Server("host")
    host.mount(Server.from_client(weather()), "w", tools=CHANGES)
    return host


def in_middleware() -> Server[Any]:
    server = weather()
    server.add_middleware(ToolChanges(CHANGES))
    return server


def proxy_with_middleware() -> Server[Any]:
    server = Server.from_client(weather())
    server.add_middleware(ToolChanges(CHANGES))
    return server


every_way = pytest.mark.parametrize(
    ("make", "prefix"),
    [(mounted, "w_"), (mounted_plainly, ""), (proxied, "w_"), (in_middleware, ""), (proxy_with_middleware, "")],
)


@both_eras
@every_way
async def test_callers_see_the_new_words(make: Any, prefix: str, era: Any) -> None:
    async with Client(make(), era=era) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    assert list(tools) == [f"{prefix}tomorrow", f"{prefix}book"]
    tool = tools[f"{prefix}tomorrow"]
    assert (tool.title, tool.description) == ("Tomorrow", "The weather of tomorrow.")
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint
    assert list(tool.input_schema["properties"]) == ["place", "big"]
    assert tool.input_schema["properties"]["place"]["description"] == "where"
    assert tool.input_schema["required"] == ["place"]


@both_eras
@every_way
async def test_the_server_gets_its_own_words(make: Any, prefix: str, era: Any) -> None:
    big = 2**53 + 1
    async with Client(make(), era=era, on_elicit=lambda form: {"value": "Monday"}) as client:
        result = await client.call_tool(f"{prefix}tomorrow", {"place": "Oslo", "big": big})
        assert result.data == {"city": "Oslo", "unit": "C", "days": 1, "big": big}
        assert (await client.call_tool(f"{prefix}book", {"place": "Oslo"})).text == "Oslo on Monday"


@both_eras
@every_way
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("reset", {}, "Unknown tool"),
        ("forecast", {"city": "Oslo", "unit": "C"}, "Unknown tool"),
        ("tomorrow", {"place": "Oslo", "unit": "F"}, "unit: unknown argument"),
        ("tomorrow", {"city": "Oslo"}, "city: unknown argument"),
    ],
)
async def test_what_is_hidden_is_not_there(
    make: Any, prefix: str, era: Any, name: str, arguments: dict[str, Any], words: str
) -> None:
    async with Client(make(), era=era) as client:
        with pytest.raises(PeerError, match=words):
            await client.call_tool(prefix + name, arguments)


async def test_over_http_the_name_in_the_header_is_the_one_that_the_client_used() -> None:
    """HDR-03: a middleware that hands on another name breaks nothing."""
    async with over_http(in_middleware()) as url, Client(url) as client:
        assert (await client.call_tool("tomorrow", {"place": "Oslo"})).data["city"] == "Oslo"


async def test_a_name_that_somebody_else_has_is_taken_over() -> None:
    server = weather()
    server.add_middleware(
        ToolChanges({"forecast": ToolChange(name="reset", arguments={"unit": ArgumentChange(value="C")})})
    )
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["reset", "book"]
        assert (await client.call_tool("reset", {"city": "Oslo"})).data["city"] == "Oslo"


async def test_a_mistyped_name_is_told_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    host: Server[Any] = Server("host")
    host.mount(weather(), "w", tools={"forcast": None})
    async with Client(host) as client:
        assert len(await client.list_tools()) == 3
        await client.list_tools()
    told = [record.getMessage() for record in caplog.records if "to be changed" in record.getMessage()]
    assert told == ["tools: there is no forcast to be changed; there are book, forecast, reset"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a": ToolChange(name="b"), "b": ToolChange()}, "can't both be called 'b'"),
        ({"a": "b"}, "must be a ToolChange, or None to hide it"),
        ({"a": ToolChange(annotations={"read_only": True})}, "did you mean"),
        (
            {"a": ToolChange(arguments={"x": ArgumentChange(name="z"), "y": ArgumentChange(name="z")})},
            "can't have one name",
        ),
    ],
)
def test_what_cannot_be_is_told_at_once(changes: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Server("host").mount(weather(), tools=changes)
