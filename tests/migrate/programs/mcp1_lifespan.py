# call: query {} = "rows of the database"
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.session import ServerSession


@dataclass
class State:
    database: str


@asynccontextmanager
async def lifespan(server: FastMCP) -> AsyncIterator[State]:
    yield State("the database")


mcp = FastMCP("lifespan", lifespan=lifespan)


@mcp.tool()
def query(ctx: Context[ServerSession, State]) -> str:
    return f"rows of {ctx.request_context.lifespan_context.database}"
