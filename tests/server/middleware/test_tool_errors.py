"""ToolError outside of a tool: in middleware, dependencies and connection lifespans, whoever made the request.

`tests/wire/scenarios/failures.txt` has what clients get on every transport.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

import pytest

from gemel import AccessLog, CallNext, CallToolResult, Client, Context, Depends, PeerError, Server, Tasks, ToolError

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
DENIED = "Ask an admin for access"


async def deny(ctx: Context[Any], call_next: CallNext) -> Any:
    if ctx.decoded_params.get("name") == "locked" or ctx.method == "resources/read":
        raise ToolError(DENIED)
    return await call_next(ctx)


def guarded(*middleware: Any) -> Server[Any]:
    server: Server[Any] = Server("guarded", middleware=[*middleware, deny])

    @server.tool
    async def locked() -> str:
        return "open"

    @server.tool
    async def use(ctx: Context[Any]) -> str:
        try:
            await ctx.call_tool("locked")
        except ToolError as exc:
            return f"refused: {exc}"
        return "used"

    @server.tool
    async def read(ctx: Context[Any]) -> str:
        return str(await ctx.read_resource("note://1"))

    @server.resource("note://{number}")
    async def note(number: int) -> str:
        return "a note"

    return server


@both_eras
async def test_middleware_outside_sees_the_result_of_a_call_and_the_error_of_another_request(
    era: Literal["2025", "2026"], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            seen.append(result)
        return result

    caplog.set_level(logging.INFO, "gemel.access")
    async with Client(guarded(AccessLog(), look), era=era) as client:
        result = await client.call_tool("locked", raise_on_error=False)
        with pytest.raises(PeerError, match=DENIED):
            await client.read_resource("note://1")
    assert result.is_error
    assert result.text == DENIED
    assert isinstance(seen[0], CallToolResult)
    assert seen[0].is_error
    outcomes = [vars(record)["mcp_outcome"] for record in caplog.records if vars(record)["mcp_target"] is not None]
    assert outcomes == ["failed", "error -32603"]


@both_eras
async def test_a_handler_that_made_the_request_can_catch_it(era: Literal["2025", "2026"]) -> None:
    async with Client(guarded(), era=era) as client:
        assert (await client.call_tool("use")).text == f"refused: {DENIED}"
        result = await client.call_tool("read", raise_on_error=False)
    assert result.is_error
    assert result.text == DENIED


@both_eras
async def test_a_dependency_reports_to_the_model_and_to_the_caller_of_a_prompt(era: Literal["2025", "2026"]) -> None:
    server: Server[Any] = Server("depends")

    async def account() -> str:
        raise ToolError(DENIED)

    @server.tool
    async def balance(account: Annotated[str, Depends(account)]) -> str:
        return account

    @server.prompt
    async def brief(account: Annotated[str, Depends(account)]) -> str:
        return account

    async with Client(server, era=era) as client:
        result = await client.call_tool("balance", raise_on_error=False)
        with pytest.raises(PeerError, match=DENIED):
            await client.get_prompt("brief")
    assert result.is_error
    assert result.text == DENIED


@both_eras
async def test_a_task_ends_with_it_as_its_result(era: Literal["2025", "2026"]) -> None:
    async def only_in_the_task(ctx: Context[Any], call_next: CallNext) -> Any:
        calls.append(ctx.method)
        if ctx.method == "tools/call" and calls.count("tools/call") == 2:
            raise ToolError(DENIED)
        return await call_next(ctx)

    calls: list[str] = []
    server: Server[Any] = Server("tasks", middleware=[only_in_the_task])
    server.add_extension(Tasks(poll_interval=0.01))

    @server.tool(task=True)
    async def job() -> str:
        return "done"

    async with Client(server, era=era) as client:
        task = await client.call_tool("job", task=True, raise_on_error=False)
        result = await task.result()
    assert result.is_error
    assert result.text == DENIED
