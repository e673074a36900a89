"""An error of a client that is used inside a handler is an internal failure: its text stays on the server."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gemel import Client, PeerError, Server, ToolCallError, ToolError
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
