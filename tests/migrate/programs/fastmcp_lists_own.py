# call: names {} = ["greet", "note://one"]
from fastmcp import Context, FastMCP

mcp = FastMCP("own")


@mcp.prompt
def greet() -> str:
    return "Say hello."


@mcp.resource("note://one")
def one() -> str:
    return "the note"


@mcp.tool
async def names(ctx: Context) -> list[str]:
    return [prompt.name for prompt in await ctx.list_prompts()] + [
        str(resource.uri) for resource in await ctx.list_resources()
    ]
