# read: preview:///etc/passwd = /etc/passwd
# becomes: screen=False
from mcp.server import MCPServer
from mcp.server.mcpserver import ResourceSecurity

mcp = MCPServer("imports", resource_security=ResourceSecurity())


@mcp.resource("preview://{+source}", security=ResourceSecurity(exempt_params={"source"}))
def preview(source: str) -> str:
    return source
