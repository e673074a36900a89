# only: rewrite
# becomes: await server.run_async()
# becomes: options = other.create_initialization_options()
# notes: create_initialization_options
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import TextContent, Tool


async def serve() -> None:
    server = Server("options")

    @server.list_tools()
    async def list_tools() -> list[Tool]:
        return [Tool(name="ping", description="Ping", inputSchema={"type": "object"})]

    @server.call_tool()
    async def call_tool(name: str, arguments: dict) -> list[TextContent]:
        return [TextContent(type="text", text="pong")]

    own = server.create_initialization_options()
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, own, raise_exceptions=True)


def described() -> str:
    other = Server("other")
    options = other.create_initialization_options()
    return options.server_name
