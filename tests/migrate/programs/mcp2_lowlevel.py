# lists: ping shout
# call: ping {} = pong
# call: shout {"text": "hi"} = HI!
# fails: shout {"text": "x", "times": "many"} = times
# becomes: @mcp.tool("shout", description="Say it loud.", input_schema=SCHEMA)
# becomes: mcp.http_app(sessions=False)
from mcp.server import Server, ServerRequestContext
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "times": {"type": "integer"}},
    "required": ["text"],
}


async def list_tools(ctx: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(
        tools=[
            Tool(name="ping", input_schema={"type": "object"}),
            Tool(name="shout", description="Say it loud.", input_schema=SCHEMA),
        ]
    )


async def call_tool(ctx: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
    if params.name == "ping":
        return CallToolResult(content=[TextContent(text="pong")])
    arguments = params.arguments or {}
    if not isinstance(arguments.get("times", 1), int):
        return CallToolResult(content=[TextContent(text="times: a number is expected")], is_error=True)
    text = arguments["text"].upper() + "!"
    return CallToolResult(content=[TextContent(text=text)])


mcp = Server("low", on_list_tools=list_tools, on_call_tool=call_tool)
app = mcp.streamable_http_app(stateless_http=True, debug=True)
