# extends: results of type receipt
# prints: ['buy', 'redeem', 'stamp']
# prints: {'com.example/shop': {'sealed': True}}
# prints: [stamped] hello
# prints: ['lamp-0', 'lamp-1']
# prints: goods for r-117
# becomes: id = EXTENSION_ID
# becomes: result_types = ("receipt",)
# becomes: open=True, eras=("2026",)
# becomes: async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import mcp.types as types
from mcp import Client
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, ToolBinding
from mcp.server.mcpserver import MCPServer, require_client_extension
from pydantic import Field

EXTENSION_ID = "com.example/shop"


class SearchParams(types.RequestParams):
    search_text: str
    most: int = Field(default=10, ge=1, le=100)


class SearchResult(types.Result):
    found_items: list[str]


class SearchRequest(types.Request[SearchParams, Literal["com.example/search"]]):
    method: Literal["com.example/search"] = "com.example/search"
    params: SearchParams


class ReceiptResult(types.Result):
    result_type: Literal["receipt"] = "receipt"
    receipt_token: str


def stamp(text: str) -> str:
    """Stamp a message."""
    return f"[stamped] {text}"


async def search(ctx: ServerRequestContext[Any, Any], params: SearchParams) -> SearchResult:
    require_client_extension(ctx, EXTENSION_ID)
    return SearchResult(found_items=[f"{params.search_text}-{number}" for number in range(params.most)])


class Shop(Extension):
    """The server's half."""

    identifier = EXTENSION_ID

    def settings(self) -> dict[str, Any]:
        return {"sealed": self.identifier == EXTENSION_ID}

    def tools(self) -> Sequence[ToolBinding]:
        return [ToolBinding(fn=stamp)]

    def methods(self) -> Sequence[MethodBinding]:
        """What the extension serves."""
        return [
            MethodBinding("com.example/search", SearchParams, search, protocol_versions=frozenset({"2026-07-28"})),
        ]

    async def intercept_tool_call(self, params: types.CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if params.name != "buy":
            return await call_next(ctx)
        require_client_extension(ctx, EXTENSION_ID)
        return {"resultType": "receipt", "receiptToken": "r-117"}


class Receipts(ClientExtension):
    """The client's half."""

    identifier = EXTENSION_ID

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="receipt", model=ReceiptResult, resolve=self._redeem)]

    async def _redeem(self, claimed: ReceiptResult, ctx: ClaimContext) -> types.CallToolResult:
        return await ctx.session.call_tool("redeem", {"token": claimed.receipt_token})


mcp = MCPServer("shop", extensions=[Shop()])


@mcp.tool()
def buy(item: str) -> types.CallToolResult:
    """Buy an item."""
    raise NotImplementedError


@mcp.tool()
def redeem(token: str) -> str:
    """Exchange a receipt for the goods."""
    return f"goods for {token}"


async def main() -> None:
    async with Client(mcp, extensions=[Receipts()]) as client:
        page = await client.list_tools()
        print(sorted(tool.name for tool in page.tools))
        print(client.server_capabilities.extensions)
        result = await client.call_tool("stamp", {"text": "hello"})
        print(result.content[0].text)
        request = SearchRequest(params=SearchParams(search_text="lamp", most=2))
        found = await client.session.send_request(request, SearchResult)
        print(found.found_items)
        bought = await client.call_tool("buy", {"item": "lamp"})
        print(bought.content[0].text)


if __name__ == "__main__":
    asyncio.run(main())
