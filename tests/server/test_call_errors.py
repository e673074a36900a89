"""An error of a client that is used inside a handler is an internal failure: its text stays on the server."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from gemel import Client, Context, PeerError, Server, ToolCallError, ToolError
from gemel.sync import Client as SyncClient

inner: Server[Any] = Server("inner")


@inner.tool
async def fail() -> str:
    raise ToolError("the password is secret")


@inner.request("acme/fail")
async def refuse(ctx: Any, params: Any) -> Any:
    raise ToolError("the password is secret")


async def use_tool() -> str:
    async with Client(inner) as client:
        return (await client.call_tool("fail")).text


async def use_method() -> str:
    async with Client(inner) as client:
        return str(await client.request("acme/fail", {}))


def use_tool_sync() -> str:
    with SyncClient(inner) as client:
        return client.call_tool("fail").text


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("function", [use_tool, use_method, use_tool_sync])
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
async def test_the_text_of_a_call_error_never_reaches_the_caller(
    era: Literal["2025", "2026"], function: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server: Server[Any] = Server("outer")
    server.tool("it")(function)
    server.prompt("it")(function)
    server.resource("a://b")(function)
    async with Client(server, era=era) as client:
        use: Any = {"tool": client.call_tool, "prompt": client.get_prompt, "resource": client.read_resource}[kind]
        with pytest.raises((ToolCallError, PeerError)) as raised:
            await use("a://b" if kind == "resource" else "it")
    assert "secret" not in str(raised.value)
    assert "secret" in caplog.text


async def _raise(error: Exception) -> None:
    raise error


async def _in_a_group(*errors: Exception) -> str:
    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(_raise(error))
    return ""


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_tool_error_in_a_task_group_is_read_by_the_model(era: Literal["2025", "2026"]) -> None:
    server: Server[Any] = Server("outer")

    @server.tool
    async def one() -> str:
        return await _in_a_group(ToolError("no tea"))

    @server.tool
    async def two() -> str:
        return await _in_a_group(ToolError("no tea"), ToolError("no milk"))

    @server.tool
    async def nested() -> str:
        async with asyncio.TaskGroup():
            return await _in_a_group(ToolError("no tea"))

    @server.tool
    async def broken() -> str:
        return await _in_a_group(ToolError("no tea"), RuntimeError("secret"))

    async with Client(server, era=era) as client:
        results = [await client.call_tool(name, raise_on_error=False) for name in ("one", "two", "nested", "broken")]
    assert all(result.is_error for result in results)
    assert [result.text for result in results[:3]] == ["no tea", "no tea; no milk", "no tea"]
    assert "tea" not in results[3].text
    assert "secret" not in results[3].text


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_tool_error_in_a_task_group_of_a_middleware_or_a_prompt(era: Literal["2025", "2026"]) -> None:
    async def deny(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            await _in_a_group(ToolError("not today"))
        return await call_next(ctx)

    server: Server[Any] = Server("outer", middleware=[deny])

    @server.tool
    async def hello() -> str:
        return "hello"

    @server.prompt
    async def greet() -> str:
        return await _in_a_group(ToolError("nobody is here"))

    async with Client(server, era=era) as client:
        assert (await client.call_tool("hello", raise_on_error=False)).text == "not today"
        with pytest.raises(PeerError, match="nobody is here"):
            await client.get_prompt("greet")
