import asyncio

from langchain.agents import create_agent

from gemel import Client
from gemel.adapters import langchain


async def main(model: str = "openai:gpt-5") -> None:
    async with Client("weather_server.py") as client:
        agent = create_agent(model, await langchain.tools(client))
        state = await agent.ainvoke({"messages": [("user", "What will the weather be in Oslo?")]})
    print(state["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main())
