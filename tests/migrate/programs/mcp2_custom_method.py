# becomes: mcp.request("bookshop/reindex", params=ReindexParams)(reindex)
# becomes: high_level.request("bookshop/reindex", params=ReindexParams)(reindex)
# only: rewrite
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.types import RequestParams
from pydantic import BaseModel


class ReindexParams(RequestParams):
    full: bool = False


class ReindexResult(BaseModel):
    indexed: int


async def reindex(ctx: ServerRequestContext, params: ReindexParams) -> ReindexResult:
    return ReindexResult(indexed=3 if params.full else 0)


mcp = Server("bookshop")
mcp.add_request_handler("bookshop/reindex", ReindexParams, reindex)

high_level = MCPServer("shop")
high_level._lowlevel_server.add_request_handler("bookshop/reindex", ReindexParams, reindex)
