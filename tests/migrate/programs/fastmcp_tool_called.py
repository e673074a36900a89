# lists: shout whisper
# call: shout {"text": "hi"} = "HI"
# call: whisper {"text": "HI"} = "hi"
from fastmcp import FastMCP

mcp = FastMCP(name="voices", instructions="Speak up.")


@mcp.tool()
def shout(text: str) -> str:
    return text.upper()


@mcp.tool(name="whisper", description="Say it quietly", tags={"quiet"})
async def say_quietly(text: str) -> str:
    return text.lower()
