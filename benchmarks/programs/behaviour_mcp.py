"""The server of `benchmarks.behaviour`, by the official SDK."""

import asyncio
from typing import Any, cast

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

server = MCPServer("behaviour", log_level="CRITICAL")


class Answer(BaseModel):
    """What the user is asked."""

    value: bool


@server.tool()
def wrong() -> int:
    """Return something else than it says."""
    return cast(Any, "x")


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user."""
    return f"answered {(await ctx.elicit('Go on?', Answer)).data.value}"


@server.tool()
def grow() -> str:
    """Add a tool."""
    server.add_tool(slow, name="late")
    return "grown"


@server.tool()
async def slow() -> str:
    """Answer late."""
    await asyncio.sleep(0.3)
    return "done"


if __name__ == "__main__":
    server.run("stdio")
