"""A server of the official Python SDK whose tools become tasks of 2025-11-25: `server_tasks_python_v1.py stdio|http PORT`."""

import sys
from typing import Any

import anyio
import mcp.types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

server: Server[Any, Any] = Server("official-jobs", version="1")
server.experimental.enable_tasks()

_options = server.create_initialization_options


def create_options(*args: Any, **options: Any) -> Any:
    """The options of the server, which declare what it leaves out: that tools can be called as tasks."""
    made = _options(*args, **options)
    tasks = made.capabilities.tasks
    assert tasks is not None
    assert tasks.requests is not None
    assert tasks.requests.tools is not None
    tasks.requests.tools.call = types.TasksCallCapability()
    return made


server.create_initialization_options = create_options
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def text(value: str, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)], isError=failed)


@server.list_tools()
async def tools() -> list[types.Tool]:
    execution = types.ToolExecution(taskSupport="optional")
    schema = {"type": "object"}
    names = ("add", "greet", "hang", "fail", "break")
    return [types.Tool(name=name, inputSchema=schema, execution=execution) for name in names]


@server.call_tool()
async def call(name: str, arguments: dict[str, Any]) -> Any:
    async def work(task: Any) -> types.CallToolResult:
        if name == "add":
            await task.update_status("adding")
            return text(str(arguments["a"] + arguments["b"]))
        if name == "greet":
            answer = await task.elicit(message="Your name?", requestedSchema=FORM)
            return text(f"Hello, {answer.content['name']}!")
        if name == "hang":
            await anyio.sleep_forever()
        if name == "break":
            raise RuntimeError("out of order")
        return text("no luck", failed=True)

    return await server.request_context.experimental.run_task(work)


async def main() -> None:
    if sys.argv[1] == "stdio":
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return
    manager = StreamableHTTPSessionManager(server)
    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lambda _: manager.run())
    await uvicorn.Server(uvicorn.Config(app, port=int(sys.argv[2]), log_level="warning")).serve()


anyio.run(main)
