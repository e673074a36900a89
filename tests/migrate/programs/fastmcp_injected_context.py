# call: greet {"name": "Ada"} = "hello Ada"
from fastmcp import FastMCP
from fastmcp.dependencies import CurrentContext
from fastmcp.server.context import Context

mcp = FastMCP("injected")


@mcp.tool
async def greet(name: str = "you", ctx: Context = CurrentContext()) -> str:
    await ctx.debug("greeting")
    return f"hello {name}"
