"""A server of ours on loopback that asks for a login."""

from __future__ import annotations

from typing import Any

from gemel import Context, Server


def notes_server(**options: Any) -> Server[Any]:
    """Return a server with a tool for all who are let in, and one that needs a further scope."""
    server: Server[Any] = Server("notes", version="1", **options)

    @server.tool
    def whoami(ctx: Context[Any]) -> str:
        """Say who is calling."""
        return f"{ctx.principal}: {' '.join(sorted(ctx.scopes))}"

    @server.tool(scopes=["notes.write"])
    def add(text: str) -> str:
        """Add a note."""
        return f"added {text}"

    return server
