# read: greeting://Ada = Hello, Ada!
# read: config://app = on
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("resources", instructions="Read.")


@mcp.resource("greeting://{name}")
def greeting(name: str) -> str:
    return f"Hello, {name}!"


@mcp.resource("config://app", mime_type="text/plain")
def config() -> str:
    return "on"
