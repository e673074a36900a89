# lists: add
# call: add {"a": 1, "b": 2} = 3
from mcp.server import MCPServer

mcp = MCPServer("demo", instructions="Add.")


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    mcp.run()
