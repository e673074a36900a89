"""The interop fixture served by the official Python SDK before version 2, or by FastMCP 2: what each version can do.

Runs in the environments of the old SDKs, from 1.2 on. Arguments: the transport and the port; the journal file comes by
INTEROP_JOURNAL.
"""

import inspect
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp.types import EmbeddedResource, ImageContent, TextResourceContents
from pydantic import BaseModel

try:
    from fastmcp import Context, FastMCP
    from fastmcp.prompts import PromptMessage
    from mcp.types import TextContent

    is_fastmcp = True
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP  # type: ignore[assignment]  # either of two
    from mcp.server.fastmcp.prompts.base import AssistantMessage, UserMessage

    is_fastmcp = False

port = 0 if sys.argv[1] == "stdio" else int(sys.argv[2])
address = {"host": "127.0.0.1", "port": port}
server = FastMCP("interop-python-v1", instructions="a fixture", **({} if is_fastmcp else address))  # type: ignore[arg-type]  # by name
if is_fastmcp:
    text_only: dict[str, Any] = {"output_schema": None}
else:
    is_structured = "structured_output" in inspect.signature(server.tool).parameters
    text_only = {"structured_output": False} if is_structured else {}

NOTE = "a note: hé ☃"


def journal(event: str, key: str) -> None:
    """Tell the runner what became of a call; it reads the file when the client is gone."""
    path = os.environ.get("INTEROP_JOURNAL")
    if path:
        with Path(path).open("a") as file:
            file.write(f"{event} {key} {time.time()}\n")


class Weather(BaseModel):
    city: str
    celsius: float


@server.tool(**text_only)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
async def weather(city: str) -> Weather:
    """The weather of a city, structured."""
    return Weather(city=city, celsius=21.5)


@server.tool()
async def fail(reason: str) -> str:
    """Fail with the given reason."""
    raise ValueError(reason)


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Report progress for each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps)
        await anyio.sleep(0.01)
    await anyio.sleep(0.2)
    return f"counted to {steps}"


@server.tool()
async def slow(seconds: float, key: str) -> str:
    """Sleep; write to the journal how it ended."""
    journal("started", key)
    try:
        await anyio.sleep(seconds)
    except BaseException:
        journal("cancelled", key)
        raise
    journal("finished", key)
    return "slept"


@server.tool(**text_only)
async def large(size: int) -> str:
    """Text of the given length."""
    return "x" * size


@server.tool()
async def pid() -> int:
    """The process id of the server."""
    return os.getpid()


@server.resource("interop://note", mime_type="text/plain")
def note() -> str:
    """A text."""
    return NOTE


@server.resource("interop://dot", mime_type="application/octet-stream")
def dot() -> bytes:
    """All bytes there are."""
    return bytes(range(256))


@server.resource("interop://items/{kind}/{name}", mime_type="application/json")
def item(kind: str, name: str) -> dict[str, str]:
    """One of many."""
    return {"kind": kind, "name": name}


@server.prompt()
def greet(name: str, mood: str = "calm") -> str:
    """Greet somebody."""
    return f"Greet {name}, {mood}."


@server.prompt()
def brief() -> list[Any]:
    """Messages of several kinds."""
    contents = TextResourceContents(uri="interop://note", text=NOTE, mimeType="text/plain")  # type: ignore[arg-type]  # pydantic reads it
    said: list[tuple[str, Any]] = [
        ("assistant", "I listen."),
        ("user", ImageContent(type="image", data="aGk=", mimeType="image/png")),
        ("user", EmbeddedResource(type="resource", resource=contents)),
    ]
    if is_fastmcp:
        blocks = [(role, TextContent(type="text", text=one) if isinstance(one, str) else one) for role, one in said]
        return [PromptMessage(role=role, content=one) for role, one in blocks]
    return [(UserMessage if role == "user" else AssistantMessage)(one) for role, one in said]


@server.prompt()
def plain() -> str:
    """No arguments."""
    return "Plain."


if __name__ == "__main__":
    kinds: dict[str, Any] = {"stdio": "stdio", "sse": "sse", "http": "streamable-http"}
    server.run(kinds[sys.argv[1]], **(address if is_fastmcp and port else {}))
