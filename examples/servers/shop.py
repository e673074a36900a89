"""A FastAPI application with an MCP endpoint at /mcp: `uvicorn shop:app`."""

from fastapi import FastAPI, HTTPException

from gemel import Server, ToolError

STOCK = {"tea": 5}
server = Server("shop")


@server.tool
async def sell(item: str, number: int = 1) -> int:
    """Sell some of an item; returns how many are left."""
    if STOCK.get(item, 0) < number:
        raise ToolError(f"There are only {STOCK.get(item, 0)} of {item}.")
    STOCK[item] -= number
    return STOCK[item]


app = FastAPI()


@app.get("/stock/{item}")
async def stock(item: str) -> int:
    """How many of an item there are."""
    if item not in STOCK:
        raise HTTPException(404)
    return STOCK[item]


app.mount("/mcp", server.http_app())
