"""An agent of Pydantic AI calls a tool of a server; its model calls each tool once."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from gemel import Client, Server
from gemel.adapters.pydantic_ai import PydanticToolset

server = Server("shop")
made: list[str] = []


@server.tool
def tea(kind: str) -> str:
    """Make tea."""
    made.append(kind)
    return f"{kind} tea"


async def main() -> None:
    async with Client(server) as client:
        await Agent(TestModel(), toolsets=[PydanticToolset(client)]).run("tea please")
    assert len(made) == 1


asyncio.run(main())
