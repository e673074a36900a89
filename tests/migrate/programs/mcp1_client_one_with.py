# prints: 7
import asyncio
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client


async def main() -> None:
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=["served_sums.py"])) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        result = await session.call_tool("add", {"a": 3, "b": 4})
        print(
            result.structuredContent["result"]
            if isinstance(result.structuredContent, dict)
            else result.structuredContent
        )


if __name__ == "__main__":
    asyncio.run(main())
