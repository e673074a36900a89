# prompt: greet {"name": "Ada"} = Greet Ada
# read: text://hello = hello
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("things", title="Things")


@mcp.prompt()
def greet(name: str) -> str:
    return f"Greet {name}"


@mcp.resource("text://hello")
def hello() -> str:
    return "hello"
