"""A server with the mistakes that people look for with the page."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from gemel import Server

server = Server("broken", version="1")


@server.tool(output_schema={"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]})
async def count(words: str = "one two") -> dict[str, Any]:
    """Returns a text where its schema says a number."""
    return {"total": str(len(words.split()))}


@server.tool
async def divide(by: int = 0) -> float:
    """Raises an error that nobody expected."""
    return 1 / by


@server.tool
async def wait() -> str:
    """Never ends, and says what it waits for."""
    print("waiting for the database at 10.0.0.7:5432", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
    return "never"


@server.tool
async def leave() -> str:
    """Ends the process."""
    print("out of licences", file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    server.run()
