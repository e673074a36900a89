# call: move {"point": {"x": 1, "y": 2}} = {"x": 2, "y": 3}
from typing import Annotated

from fastmcp import FastMCP
from pydantic import BaseModel, Field

mcp = FastMCP("points")


class Point(BaseModel):
    x: int
    y: int


@mcp.tool
def move(point: Point, by: Annotated[int, Field(description="how far", ge=0)] = 1) -> Point:
    return Point(x=point.x + by, y=point.y + by)
