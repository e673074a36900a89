"""What goes back to callers names things as they call them, whatever stands between them and the server that says it."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import msgspec
import pytest

from gemel import ArgumentChange, Client, Context, Overloaded, PeerError, Server, ToolCallError, ToolChange, ToolChanges
from tests.support import V2025_06
from tests.wire.talk import Refusal, talking

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}


def weather() -> Server[Any]:
    server: Server[Any] = Server("weather")

    @server.tool
    async def forecast(city: str, unit: str, days: Annotated[int, msgspec.Meta(ge=1)] = 3) -> str:
        return f"{city} {unit} {days}"

    @server.tool(input_schema=SCHEMA)
    async def by_schema(given: dict[str, Any]) -> str:
        return str(given["city"])

    @server.tool
    async def secret() -> str:
        return "secret"

    @server.tool
    async def crash() -> str:
        raise ValueError("inside")

    @server.tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    @server.tool(concurrency=1, waiting=0)
    async def single(ctx: Context[Any]) -> None:
        await ctx.report_progress(1)
        await asyncio.Event().wait()

    @server.tool
    async def own(ctx: Context[Any]) -> str:
        return (await ctx.call_tool("forcast", {})).text

    @server.prompt
    def brief(days: int) -> str:
        return "brief"

    brief.complete("days")(lambda value: ["1", "2"])

    @server.resource("city://{number}")
    def city(number: int) -> str:
        return "city"

    return server


def changes(unit: Any = "C") -> dict[str, ToolChange | None]:
    arguments = {"city": ArgumentChange(name="place"), "unit": ArgumentChange(value=unit)}
    return {
        "forecast": ToolChange(name="tomorrow", arguments=arguments),
        "by_schema": ToolChange(name="checked", arguments=arguments),
        "secret": None,
    }


def mounted(unit: Any = "C") -> Server[Any]:
    host: Server[Any] = Server("host")
    host.tool("lonely")(lambda: "host")
    host.mount(weather(), "w", tools=changes(unit))
    return host


def mounted_plainly(unit: Any = "C") -> Server[Any]:
    host: Server[Any] = Server("host")
    host.mount(weather(), tools=changes(unit))
    return host


def mounted_twice(unit: Any = "C") -> Server[Any]:
    host: Server[Any] = Server("host")
    between = {"w_tomorrow": ToolChange(name="w_next", arguments={"place": ArgumentChange(name="town")})}
    host.mount(mounted(unit), "far", tools=between)
    return host


def in_middleware(unit: Any = "C") -> Server[Any]:
    server = weather()
    server.add_middleware(ToolChanges(changes(unit)))
    return server


def mounted_with_middleware(unit: Any = "C") -> Server[Any]:
    host: Server[Any] = Server("host")
    host.mount(in_middleware(unit), "w")
    return host


#: How a server is made, the prefix of its names, and what the tool `forecast` and its argument `city` are called.
every_way = pytest.mark.parametrize(
    ("make", "prefix", "tool", "place"),
    [
        (mounted, "w_", "w_tomorrow", "place"),
        (mounted_plainly, "", "tomorrow", "place"),
        (mounted_twice, "far_w_", "far_w_next", "town"),
        (in_middleware, "", "tomorrow", "place"),
        (mounted_with_middleware, "w_", "w_tomorrow", "place"),
    ],
)


async def failure(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments, raise_on_error=False)
    assert result.is_error
    return result.text


async def refusal(client: Client, name: str) -> str:
    with pytest.raises(PeerError) as caught:
        await client.call_tool(name)
    return caught.value.message


@both_eras
@every_way
async def test_arguments_that_do_not_fit(make: Any, prefix: str, tool: str, place: str, era: Any) -> None:
    async with Client(make(), era=era) as client:
        assert await failure(client, tool, days=0) == (
            f"Invalid arguments for tool {tool!r}: {place}: missing (required string); days: expected integer >= 1, got integer 0"
        )
        assert await failure(client, tool, **{place: 5}) == (
            f"Invalid arguments for tool {tool!r}: {place}: expected string, got integer 5"
        )
        assert await failure(client, tool, **{place: "Oslo", place + "s": 5}) == (
            f'Invalid arguments for tool {tool!r}: {place}s: unknown argument; did you mean "{place}"?'
        )
        assert await failure(client, tool, **{place: "Oslo", "x": 5}) == (
            f"Invalid arguments for tool {tool!r}: x: unknown argument; known: {place}, days"
        )


@both_eras
@every_way
async def test_arguments_that_a_schema_of_the_authors_own_refuses(
    make: Any, prefix: str, tool: str, place: str, era: Any
) -> None:
    name = f"{prefix}checked"
    async with Client(make(), era=era) as client:
        assert (await client.call_tool(name, {"place": "Oslo"})).text == "Oslo"
        assert await failure(client, name) == f'Invalid arguments for tool {name!r}: "place" is a required property'
        assert (await failure(client, name, place=5)).startswith(f"Invalid arguments for tool {name!r}: place: ")
        assert "'x' was unexpected" in await failure(client, name, place="Oslo", x=1)


@both_eras
@every_way
async def test_an_argument_that_is_always_sent_and_does_not_fit_is_the_authors_mistake(
    make: Any, prefix: str, tool: str, place: str, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(make(unit=5), era=era) as client:
        for name, given in ((tool, place), (f"{prefix}checked", "place")):
            caplog.clear()
            assert await failure(client, name, **{given: "Oslo"}) == (
                f"Tool {name!r} failed unexpectedly. The server's log says why."
            )
            (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
            assert "an argument that is always sent doesn't fit: unit" in record.getMessage()
            assert record.exc_info is None
            assert "unit" not in await failure(client, name)  # what is the caller's to correct comes first


async def test_older_revisions_say_it_as_an_error() -> None:
    async with talking(mounted(), "2025", revision=V2025_06) as end:
        with pytest.raises(Refusal, match="Invalid arguments for tool 'w_tomorrow': place: missing"):
            await end.result("tools/call", name="w_tomorrow", arguments={})


@both_eras
@every_way
async def test_an_unknown_tool_and_the_one_that_was_meant(
    make: Any, prefix: str, tool: str, place: str, era: Any
) -> None:
    async with Client(make(), era=era) as client:
        mistyped = tool[:-1]
        assert await refusal(client, mistyped) == f"Unknown tool: {mistyped}. Did you mean {tool!r}?"
        assert await refusal(client, f"{prefix}zzzz") == f"Unknown tool: {prefix}zzzz"
        assert await refusal(client, f"{prefix}secre") == f"Unknown tool: {prefix}secre"  # what is hidden is no hint
        assert await refusal(client, f"{prefix}secret") == f"Unknown tool: {prefix}secret"


@both_eras
async def test_another_word_is_not_suggested(era: Any) -> None:
    """A model would call the tool that does the opposite."""
    server: Server[Any] = Server("games")
    server.tool(name="lend_game")(lambda: None)
    async with Client(server, era=era) as client:
        assert await refusal(client, "return_game") == "Unknown tool: return_game"
        assert await refusal(client, "lend_gmae") == "Unknown tool: lend_gmae. Did you mean 'lend_game'?"


@both_eras
async def test_a_prefix_that_was_forgotten_is_part_of_what_was_meant(era: Any) -> None:
    async with Client(mounted(), era=era) as client:
        assert await refusal(client, "tomorrow") == "Unknown tool: tomorrow. Did you mean 'w_tomorrow'?"
        assert await refusal(client, "lonly") == "Unknown tool: lonly. Did you mean 'lonely'?"
        assert await refusal(client, "secret") == "Unknown tool: secret"
        with pytest.raises(PeerError, match=r"^Unknown prompt: brief\. Did you mean 'w_brief'\? "):
            await client.get_prompt("brief")
    async with Client(mounted_with_middleware(), era=era) as client:
        assert await refusal(client, "tomorrow") == "Unknown tool: tomorrow. Did you mean 'w_tomorrow'?"


@both_eras
@every_way
async def test_prompts_and_resources(make: Any, prefix: str, tool: str, place: str, era: Any) -> None:
    scheme = "".join(f"{part}+" for part in reversed(prefix.split("_")) if part)
    if make is mounted_twice:
        scheme = "far+w+"
    async with Client(make(), era=era) as client:
        with pytest.raises(PeerError, match=rf"^Unknown prompt: {prefix}brif\. Did you mean '{prefix}brief'\? "):
            await client.get_prompt(f"{prefix}brif")
        with pytest.raises(PeerError, match=f"^Invalid arguments for prompt '{prefix}brief': days: missing"):
            await client.get_prompt(f"{prefix}brief")
        with pytest.raises(PeerError) as caught:
            await client.read_resource(f"{scheme}city://x")
        assert caught.value.message.startswith(f"Invalid values for resource '{scheme}city://{{number}}': number: ")
        with pytest.raises(PeerError, match=f"^Unknown prompt: {prefix}other "):
            await client.complete(prompt=f"{prefix}other", argument="x")


@both_eras
@every_way
async def test_tools_that_fail_by_themselves(make: Any, prefix: str, tool: str, place: str, era: Any) -> None:
    async with Client(make(), era=era) as client:
        assert await failure(client, f"{prefix}crash") == (
            f"Tool '{prefix}crash' failed unexpectedly. The server's log says why."
        )
        assert (await failure(client, f"{prefix}slow")).startswith(f"Tool '{prefix}slow' did not finish within ")
        began = asyncio.Event()
        first = asyncio.create_task(client.call_tool(f"{prefix}single", on_progress=lambda params: began.set()))
        await began.wait()
        with pytest.raises(PeerError) as caught:
            await client.call_tool(f"{prefix}single")
        assert caught.value.code == Overloaded.code
        assert caught.value.message == f"Tool '{prefix}single' is busy: 1 at once is its limit"
        first.cancel()
        await asyncio.wait([first])


@both_eras
@pytest.mark.parametrize("make", [mounted, mounted_twice])
async def test_what_a_handler_asks_of_its_own_server_it_asks_by_its_own_names(make: Any, era: Any) -> None:
    prefix = "far_w_" if make is mounted_twice else "w_"
    async with Client(make(), era=era) as client:
        with pytest.raises(ToolCallError, match=r"^Unknown tool: forcast\. Did you mean 'forecast'\?$"):
            await client.call_tool(f"{prefix}own")
