"""The official SDK's client and server in one process, over its in-memory transport."""

import asyncio
import sys

from mcp import Client

from benchmarks.programs.mcp_server import server
from benchmarks.programs.memory_main import on_command


async def main(tool: str = "add") -> None:
    async with Client(server) as client:
        await client.list_tools()

        async def call(number: int) -> int:
            result = await client.call_tool(tool, {"a": number, "b": 7})
            return int(result.structured_content["result"])

        await on_command(call)


asyncio.run(main(*sys.argv[1:]))
