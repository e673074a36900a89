"""The interop fixture served by Hinge: the same tools as the foreign fixtures, in the public API only."""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from hinge import Context, Server, ToolError

server: Server[None] = Server("interop-hinge", version="1.0", instructions="a fixture")


@dataclass
class Weather:
    city: str
    celsius: float


def journal(event: str, key: str) -> None:
    """Tell the runner what became of a call; it reads the file when the client is gone."""
    path = os.environ.get("INTEROP_JOURNAL")
    if path:
        with Path(path).open("a") as file:
            file.write(f"{event} {key} {time.time()}\n")


@server.tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def weather(city: str) -> Weather:
    """The weather of a city, structured."""
    return Weather(city, 21.5)


@server.tool
async def fail(reason: str) -> str:
    """Fail with the given reason."""
    raise ToolError(reason)


@server.tool
async def count(ctx: Context[None], steps: int) -> str:
    """Report progress for each step."""
    for step in range(1, steps + 1):
        await ctx.progress(step, steps, f"step {step}")
        await asyncio.sleep(0.01)
    return f"counted to {steps}"


@server.tool
async def chatter(ctx: Context[None]) -> str:
    """Log one message of each of three levels."""
    await ctx.debug("a debug line")
    await ctx.info("an info line")
    await ctx.error("an error line")
    return "logged"


@server.tool
async def slow(seconds: float, key: str) -> str:
    """Sleep; write to the journal how it ended."""
    journal("started", key)
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        journal("cancelled", key)
        raise
    journal("finished", key)
    return "slept"


@server.tool
async def large(size: int) -> str:
    """Text of the given length."""
    return "x" * size


@server.tool
async def pid() -> int:
    """The process id of the server."""
    return os.getpid()
