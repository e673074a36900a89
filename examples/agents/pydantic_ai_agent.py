import asyncio

from pydantic_ai import Agent

from gemel import Client
from gemel.adapters.pydantic_ai import PydanticToolset


async def main(model: str = "openai:gpt-5") -> None:
    async with Client("weather_server.py") as client:
        agent = Agent(model, toolsets=[PydanticToolset(client)])
        result = await agent.run("What will the weather be in Oslo?")
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
