# fails: look {} = look
# becomes: mcp = Server("shelf", coerce=True, structured_text=True)
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("shelf")


@mcp.tool()
def look() -> str:
    raise ValueError("the text of the exception stays on the server")
