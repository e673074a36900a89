# notes: middleware
# notes: custom_route
# notes: ctx.set_state(serializable=…) was left out
# only: rewrite
from fastmcp import Context, FastMCP
from fastmcp.server.middleware import Middleware, MiddlewareContext

mcp = FastMCP("left")


class Timing(Middleware):
    async def on_message(self, context: MiddlewareContext, call_next):
        return await call_next(context)


mcp.add_middleware(Timing())


@mcp.custom_route("/health", methods=["GET"])
async def health(request):
    return None


@mcp.tool
async def count(ctx: Context) -> int:
    await ctx.set_state("n", object(), serializable=False)
    return 1
