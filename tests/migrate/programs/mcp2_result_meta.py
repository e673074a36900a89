# lists: find
# call: find {} = found
# becomes: meta={"page": 1}
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent

mcp = MCPServer("shelf")


@mcp.tool()
def find() -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="found")], _meta={"page": 1})
