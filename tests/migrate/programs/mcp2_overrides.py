# notes: Sums.call_tool: Gemel's servers call no such method: write it as middleware
# notes: Sums.sse_app: Gemel's servers call no such method: override http_app()
# lists: add
# call: add {"a": 2} = 3
# only: rewrite
from typing import Any

from mcp.server.mcpserver import MCPServer


class Sums(MCPServer):
    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        return await super().call_tool(name, {key: value + 1 for key, value in arguments.items()}, context)

    def sse_app(self, **options: Any) -> Any:
        return super().sse_app(**options)


mcp = Sums("a")


@mcp.tool()
def add(a: int) -> int:
    return a
