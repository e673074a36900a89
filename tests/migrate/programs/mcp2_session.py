# era: 2025
# sampled: roses
# call: write {"topic": "love"} = "roses"
# call: restock {"title": "Emma"} = 4
# call: enable {} = "enabled"
# becomes: mcp.notify(Changed("resource", str(f"stock://{title}")))
# becomes: mcp.notify(Changed("tools"))
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import SamplingMessage, TextContent

mcp = MCPServer("books")
STOCK = {"Emma": 3}


@mcp.resource("stock://{title}")
def stock(title: str) -> str:
    return f"{STOCK[title]} in stock"


@mcp.tool()
async def write(topic: str, ctx: Context) -> str:
    result = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=TextContent(type="text", text=f"A poem about {topic}"))],
        max_tokens=100,
    )
    if result.content.type == "text":
        return result.content.text
    return str(result.content)


@mcp.tool()
async def restock(title: str, ctx: Context) -> int:
    STOCK[title] += 1
    await ctx.notify_resource_updated(f"stock://{title}")
    await ctx.session.send_resource_updated(f"stock://{title}")
    STOCK["Emma"] = 3
    return 4


def recommend() -> str:
    return "Emma"


@mcp.tool()
async def enable(ctx: Context) -> str:
    mcp.add_tool(recommend)
    await ctx.session.send_tool_list_changed()
    mcp.remove_tool("recommend")
    return "enabled"
