import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import LLM

from gemel import Client
from gemel.adapters import llama_index


async def main(model: LLM) -> None:
    async with Client("weather_server.py") as client:
        agent = FunctionAgent(tools=await llama_index.tools(client), llm=model, streaming=False)
        print(await agent.run("What will the weather be in Oslo?"))


if __name__ == "__main__":
    from llama_index.llms.openai import OpenAI  # of llama-index-llms-openai

    asyncio.run(main(OpenAI("gpt-5")))
