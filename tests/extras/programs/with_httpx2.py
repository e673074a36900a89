"""A client uses httpx2 for HTTP."""

import asyncio

from gemel import Client, Server

server = Server("shop")


@server.tool
def tea() -> str:
    """Make tea."""
    return "tea"


async def main() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(server.run_async("http", port=0, announce=ready.set_result))
    async with Client(await ready, wire="httpx2") as client:
        assert (await client.call_tool("tea")).text == "tea"
    serving.cancel()
    await asyncio.wait([serving])


asyncio.run(main())
