# lists: add echo
# call: echo {"text": "hi"} = hi
# call: add {"a": 1, "b": 2} = 3
# fails: echo {} = text
# becomes: await mcp.run_async()
# becomes: @mcp.tool("add", input_schema=
# becomes: error_details=True
import asyncio

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

NUMBER = {"type": "number"}
mcp = Server("low", version="2.0")


@mcp.list_tools()
async def handle_list_tools() -> list[types.Tool]:
    """What there is."""
    return [
        types.Tool(
            name="echo",
            description="Say it again.",
            inputSchema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        ),
        types.Tool(name="add", inputSchema={"type": "object", "properties": {"a": NUMBER, "b": NUMBER}}),
    ]


@mcp.call_tool()
async def handle_call_tool(name: str, arguments: dict | None) -> list[types.TextContent]:
    arguments = arguments or {}
    if name == "echo":
        return [types.TextContent(type="text", text=arguments["text"])]
    if name == "add":
        return [types.TextContent(type="text", text=str(arguments["a"] + arguments["b"]))]
    raise ValueError(f"Unknown tool: {name}")


async def main() -> None:
    async with stdio_server() as (read, write):
        await mcp.run(read, write, mcp.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
