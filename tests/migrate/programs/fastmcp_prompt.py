# prompt: greet {"name": "Ada"} = Greet Ada.
from fastmcp import FastMCP

mcp = FastMCP("prompts")


@mcp.prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Greet {name}."
