import asyncio

from agents import Agent, Runner

from gemel import Client
from gemel.adapters.openai_agents import AgentsServer


async def main(model: str = "gpt-5") -> None:
    async with Client("weather_server.py") as client:
        agent = Agent("weather", model=model, mcp_servers=[AgentsServer(client)])
        result = await Runner.run(agent, "What will the weather be in Oslo?")
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
