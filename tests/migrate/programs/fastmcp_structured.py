# call: where {"city": "Oslo"} = {"lat": 59.9, "name": "Oslo"}
from dataclasses import dataclass

from fastmcp import FastMCP

mcp = FastMCP("places")


@dataclass
class Place:
    name: str
    lat: float


@mcp.tool
def where(city: str) -> Place:
    return Place(city, 59.9)
