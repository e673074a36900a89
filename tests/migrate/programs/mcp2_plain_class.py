# lists: station
# call: station {"name": "Oslo"} = {"name": "Oslo", "online": true}
# becomes: @dataclass(init=False)
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("weather")


class Station:
    name: str
    online: bool

    def __init__(self, name: str) -> None:
        self.name = name
        self.online = True


@mcp.tool()
def station(name: str) -> Station:
    return Station(name)
