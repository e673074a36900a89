"""A server with a thousand tools, and one that makes ten thousand messages."""

from __future__ import annotations

from gemel import Context, Server

server = Server("many", version="1")


@server.tool
async def flood(ctx: Context, count: int = 1000) -> str:
    """Send log messages as fast as they go."""
    for number in range(count):
        await ctx.log("info", f"drop {number} " + "." * 100)
    return f"{count} drops"


def tool(city: str, days: int = 1) -> str:
    """One of many tools; it takes a city and a number of days."""
    return city * days


for index in range(999):
    server.tool(tool, name=f"tool_{index:03}")

if __name__ == "__main__":
    server.run()
