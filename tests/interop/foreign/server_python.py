"""The interop fixture served by the official Python SDK; the same tools as server_typescript.mjs.

Runs in the peers environment. Arguments: `stdio`, or `http PORT`; the journal file comes by INTEROP_JOURNAL.
"""

import os
import sys
import time
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server = MCPServer("interop-python", version="1.0", instructions="a fixture")


class Weather(BaseModel):
    city: str
    celsius: float


def journal(event: str, key: str) -> None:
    """Tell the runner what became of a call; it reads the file when the client is gone."""
    path = os.environ.get("INTEROP_JOURNAL")
    if path:
        with Path(path).open("a") as file:
            file.write(f"{event} {key} {time.time()}\n")


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
async def weather(city: str) -> Weather:
    """The weather of a city, structured."""
    return Weather(city=city, celsius=21.5)


@server.tool()
async def fail(reason: str) -> str:
    """Fail with the given reason."""
    raise ToolError(reason)


@server.tool()
async def count(ctx: Context, steps: int) -> str:
    """Report progress for each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(0.01)
    return f"counted to {steps}"


@server.tool()
async def chatter(ctx: Context) -> str:
    """Log one message of each of three levels."""
    await ctx.log("debug", "a debug line")
    await ctx.log("info", "an info line")
    await ctx.log("error", "an error line")
    return "logged"


@server.tool()
async def slow(seconds: float, key: str) -> str:
    """Sleep; write to the journal how it ended."""
    journal("started", key)
    try:
        await anyio.sleep(seconds)
    except BaseException:
        journal("cancelled", key)
        raise
    journal("finished", key)
    return "slept"


@server.tool(structured_output=False)
async def large(size: int) -> str:
    """Text of the given length."""
    return "x" * size


@server.tool()
async def pid() -> int:
    """The process id of the server."""
    return os.getpid()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
