# lists: add
# becomes: state_keys=[key.encode(), b"
from mcp.server.mcpserver import MCPServer, RequestStateSecurity


def make(key: str) -> MCPServer:
    return MCPServer("notes", request_state_security=RequestStateSecurity(keys=[key, b"0123456789abcdef0123456789abcdef"]))


mcp = make("fedcba9876543210fedcba9876543210")


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b
