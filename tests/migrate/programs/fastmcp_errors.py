# fails: buy {"item": "moon"} = not for sale
# fails: buy {"item": "sun", "count": 0} = division
# call: buy {"item": "sun", "count": "2"} = 2 sun
# becomes: error_details=True
from fastmcp import FastMCP

mcp = FastMCP("shop")


class ShopError(Exception):
    pass


def fail(text: str) -> None:
    raise ShopError(text)


@mcp.tool
def buy(item: str, count: int = 1) -> str:
    if item == "moon":
        fail("the moon is not for sale")
    return f"{count * (1 // count or 1)} {item}"
