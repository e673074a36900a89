"""A model of pydantic is the argument and the result of a tool."""

import asyncio

from pydantic import BaseModel

from gemel import Client, Server

server = Server("shop")


class Order(BaseModel):
    """What somebody wants."""

    item: str
    count: int = 1


@server.tool
def double(order: Order) -> Order:
    """Order twice as much."""
    return order.model_copy(update={"count": 2 * order.count})


async def main() -> None:
    async with Client(server) as client:
        result = await client.call_tool("double", {"order": {"item": "tea"}}, returns=Order)
        assert result.data == Order(item="tea", count=2)


asyncio.run(main())
