"""A server whose tools become tasks, for foreign clients: `tasks_server.py stdio|http PORT [BACKEND]`."""

import asyncio
import sys
from typing import Any

from gemel import Context, Server, Tasks, ToolError

transport, port, *backends = sys.argv[1:]
server: Server[Any] = Server("jobs", backend=backends[0]) if backends else Server("jobs")
server.add_extension(Tasks(poll_interval=0.05))


@server.tool(task=True)
async def add(a: int, b: int, ctx: Context[Any]) -> int:
    """Add two numbers."""
    await ctx.report_progress(1, 1, "adding")
    return a + b


@server.tool(task=True)
async def greet(ctx: Context[Any]) -> str:
    """Ask for a name, and greet."""
    return f"Hello, {await ctx.elicit('Your name?', str)}!"


@server.tool(task=True)
async def hang() -> str:
    """Run until it is cancelled."""
    await asyncio.Event().wait()
    return "never"


@server.tool(task="required")
async def fail() -> str:
    """Report an error."""
    raise ToolError("no luck")


if transport == "http":
    server.run("http", port=int(port))
else:
    server.run()
