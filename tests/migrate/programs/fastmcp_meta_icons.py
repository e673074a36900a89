# lists: shiny
# call: shiny {} = 1
from fastmcp import FastMCP
from mcp.types import Icon, ToolAnnotations

mcp = FastMCP("icons", version="3.1", website_url="https://example.com", icons=[Icon(src="https://example.com/i.png")])


@mcp.tool(
    title="Shiny",
    icons=[Icon(src="https://example.com/t.png", mimeType="image/png", sizes=["48x48"])],
    annotations=ToolAnnotations(readOnlyHint=True, destructiveHint=False),
    meta={"colour": "gold"},
)
def shiny() -> int:
    return 1
