# lists: add times
# call: times {"a": 2, "b": 3} = 6
from fastmcp import FastMCP
from fastmcp.tools import Tool

mcp = FastMCP("added")


def add(a: int, b: int) -> int:
    return a + b


def multiply(a: int, b: int) -> int:
    return a * b


mcp.add_tool(Tool.from_function(add))
mcp.add_tool(Tool.from_function(multiply, name="times"))
