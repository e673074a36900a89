# only: rewrite
# notes: Station is returned to clients: write it as a dataclass, or return a dict
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("weather")


class Station:
    name: str
    online: bool = True

    def __init__(self, name: str) -> None:
        self.name = name


@mcp.tool()
def station(name: str) -> Station:
    return Station(name)
