"""`omit_repeated_text`: structured content goes out without the text that repeats it, where nothing is lost by that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from gemel import CallToolResult, Client, Context, DefinitionError, Server, TextContent
from gemel.schema.base import Annotations

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
Era = Literal["2025", "2026"]

LONG = '{\n  "high": 20.0,\n  "name": "today"\n}'


@dataclass
class Day:
    name: str
    high: float


def weather(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("weather", **options)

    @server.tool
    async def day() -> Day:
        return Day("today", 20.0)

    @server.tool
    async def days() -> list[Day]:
        return [Day("today", 20.0)]

    @server.tool
    async def either(single: bool) -> Day | list[int]:
        return Day("today", 20.0) if single else [1]

    @server.tool
    async def high() -> float:
        return 20.0

    @server.tool
    async def text() -> str:
        return "{}"

    @server.tool
    async def own(first: str, marked: bool = False, failed: bool = False) -> CallToolResult:
        block = TextContent(text=first, annotations=Annotations(audience=["user"]) if marked else None)
        content = {"name": "today", "high": 20.0}
        return CallToolResult(content=[block, TextContent(text="more")], structured_content=content, is_error=failed)

    @server.tool
    async def nested(ctx: Context[Any]) -> str:
        return (await ctx.call_tool("day")).text

    return server


async def texts(server: Server[Any], era: Era, name: str, **arguments: Any) -> list[str]:
    """The texts of a result as the client gets them."""
    async with Client(server, era=era) as client:
        result = await client.call_tool(name, arguments, raise_on_error=False)
    return [block.text for block in result.content if isinstance(block, TextContent)]


@both_eras
async def test_the_text_of_an_object_is_left_out(era: Era) -> None:
    assert await texts(weather(), era, "day") == ['{"name":"today","high":20.0}']
    server = weather(omit_repeated_text=True)
    assert await texts(server, era, "day") == []
    async with Client(server, era=era) as client:
        assert (await client.call_tool("day", returns=Day)).data == Day("today", 20.0)


@both_eras
async def test_arrays_scalars_and_text_keep_it(era: Era) -> None:
    server = weather(omit_repeated_text=True)
    assert await texts(server, era, "days") == ['[{"name":"today","high":20.0}]']
    assert await texts(server, era, "high") == ["20.0"]
    assert await texts(server, era, "text") == ["{}"]
    assert await texts(server, era, "either", single=False) == ["[1]"]


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({"first": LONG}, ["more"]),
        ({"first": "20 degrees"}, ["20 degrees", "more"]),
        ({"first": '{"name":"today"}'}, ['{"name":"today"}', "more"]),
        ({"first": "{broken"}, ["{broken", "more"]),
        ({"first": LONG, "marked": True}, [LONG, "more"]),
        ({"first": LONG, "failed": True}, [LONG, "more"]),
    ],
)
@both_eras
async def test_only_plain_text_that_says_the_same(era: Era, arguments: dict[str, Any], kept: list[str]) -> None:
    assert await texts(weather(omit_repeated_text=True), era, "own", **arguments) == kept


async def test_what_a_handler_calls_keeps_its_text() -> None:
    assert await texts(weather(omit_repeated_text=True), "2026", "nested") == ['{"name":"today","high":20.0}']


@both_eras
async def test_the_server_that_clients_are_connected_to_decides(era: Era) -> None:
    outer: Server[Any] = Server("outer", omit_repeated_text=True)
    outer.mount(weather(), "inner")
    assert await texts(outer, era, "inner_day") == []
    plain: Server[Any] = Server("plain")
    plain.mount(weather(omit_repeated_text=True), "inner")
    assert await texts(plain, era, "inner_day") == ['{"name":"today","high":20.0}']
    for inner_era in ("2025", "2026"):
        proxy = Server.from_client(Client(weather(), era=inner_era), omit_repeated_text=True)
        assert await texts(proxy, era, "day") == []
        assert await texts(proxy, era, "days") == ['[{"name":"today","high":20.0}]']


async def test_a_result_is_not_changed_for_others() -> None:
    """The function may return the same object again."""
    server: Server[Any] = Server("s", omit_repeated_text=True)
    result = CallToolResult(content=[TextContent(text='{"a":1}')], structured_content={"a": 1})

    @server.tool
    async def same() -> CallToolResult:
        return result

    assert await texts(server, "2025", "same") == []
    assert len(result.content) == 1


def test_a_value_that_is_no_flag() -> None:
    with pytest.raises(DefinitionError, match="omit_repeated_text='yes' is not possible: use True or False"):
        Server("s", omit_repeated_text="yes")  # type: ignore[arg-type]  # the mistake
