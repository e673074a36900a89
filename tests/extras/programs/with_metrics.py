"""A server tells Prometheus how many requests it served."""

import asyncio
import urllib.request

from gemel import Client, Server, metrics_app

server = Server("shop")


@server.tool
def tea() -> str:
    """Make tea."""
    return "tea"


async def main() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    routes = {"/metrics": metrics_app()}
    serving = asyncio.create_task(server.run_async("http", port=0, routes=routes, announce=ready.set_result))
    url = await ready
    async with Client(url) as client:
        await client.call_tool("tea")
    with await asyncio.to_thread(urllib.request.urlopen, url.replace("/mcp", "/metrics")) as response:
        text = response.read().decode()
    assert "mcp_server_operation_duration_seconds_count{" in text, text
    serving.cancel()
    await asyncio.wait([serving])


asyncio.run(main())
