# era: 2025
# answers: {"name": "Ada", "age": 36}
# call: form {} = "Ada is 36"
from dataclasses import dataclass

from fastmcp import Context, FastMCP

mcp = FastMCP("forms")


@dataclass
class Person:
    name: str
    age: int


@mcp.tool
async def form(ctx: Context) -> str:
    answer = await ctx.elicit(message="Who are you?", response_type=Person)
    if answer.action != "accept":
        return "nobody"
    person = answer.data
    return f"{person.name} is {person.age}"
