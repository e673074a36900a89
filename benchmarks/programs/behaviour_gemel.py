"""The server of `benchmarks.behaviour`, by Gemel."""

import asyncio
from typing import Any, cast

from gemel import Context, Server

server = Server("behaviour")


@server.tool
def wrong() -> int:
    """Return something else than it says."""
    return cast(Any, "x")  # type: ignore[no-any-return]  # a wrong type, on purpose


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user."""
    return f"answered {await ctx.elicit('Go on?', bool)}"


@server.tool
def grow() -> str:
    """Add a tool."""
    server.tool("late")(lambda: None)
    return "grown"


@server.tool
async def slow() -> str:
    """Answer late."""
    await asyncio.sleep(0.3)
    return "done"


if __name__ == "__main__":
    server.run()
