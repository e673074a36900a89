"""Hinge's client and server in one process, over its in-memory channel."""

import asyncio

from benchmarks.programs.hinge_server import server
from benchmarks.programs.memory_main import on_command
from hinge import Client


async def main() -> None:
    async with Client(server) as client:
        await client.list_tools()  # from now on it holds each result against its schema, as the official client does

        async def call(number: int) -> int:
            result = await client.call_tool("add", {"a": number, "b": 7})
            return int(result.data)

        await on_command(call)


asyncio.run(main())
