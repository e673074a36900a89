# lists: pay
# call: pay {"to": "Ann"} = 5 to Ann
# becomes: Annotated[int, Depends(limit)]
from typing import Annotated

from mcp.server.mcpserver import MCPServer, Resolve

mcp = MCPServer("bank")


def limit() -> int:
    return 5


@mcp.tool()
def pay(to: str, cents: Annotated[int, Resolve(limit)]) -> str:
    return f"{cents} to {to}"
