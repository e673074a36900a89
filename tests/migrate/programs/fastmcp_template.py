# read: users://7/profile = user 7
# read: docs://a/b/c = a/b/c
from fastmcp import FastMCP

mcp = FastMCP("users")


@mcp.resource("users://{user_id}/profile")
def profile(user_id: str) -> str:
    return f"user {user_id}"


@mcp.resource("docs://{path*}")
def document(path: str) -> str:
    return path
