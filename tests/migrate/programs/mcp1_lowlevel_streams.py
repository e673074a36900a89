# lists: add insight
# call: add {"a": 1, "b": 2} = 3
# call: insight {"text": "more"} = noted
# read: memo://all = more
# becomes: task = asyncio.create_task(mcp.run_async())
# becomes: mcp.notify(Changed("resource", str(AnyUrl("memo://all"))))
# becomes: mime_type="text/plain"
import asyncio

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import AnyUrl

mcp = Server("streams")
MEMO: list[str] = []


@mcp.list_resources()
async def list_resources() -> list[types.Resource]:
    return [types.Resource(uri=AnyUrl("memo://all"), name="memo", mimeType="text/plain")]


@mcp.read_resource()
async def read_resource(uri: AnyUrl) -> str:
    return "\n".join(MEMO)


@mcp.list_tools()
async def list_tools() -> list[types.Tool]:
    number, text = {"type": "number"}, {"type": "string"}
    return [
        types.Tool(name="add", inputSchema={"type": "object", "properties": {"a": number, "b": number}}),
        types.Tool(name="insight", inputSchema={"type": "object", "properties": {"text": text}}),
    ]


@mcp.call_tool()
async def call_tool(name: str, arguments: dict) -> list[types.TextContent]:
    if name == "add":
        return [types.TextContent(type="text", text=str(arguments["a"] + arguments["b"]))]
    MEMO[:] = [arguments["text"]]
    await mcp.request_context.session.send_resource_updated(AnyUrl("memo://all"))
    return [types.TextContent(type="text", text="noted")]


async def main() -> None:
    async with stdio_server() as (read, write):
        task = asyncio.create_task(mcp.run(read, write, mcp.create_initialization_options()))
        await task


if __name__ == "__main__":
    asyncio.run(main())
