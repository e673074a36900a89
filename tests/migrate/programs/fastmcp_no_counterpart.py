# only: rewrite
# notes: give each file a Router and include() it
# notes: let clients cache
# notes: retry in the tool
# notes: give each version a name
# notes: make a server for each version
from fastmcp import FastMCP
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from fastmcp.server.middleware.error_handling import RetryMiddleware
from fastmcp.server.providers import FileSystemProvider
from fastmcp.server.transforms import VersionFilter

mcp = FastMCP("shop", providers=[FileSystemProvider("components")])
mcp.add_middleware(ResponseCachingMiddleware())
mcp.add_middleware(RetryMiddleware())
mcp.add_transform(VersionFilter(version_lt="2.0"))


@mcp.tool(version="1.0")
def price(item: str) -> int:
    return 7
