"""NaN and infinity have no form in JSON: they are an error where they are written, never null at the peer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gemel import (
    CallError,
    CallToolResult,
    Client,
    Context,
    DefinitionError,
    GemelError,
    ProtocolError,
    Server,
    TextContent,
)
from gemel.values.encoding import encode_value

VALUES = [math.nan, math.inf, -math.inf]


@dataclass
class Reading:
    value: float


def make_server(value: float, received: list[Any]) -> Server[Any]:
    server: Server[Any] = Server("numbers")

    @server.tool
    async def take(x: Any = None) -> None:
        received.append(x)

    @server.tool
    async def untyped() -> Any:
        return {"deep": [{"x": value}]}

    @server.tool
    async def block_meta() -> TextContent:
        return TextContent(text="x", meta={"com.example/x": value})

    @server.tool
    async def result_meta() -> CallToolResult[Any]:
        return CallToolResult(content=[], meta={"com.example/x": value})

    @server.tool
    async def error_data() -> None:
        raise ProtocolError("no", {"x": value}, code=5)

    @server.tool
    async def log(ctx: Context[Any]) -> None:
        await ctx.info({"x": value})

    @server.tool
    async def step(ctx: Context[Any]) -> None:
        await ctx.step(lambda: {"x": value})

    @server.request("acme/get")
    async def get(ctx: Context[Any], params: dict[str, Any]) -> dict[str, Any]:
        return {"x": value}

    return server


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_what_a_server_writes(era: Any, value: float) -> None:
    async with Client(make_server(value, []), era=era) as client:
        await client.set_log_level("debug")
        for tool in ("untyped", "block_meta", "result_meta", "error_data", "log", "step"):
            with pytest.raises(CallError):
                await client.call_tool(tool)
        with pytest.raises(CallError):
            await client.request("acme/get")


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_what_a_client_writes(era: Any, value: float) -> None:
    received: list[Any] = []
    async with Client(make_server(value, received), era=era) as client:
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: client.call_tool("take", {"x": value}),
            lambda: client.call_tool("take", {"x": [{"y": (value,)}]}),
            lambda: client.call_tool("take", {"x": Reading(value)}),
            lambda: client.call_tool("take", meta={"com.example/x": value}),
            lambda: client.request("acme/get", {"x": value}),
            lambda: client.notify("acme/note", {"x": value}),
        ]
        for call in calls:
            with pytest.raises(GemelError, match=r"(NaN|infinity) at .* has no JSON form"):
                await call()
        await client.call_tool("take", {"x": None})
        assert client.session is not None
        assert not client.session.connection.outgoing
    assert received == [None]


async def test_a_listing_is_refused_when_it_is_registered() -> None:
    with pytest.raises(DefinitionError, match=r"(NaN|infinity) at .* has no JSON form"):
        Server("numbers").tool(lambda: None, name="x", meta={"com.example/x": math.nan})


def test_null_and_text_that_holds_the_word_are_fine() -> None:
    assert (
        encode_value({"a": None, "b": "null", "c": [1.5, Reading(2)]}) == b'{"a":null,"b":"null","c":[1.5,{"value":2}]}'
    )
