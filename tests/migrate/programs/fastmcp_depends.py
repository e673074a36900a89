# lists: total
# call: total {"factor": 2} = 12
from fastmcp import FastMCP
from fastmcp.dependencies import Depends

mcp = FastMCP("dependent")


def numbers() -> list[int]:
    return [1, 2, 3]


@mcp.tool
async def total(factor: int = 1, values: list[int] = Depends(numbers)) -> int:
    return factor * sum(values)
