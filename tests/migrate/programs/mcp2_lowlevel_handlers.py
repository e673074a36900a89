# lists: tool0 tool1
# call: tool1 {"a": 2} = tool1 with 2
# becomes: server.request("tools/list")(list_tools)
from mcp.server import Server, ServerRequestContext
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool


async def list_tools(ctx: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    return ListToolsResult(tools=[Tool(name=f"tool{number}", input_schema=schema) for number in range(2)])


async def call_tool(ctx: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=f"{params.name} with {(params.arguments or {})['a']}")])


def make() -> Server:
    server = Server("handlers", on_list_tools=list_tools, on_call_tool=call_tool)
    return server


mcp = make()
