# The same server for the official SDK; originals start it under the name of the other one.
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("sums", log_level="ERROR")


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


@mcp.resource("place://{city}")
def place(city: str) -> str:
    return "59"


if __name__ == "__main__":
    mcp.run()
