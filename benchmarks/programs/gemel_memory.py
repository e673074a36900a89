"""Gemel's client and server in one process, over its in-memory channel."""

import asyncio
import sys

from benchmarks.programs.gemel_server import server
from benchmarks.programs.memory_main import on_command
from gemel import Client


async def main(tool: str = "add") -> None:
    async with Client(server) as client:
        await client.list_tools()  # from now on it holds each result against its schema, as the official client does

        async def call(number: int) -> int:
            result = await client.call_tool(tool, {"a": number, "b": 7})
            return int(result.data)

        await on_command(call)


asyncio.run(main(*sys.argv[1:]))
