"""The server of `benchmarks.behaviour`, by FastMCP."""

import asyncio
from typing import Any, cast

from fastmcp import Context, FastMCP

server = FastMCP("behaviour")


@server.tool
def wrong() -> int:
    """Return something else than it says."""
    return cast(Any, "x")


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user."""
    return f"answered {(await ctx.elicit('Go on?', bool)).data}"


@server.tool
def grow() -> str:
    """Add a tool."""
    server.tool(slow, name="late")
    return "grown"


@server.tool
async def slow() -> str:
    """Answer late."""
    await asyncio.sleep(0.3)
    return "done"


if __name__ == "__main__":
    server.run("stdio", show_banner=False)
