# notes: @server.progress_notification() has no counterpart; the program stays as it is
# only: rewrite
# becomes: from mcp.server import Server
import asyncio

from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

server = Server("left")


@server.list_prompts()
async def list_prompts() -> list[types.Prompt]:
    return [types.Prompt(name="review")]


@server.progress_notification()
async def progress(token, progress, total, message) -> None:
    print(token)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
