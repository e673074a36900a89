# differs: tool link: it has no outputSchema
# lists: link
from mcp.server.fastmcp import FastMCP
from mcp.types import ContentBlock, ResourceLink, TextContent

mcp = FastMCP("links")


@mcp.tool()
def link() -> list[ContentBlock]:
    return [
        TextContent(type="text", text="see"),
        ResourceLink(type="resource_link", uri="notes://one", name="one", mimeType="text/plain"),
    ]
