# call: count {} = 42
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp import Context, FastMCP


@asynccontextmanager
async def lifespan(server: FastMCP) -> AsyncIterator[dict[str, int]]:
    yield {"rows": 42}


mcp = FastMCP("database", lifespan=lifespan)


@mcp.tool
async def count(ctx: Context) -> int:
    return ctx.lifespan_context["rows"]
