# lists: join total
# differs: .type is missing
# call: join {"first": "a"} = a1False
# call: join {"first": [1], "second": "b", "third": 2} = [1]b2
# call: total {"numbers": [1, 2]} = "3"
# read: greeting://Ada = Hello, Ada
# prompt: review {"code": "x = 1"} = Review x = 1
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("untyped")


@mcp.tool()
def join(first, second=1, *, third=False):
    return f"{first}{second}{third}"


@mcp.tool()
async def total(numbers) -> str:
    return str(sum(numbers))


@mcp.resource("greeting://{name}")
def greeting(name):
    return f"Hello, {name}"


@mcp.prompt()
def review(code):
    return f"Review {code}"


def helper(value):
    return value
