"""The interop fixture served by FastMCP, as far as it goes: tools, resources, prompts and completion in both eras.

It has no subscriptions and no sampling or roots, and asks in one way in the handshake era and in another one after it.
Runs in the environment of FastMCP's server. Arguments: `stdio`, or `http PORT`; the journal file comes by
INTEROP_JOURNAL.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.server.elicitation import AcceptedElicitation
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

server = FastMCP("interop-fastmcp", version="1.0", instructions="a fixture")

NOTE = "a note: hé ☃"
ITEMS = {"fruit": ["apple", "apricot", "pear"], "fish": ["perch", "pike"]}
NAMES = ["Ada", "Alan", "Grace"]


def journal(event: str, key: str) -> None:
    """Tell the runner what became of a call; it reads the file when the client is gone."""
    path = os.environ.get("INTEROP_JOURNAL")
    if path:
        with Path(path).open("a") as file:
            file.write(f"{event} {key} {time.time()}\n")


class Weather(BaseModel):
    city: str
    celsius: float


class Day(BaseModel):
    day: str
    seats: int = 1


@server.tool(output_schema=None)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def weather(city: str) -> Weather:
    """The weather of a city, structured."""
    return Weather(city=city, celsius=21.5)


@server.tool
async def fail(reason: str) -> str:
    """Fail with the given reason."""
    raise ToolError(reason)


@server.tool
async def count(ctx: Context, steps: int) -> str:
    """Report progress for each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    return f"counted to {steps}"


@server.tool
async def chatter(ctx: Context) -> str:
    """Log one message of each of three levels."""
    await ctx.debug("a debug line")
    await ctx.info("an info line")
    await ctx.error("an error line")
    return "logged"


@server.tool
async def slow(seconds: float, key: str) -> str:
    """Sleep; write to the journal how it ended."""
    journal("started", key)
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        journal("cancelled", key)
        raise
    journal("finished", key)
    return "slept"


@server.tool(output_schema=None)
async def large(size: int) -> str:
    """Text of the given length."""
    return "x" * size


@server.tool
async def pid() -> int:
    """The process id of the server."""
    return os.getpid()


@server.tool(output_schema=None)
async def book(ctx: Context, city: str) -> Any:
    """Ask the user for a day and a number of seats."""
    if ctx.session.can_send_request:
        answer = await ctx.elicit("Which day?", Day)
        chosen = answer.data if isinstance(answer, AcceptedElicitation) else None
    else:
        said = (ctx.input_responses or {}).get("day")
        if said is None:
            form = types.ElicitRequestFormParams(message="Which day?", requested_schema=Day.model_json_schema())
            request = types.ElicitRequest(method="elicitation/create", params=form)
            return types.InputRequiredResult(result_type="input_required", input_requests={"day": request})
        chosen = Day.model_validate(said.content)
    return f"{chosen.seats} seats to {city} on {chosen.day}" if chosen else "nothing booked"


@server.resource("interop://note", mime_type="text/plain")
def note() -> str:
    """A text."""
    return NOTE


@server.resource("interop://dot", mime_type="application/octet-stream")
def dot() -> bytes:
    """All bytes there are."""
    return bytes(range(256))


@server.resource("interop://watched")
def watched() -> str:
    """A text to watch."""
    return "watched"


@server.resource("interop://items/{kind}/{name}", mime_type="application/json")
def item(kind: str, name: str) -> dict[str, str]:
    """One of many."""
    return {"kind": kind, "name": name}


@server.prompt
def greet(name: str, mood: str = "calm") -> str:
    """Greet somebody."""
    return f"Greet {name}, {mood}."


@server.prompt
def brief() -> list[Message]:
    """Messages of several kinds."""
    contents = types.TextResourceContents(uri="interop://note", text=NOTE, mime_type="text/plain")
    return [
        Message("I listen.", role="assistant"),
        Message(types.ImageContent(type="image", data="aGk=", mime_type="image/png")),
        Message(types.EmbeddedResource(type="resource", resource=contents)),
    ]


@server.prompt
def plain() -> str:
    """No arguments."""
    return "Plain."


@server.completion
async def complete(reference: Any, argument: Any, context: Any) -> types.Completion:
    """All completions of this server."""
    given = (context.arguments if context is not None else None) or {}
    if isinstance(reference, types.PromptReference):
        if reference.name != "greet":
            raise MCPError(-32602, "Unknown prompt")
        if argument.name == "mood":
            values = [f"{argument.value}{number}" for number in range(150)]
            return types.Completion(values=values[:100], total=150, has_more=True)
        values = NAMES
    else:
        values = list(ITEMS) if argument.name == "kind" else ITEMS.get(given.get("kind", ""), [])
    found = [value for value in values if value.startswith(argument.value)]
    return types.Completion(values=found, total=len(found), has_more=False)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        server.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
