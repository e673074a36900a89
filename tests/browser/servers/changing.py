"""A server whose list of tools changes while clients are connected."""

from __future__ import annotations

from gemel import Changed, Server

server = Server("changing", version="1")


def snow() -> str:
    """Appears while a client is connected."""
    return "It snows."


@server.tool
async def begin_winter() -> str:
    """Offer one more tool, and tell subscribers."""
    server.tool(snow)
    server.notify(Changed("tools"))
    return "Winter."


if __name__ == "__main__":
    server.run()
