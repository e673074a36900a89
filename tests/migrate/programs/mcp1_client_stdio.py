# prints: add
# prints: 3
# prints: False
# prints: 59
import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

server = StdioServerParameters(command=sys.executable, args=["served_sums.py"])


async def main() -> None:
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = await session.list_tools()
        for tool in tools.tools:
            print(tool.name)
        result = await session.call_tool("add", arguments={"a": 1, "b": 2})
        print(result.content[0].text)
        print(result.isError)
        contents = await session.read_resource("place://Oslo")
        print(contents.contents[0].text)


if __name__ == "__main__":
    asyncio.run(main())
