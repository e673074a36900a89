# lists: add was_seen
# call: add {"a": 1, "b": 2} = 3
# call: was_seen {"word": "tools/call"} = true
# call: was_seen {"word": "add"} = true
# call: was_seen {"word": "other"} = false
# becomes: Server("counted", middleware=[counted]
# becomes: mcp.add_middleware(named)
# becomes: ctx.decoded_params
# becomes: from gemel import CallNext
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer

SEEN: set[str] = set()


async def counted(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    SEEN.add(ctx.method)
    return await call_next(ctx)


mcp = MCPServer("counted", subscriptions=False, middleware=[counted])


async def named(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if ctx.method == "tools/call" and ctx.params is not None:
        name = ctx.params.get("name")
        if name in {tool.name for tool in await mcp.list_tools()}:
            SEEN.add(name)
    return await call_next(ctx)


mcp.middleware.append(named)


@mcp.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool()
def was_seen(word: str) -> bool:
    """Whether a method or a tool was asked for."""
    return word in SEEN
