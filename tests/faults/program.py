"""A Gemel server as a program of its own, which notes in a file what runs and dies when told to.

`program.py JOURNAL stdio|PORT [FIRST-LAST]`: the starts from the FIRST to the LAST end at once, with a word on standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from gemel import Context, Server, ToolAnnotations

server: Server[Any] = Server("program")
journal = Path(sys.argv[1])
SAFE = ToolAnnotations(read_only_hint=True)


def note(what: str) -> None:
    """One line for each thing that happened, in one write."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{what}\n".encode())
    os.close(descriptor)


def noted() -> list[str]:
    return journal.read_text().splitlines()


@server.tool
async def write(key: str, die: bool = False) -> str:
    """Not to be done twice."""
    note(f"write {key}")
    if die:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


@server.tool(annotations=SAFE)
async def read(key: str, die: bool = False) -> str:
    """May be done twice; dies the first time only."""
    first = f"read {key}" not in noted()
    note(f"read {key}")
    if die and first:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


@server.tool
async def hold() -> str:
    """Never ends."""
    note("hold")
    await asyncio.sleep(3600)
    return ""


@server.tool
async def pid() -> int:
    return os.getpid()


@server.tool
async def grow(ctx: Context, name: str) -> str:
    """Change the list of tools."""

    @server.tool(name)
    async def grown() -> str:
        return name

    return name


@server.resource("data://one")
def one() -> str:
    return "1"


if __name__ == "__main__":
    note("start")
    first, _, last = (sys.argv[3] if len(sys.argv) > 3 else "0-0").partition("-")
    if int(first) <= noted().count("start") <= int(last):
        print("not yet", file=sys.stderr)
        sys.exit(5)
    if sys.argv[2] != "stdio":
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
