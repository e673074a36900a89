# prints: hello
# prints: text/plain
# prints: hello
# prints: Greet Ada
import asyncio

from fastmcp import Client, FastMCP

mcp = FastMCP("things")


@mcp.resource("text://hello")
def hello() -> str:
    return "hello"


@mcp.prompt
def greet(name: str) -> str:
    return f"Greet {name}"


async def main() -> None:
    client = Client(mcp)
    async with client:
        contents = await client.read_resource("text://hello")
        print(contents[0].text)
        for one in contents:
            print(one.mimeType if hasattr(one, "mimeType") else one.mime_type)
        print((await client.read_resource("text://hello"))[0].text)
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        print(prompt.messages[0].content.text)


if __name__ == "__main__":
    asyncio.run(main())
