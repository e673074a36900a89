# call: both {} = {"n": 7}
from fastmcp import FastMCP
from fastmcp.tools import ToolResult

mcp = FastMCP("results")


@mcp.tool
def both() -> ToolResult:
    return ToolResult(content="seven", structured_content={"n": 7})
