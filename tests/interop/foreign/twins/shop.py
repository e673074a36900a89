"""The twin of examples/servers/shop.py in FastMCP."""

from fastapi import FastAPI, HTTPException
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

STOCK = {"tea": 5}
mcp = FastMCP("shop")


@mcp.tool
async def sell(item: str, number: int = 1) -> int:
    """Sell some of an item; returns how many are left."""
    if STOCK.get(item, 0) < number:
        raise ToolError(f"There are only {STOCK.get(item, 0)} of {item}.")
    STOCK[item] -= number
    return STOCK[item]


mcp_app = mcp.http_app(path="/")
app = FastAPI(lifespan=mcp_app.lifespan)


@app.get("/stock/{item}")
async def stock(item: str) -> int:
    """How many of an item there are."""
    if item not in STOCK:
        raise HTTPException(404)
    return STOCK[item]


app.mount("/mcp", mcp_app)
