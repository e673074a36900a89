"""The interop fixture served by Gemel: the same names as in the foreign fixtures, in the public API only.

`gemel run` serves it; run as a script with a port it serves HTTP, and the first revision's HTTP+SSE beside it.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemel import (
    Changed,
    ContentBlock,
    Context,
    Declined,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    Server,
    TextContent,
    ToolError,
)

server: Server[None] = Server(
    "interop-gemel",
    version="1.0",
    instructions="a fixture",
    page_size=3,
    # Known, so that a process which takes another one's place can go on with its questions.
    state_keys=[b"interop" * 5],
)

NOTE = "a note: hé ☃"
DOT = bytes(range(256))
ITEMS = {"fruit": ["apple", "apricot", "pear"], "fish": ["perch", "pike"]}
NAMES = ["Ada", "Alan", "Grace"]


def journal(event: str, key: str) -> None:
    """Tell the runner what became of a call; it reads the file when the client is gone."""
    path = os.environ.get("INTEROP_JOURNAL")
    if path:
        with Path(path).open("a") as file:
            file.write(f"{event} {key} {time.time()}\n")


@server.add_middleware
async def note_listening(ctx: Context[None], call_next: Any) -> Any:
    """The journal tells when a subscription began and when the server let go of it."""
    if ctx.method not in ("subscriptions/listen", "resources/subscribe"):
        return await call_next(ctx)
    journal("began", ctx.method)
    try:
        return await call_next(ctx)
    finally:
        journal("ended", ctx.method)


# ---------------------------------------------------------------- tools


@dataclass
class Weather:
    city: str
    celsius: float


@server.tool
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
    return Weather(city, 21.5)


@server.tool
async def fail(reason: str) -> str:
    """Fail with the given reason."""
    raise ToolError(reason)


@server.tool
async def count(ctx: Context[None], steps: int) -> str:
    """Report progress for each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # the TypeScript client drops a notification that is directly followed by the result
    return f"counted to {steps}"


@server.tool
async def chatter(ctx: Context[None]) -> str:
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


@server.tool
async def large(size: int) -> str:
    """Text of the given length."""
    return "x" * size


@server.tool
async def pid() -> int:
    """The process id of the server."""
    return os.getpid()


# ---------------------------------------------------------------- asking


@dataclass
class Day:
    day: str
    seats: int = 1


def text_of(content: Any) -> str:
    block = content[0] if isinstance(content, list) else content
    return block.text if isinstance(block, TextContent) else type(block).__name__


@server.tool
async def book(ctx: Context[None], city: str) -> str:
    """Ask the user for a day and a number of seats."""
    chosen = await ctx.elicit("Which day?", Day)
    return f"{chosen.seats} seats to {city} on {chosen.day}"


@server.tool
async def refuse(ctx: Context[None]) -> str:
    """Ask what the user does not want to answer."""
    try:
        return await ctx.elicit("Your secret?", str)
    except Declined as declined:
        return f"not told: {declined.action}"


@server.tool
async def sign(ctx: Context[None]) -> str:
    """Ask the user to open a page."""
    await ctx.elicit_url("Please sign", "https://example.com/sign")
    return "signed"


@server.tool
async def think(ctx: Context[None], about: str) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(about, max_tokens=50)
    return f"{answer.model}: {text_of(answer.content)}"


@server.tool
async def where(ctx: Context[None]) -> str:
    """Ask the client for its folders."""
    return " ".join(root.uri for root in await ctx.list_roots())


@server.tool
async def tour(ctx: Context[None]) -> str:
    """Ask twice, the second time with what the first answer said; what comes before is done once."""
    await ctx.step(journal, "toured", "once")
    name = await ctx.elicit("Your name?", str)
    colour = await ctx.elicit(f"Your colour, {name}?", str)
    return f"{name} likes {colour}"


@server.tool
async def together(ctx: Context[None]) -> str:
    """Three questions at once."""
    name, answer, roots = await asyncio.gather(
        ctx.elicit("Your name?", str), ctx.sample("greeting", max_tokens=20), ctx.list_roots()
    )
    return f"{name}, {text_of(answer.content)}, {len(roots)} roots"


# ---------------------------------------------------------------- change


@server.tool
def touch(uri: str) -> str:
    """Tell everybody who watches a resource that it changed."""
    server.notify(Changed("resource", uri))
    return "touched"


async def extra() -> str:
    """Come and gone at run time."""
    return "extra"


_there: set[str] = set()


@server.tool
def change(kind: str) -> str:
    """Add a tool, prompt or resource, or take it away again."""
    adds: dict[str, Callable[[], Any]] = {
        "tools": lambda: server.tool(extra),
        "prompts": lambda: server.prompt(extra),
        "resources": lambda: server.resource("interop://extra")(extra),
    }
    removes: dict[str, Callable[[], Any]] = {
        "tools": lambda: server.remove_tool("extra"),
        "prompts": lambda: server.remove_prompt("extra"),
        "resources": lambda: server.remove_resource("interop://extra"),
    }
    (removes if kind in _there else adds)[kind]()
    _there.symmetric_difference_update({kind})
    return "changed"


# ---------------------------------------------------------------- resources


@server.resource("interop://note", mime_type="text/plain")
def note() -> str:
    """A text."""
    return NOTE


@server.resource("interop://dot", mime_type="application/octet-stream")
def dot() -> bytes:
    """All bytes there are."""
    return DOT


@server.resource("interop://watched")
def watched() -> str:
    """A text to watch."""
    return "watched"


@server.resource("interop://private")
async def private(ctx: Context[None]) -> str:
    """A text that asks who reads it."""
    return f"for {await ctx.elicit('Your name?', str)}"


@server.resource("interop://items/{kind}/{name}", mime_type="application/json")
def item(kind: str, name: str) -> dict[str, str]:
    """One of many."""
    return {"kind": kind, "name": name}


@item.complete("kind")
def complete_kind(value: str) -> list[str]:
    return [kind for kind in ITEMS if kind.startswith(value)]


@item.complete("name")
def complete_item(value: str, given: dict[str, str]) -> list[str]:
    return [name for name in ITEMS.get(given.get("kind", ""), []) if name.startswith(value)]


# ---------------------------------------------------------------- prompts


@server.prompt
def greet(name: str, mood: str = "calm") -> str:
    """Greet somebody.

    Args:
        name: who is greeted
        mood: how it is meant
    """
    return f"Greet {name}, {mood}."


@greet.complete("name")
def complete_name(value: str) -> list[str]:
    return [name for name in NAMES if name.startswith(value)]


@greet.complete("mood")
def complete_mood(value: str) -> list[str]:
    return [f"{value}{number}" for number in range(150)]


@server.prompt
def brief() -> list[PromptMessage]:
    """Messages of several kinds."""
    contents = ResourceContents(uri="interop://note", text=NOTE, mime_type="text/plain")
    blocks: list[ContentBlock] = [
        ImageContent(data="aGk=", mime_type="image/png"),
        EmbeddedResource(resource=contents),
    ]
    said = [PromptMessage(role="assistant", content=TextContent(text="I listen."))]
    return said + [PromptMessage(role="user", content=block) for block in blocks]


@server.prompt
async def interview(ctx: Context[None]) -> str:
    """Ask first."""
    return f"Interview {await ctx.elicit('Your name?', str)}."


@server.prompt
def plain() -> str:
    """No arguments."""
    return "Plain."


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), sse_path="/sse")
