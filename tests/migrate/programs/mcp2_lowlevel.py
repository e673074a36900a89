# notes: low-level server
# only: rewrite
from mcp.server import Server
from mcp.types import ListToolsResult, Tool


async def list_tools(ctx, params) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="ping", input_schema={"type": "object"})])


mcp = Server("low", on_list_tools=list_tools)
