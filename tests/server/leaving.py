"""A server as a program, whose functions would like to end it: `leaving.py [SOCKET]`, or stdio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from gemel import Depends, Server

WAYS: dict[str, type[BaseException]] = {"exit": SystemExit, "interrupt": KeyboardInterrupt, "generator": GeneratorExit}

server: Server[Any] = Server("leaving")


def leave(how: str) -> Any:
    """Try to end the process."""
    raise WAYS[how](3)


def opened() -> Iterator[str]:
    """A dependency that tries it when it cleans up."""
    yield "open"
    leave("exit")


@server.tool("async")
async def in_the_loop(how: str) -> str:
    await asyncio.sleep(0)
    return str(leave(how))


@server.tool("sync")
def in_a_thread(how: str) -> str:
    return str(leave(how))


@server.tool("inline", blocking=False)
def without_a_thread(how: str) -> str:
    return str(leave(how))


@server.tool("limited", timeout=60, concurrency=1)
async def limited(how: str) -> str:
    return str(leave(how))


@server.tool("cleaning")
async def cleaning(how: str, found: Annotated[str, Depends(opened)]) -> str:
    return str(leave(how))


@server.tool("task")
async def in_a_task(how: str) -> str:
    """In a task of its own, for which asyncio has a rule."""

    async def work() -> None:
        leave(how)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
    return ""


@server.prompt("prompt")
async def prompt(how: str) -> str:
    return str(leave(how))


@server.resource("data://{how}")
async def data(how: str) -> str:
    return str(leave(how))


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("socket", path=sys.argv[1])
    else:
        server.run()
