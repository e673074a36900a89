# call: sound {} = audio/wav
from fastmcp import FastMCP
from fastmcp.utilities.types import Audio, File

mcp = FastMCP("media")


@mcp.tool
def sound() -> Audio:
    return Audio(data=b"RIFF0000WAVE", format="wav")


@mcp.tool
def paper() -> File:
    return File(data=b"text", format="txt", name="paper.txt")
