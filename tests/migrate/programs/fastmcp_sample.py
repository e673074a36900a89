# era: 2025
# packages: fastmcp-2
# sampled: short text
# call: summary {"text": "long text"} = "short text"
from fastmcp import Context, FastMCP

mcp = FastMCP("sampler")


@mcp.tool
async def summary(text: str, ctx: Context) -> str:
    response = await ctx.sample(f"Summarize: {text}", system_prompt="Be short", max_tokens=100)
    return response.text
