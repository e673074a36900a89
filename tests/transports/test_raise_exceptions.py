"""A client of a server in this process that raises what handlers raise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Client, Context, DefinitionError, InvalidParams, PeerError, Server, ToolCallError, ToolError

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Crashed(Exception):
    """What a handler raises by mistake."""


def a_server() -> Server[Any]:
    server: Server[Any] = Server("crashes")

    @server.tool
    async def crash() -> str:
        raise Crashed("in a coroutine")

    @server.tool
    def crash_in_thread() -> str:
        raise Crashed("in a thread")

    @server.tool
    async def reject() -> str:
        raise ToolError("rejected")

    @server.tool
    async def refuse() -> str:
        raise InvalidParams("refused")

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.prompt
    async def brief() -> str:
        raise Crashed("in a prompt")

    @server.request("acme/crash")
    async def custom(ctx: Context[Any], params: Any) -> None:
        raise Crashed("in a method")

    return server


@both_eras
async def test_an_exception_of_a_handler_is_raised_by_the_call(era: Any) -> None:
    async with Client(a_server(), era=era, raise_exceptions=True) as client:
        for name, text in (("crash", "in a coroutine"), ("crash_in_thread", "in a thread")):
            with pytest.raises(Crashed, match=text):
                await client.call_tool(name)
        with pytest.raises(Crashed, match="in a prompt"):
            await client.get_prompt("brief")
        with pytest.raises(Crashed, match="in a method"):
            await client.request("acme/crash")
        results = await asyncio.gather(*(client.call_tool(name) for name in ("crash", "fine")), return_exceptions=True)
        assert isinstance(results[0], Crashed)
        assert results[1].text == "fine"  # type: ignore[union-attr]  # it is a result


@both_eras
async def test_what_a_server_answers_on_purpose_is_answered_as_always(era: Any) -> None:
    async with Client(a_server(), era=era, raise_exceptions=True) as client:
        with pytest.raises(ToolCallError, match="rejected"):
            await client.call_tool("reject")
        with pytest.raises(PeerError, match="refused"):
            await client.call_tool("refuse")


@both_eras
async def test_without_it_clients_learn_nothing_of_the_exception(era: Any) -> None:
    async with Client(a_server(), era=era) as client:
        with pytest.raises(ToolCallError, match="failed unexpectedly"):
            await client.call_tool("crash")
        with pytest.raises(PeerError, match="Internal server error"):
            await client.get_prompt("brief")


def test_it_is_for_servers_in_this_process() -> None:
    with pytest.raises(DefinitionError, match="has no option raise_exceptions"):
        Client("http://127.0.0.1/mcp", raise_exceptions=True)
