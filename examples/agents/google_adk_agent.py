import asyncio

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner

from gemel import Client
from gemel.adapters.google_adk import AdkToolset


async def main(model: str = "gemini-3-pro") -> None:
    async with Client("weather_server.py") as client:
        agent = LlmAgent(name="weather", model=model, tools=[AdkToolset(client)])
        await InMemoryRunner(agent).run_debug("What will the weather be in Oslo?")


if __name__ == "__main__":
    asyncio.run(main())
