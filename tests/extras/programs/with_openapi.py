"""The operations of an API that is described in YAML are tools."""

import asyncio

from gemel import Client, Server

DOCUMENT = """
openapi: 3.1.0
info: {title: shop, version: "1"}
servers: [{url: "https://shop.example.com"}]
paths:
  /tea:
    get:
      operationId: tea
      responses: {"200": {description: Tea.}}
"""


async def main() -> None:
    async with Client(Server.from_openapi(DOCUMENT)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["tea"]


asyncio.run(main())
