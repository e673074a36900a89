# call: weather {"city": "Oslo"} = {"city": "Oslo", "degrees": 7.5}
# call: text {} = "plain"
from typing import TypedDict

from mcp.server.fastmcp import FastMCP

mcp = FastMCP("weather")


class Weather(TypedDict):
    city: str
    degrees: float


@mcp.tool()
def weather(city: str) -> Weather:
    return {"city": city, "degrees": 7.5}


@mcp.tool(structured_output=False)
def text() -> str:
    return "plain"
