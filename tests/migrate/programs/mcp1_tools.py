# lists: add greet
# call: add {"a": 1, "b": 2} = 3
# call: greet {} = "hello world"
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("demo")


@mcp.tool()
def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b


@mcp.tool(name="greet", title="Greet")
async def say_hello(name: str = "world") -> str:
    return f"hello {name}"


if __name__ == "__main__":
    mcp.run(transport="stdio")
