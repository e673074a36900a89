"""The official Python SDK's client uses tasks of 2025-11-25: `client_tasks_python_v1.py URL | COMMAND…`; prints JSON."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import mcp.types as types
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def answer(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=dict.fromkeys(params.requestedSchema["properties"], "Ada"))


async def outcome(session: ClientSession, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool as a task, and follow it to its end."""
    tasks = session.experimental
    created = (await tasks.call_tool_as_task(name, arguments, ttl=60_000)).task
    statuses: list[str] = []
    async for state in tasks.poll_task(created.taskId):
        statuses.append(state.status)
        if state.status == "input_required":
            await tasks.get_task_result(created.taskId, types.CallToolResult)
    result = await tasks.get_task_result(created.taskId, types.CallToolResult)
    return {
        "created": created.status,
        "ttl": created.ttl,
        "statuses": statuses,
        "end": statuses[-1],
        "text": result.content[0].text,
        "error": result.isError,
    }


async def cancelled(session: ClientSession) -> dict[str, Any]:
    """Cancel a task while it runs, and once more."""
    tasks = session.experimental
    task_id = (await tasks.call_tool_as_task("hang")).task.taskId
    status = (await tasks.cancel_task(task_id)).status
    later = (await tasks.get_task(task_id)).status
    codes: list[int] = []
    for again in (tasks.cancel_task(task_id), tasks.get_task_result(task_id, types.CallToolResult)):
        try:
            await again
        except McpError as exc:
            codes.append(exc.error.code)
    return {"status": status, "later": later, "codes": codes}


async def main(target: list[str]) -> None:
    async with AsyncExitStack() as stack:
        if target[0].startswith("http"):
            read, write, _ = await stack.enter_async_context(streamablehttp_client(target[0]))
        else:
            parameters = StdioServerParameters(command=target[0], args=target[1:])
            read, write = await stack.enter_async_context(stdio_client(parameters))
        session = await stack.enter_async_context(ClientSession(read, write, elicitation_callback=answer))
        await session.initialize()
        report: dict[str, Any] = {
            "support": {tool.name: tool.execution.taskSupport for tool in (await session.list_tools()).tools},
            "add": await outcome(session, "add", {"a": 2, "b": 3}),
            "greet": await outcome(session, "greet", {}),
            "fail": await outcome(session, "fail", {}),
            "hang": await cancelled(session),
        }
    print(json.dumps(report))


asyncio.run(main(sys.argv[1:]))
