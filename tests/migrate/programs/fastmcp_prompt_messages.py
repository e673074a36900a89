# prompt: talk {"topic": "rain"} = It is.
from fastmcp import FastMCP
from fastmcp.prompts import Message

mcp = FastMCP("talks")


@mcp.prompt(name="talk", description="Talk about something")
def about(topic: str) -> list[Message]:
    return [Message(f"Is {topic} nice?"), Message("It is.", role="assistant")]
