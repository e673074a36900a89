# prompt: review {"code": "x = 1"} = Please review x = 1
# prompt: debug {"error": "E1"} = I'll help to debug it.
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.prompts import base

mcp = FastMCP("prompts")


@mcp.prompt(title="Review")
def review(code: str) -> str:
    return f"Please review {code}"


@mcp.prompt()
def debug(error: str) -> list[base.Message]:
    return [
        base.UserMessage("I see this error:"),
        base.UserMessage(error),
        base.AssistantMessage("I'll help to debug it."),
    ]
