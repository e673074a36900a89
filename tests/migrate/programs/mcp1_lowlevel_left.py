# notes: low-level server
# notes: @server.list_prompts
# notes: remove it
# only: rewrite
import asyncio

from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

server = Server("left")


@server.list_prompts()
async def list_prompts() -> list[types.Prompt]:
    return [types.Prompt(name="review")]


@server.get_prompt()
async def get_prompt(name: str, arguments: dict[str, str] | None) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[])


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
