# read: search://cats = cats 10
# read: search://cats?limit=3 = cats 3
from fastmcp import FastMCP

mcp = FastMCP("search")


@mcp.resource("search://{word}{?limit}")
def search(word: str, limit: int = 10) -> str:
    return f"{word} {limit}"
