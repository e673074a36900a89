"""The interop fixture served by the official Python SDK; the same names as in the other fixtures.

Runs in the peers environment. Arguments: `stdio`, or `http PORT`, or `sse PORT`; the journal file comes by
INTEROP_JOURNAL.
"""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import anyio
import mcp_types as types
from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import AssistantMessage, UserMessage
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

server = MCPServer("interop-python", version="1.0", instructions="a fixture")

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


@server.tool(structured_output=False)
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
    raise ToolError(reason)


@server.tool()
async def count(ctx: Context, steps: int) -> str:
    """Report progress for each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(0.01)
    await anyio.sleep(0.2)
    return f"counted to {steps}"


@server.tool()
async def chatter(ctx: Context) -> str:
    """Log one message of each of three levels."""
    await ctx.log("debug", "a debug line")
    await ctx.log("info", "an info line")
    await ctx.log("error", "an error line")
    return "logged"


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


@server.tool(structured_output=False)
async def large(size: int) -> str:
    """Text of the given length."""
    return "x" * size


@server.tool()
async def pid() -> int:
    """The process id of the server."""
    return os.getpid()


# ---------------------------------------------------------------- asking


class Day(BaseModel):
    day: str
    seats: int = 1


class One(BaseModel):
    value: str


def ask_day() -> Elicit[Day]:
    return Elicit("Which day?", Day)


def ask_name() -> Elicit[One]:
    return Elicit("Your name?", One)


def ask_secret() -> Elicit[One]:
    return Elicit("Your secret?", One)


def ask_colour(name: Annotated[One, Resolve(ask_name)]) -> Elicit[One]:
    return Elicit(f"Your colour, {name.value}?", One)


def ask_model(about: str) -> Sample:
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=about))
    return Sample([said], max_tokens=50)


def ask_greeting() -> Sample:
    return ask_model("greeting")


def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool(structured_output=False)
async def book(city: str, chosen: Annotated[Day, Resolve(ask_day)]) -> str:
    """Ask the user for a day and a number of seats."""
    return f"{chosen.seats} seats to {city} on {chosen.day}"


@server.tool(structured_output=False)
async def refuse(answer: Annotated[ElicitationResult[One], Resolve(ask_secret)]) -> str:
    """Ask what the user does not want to answer."""
    return answer.data.value if isinstance(answer, AcceptedElicitation) else f"not told: {answer.action}"


@server.tool(structured_output=False)
async def sign(ctx: Context) -> str:
    """Ask the user to open a page; the handshake era only."""
    answer = await ctx.elicit_url("Please sign", "https://example.com/sign", "one")
    return "signed" if answer.action == "accept" else "not signed"


@server.tool(structured_output=False)
async def think(about: str, answer: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
    """Ask the client's model."""
    return f"{answer.model}: {answer.content.text}"


@server.tool(structured_output=False)
async def where(roots: Annotated[types.ListRootsResult, Resolve(ask_roots)]) -> str:
    """Ask the client for its folders."""
    return " ".join(str(root.uri) for root in roots.roots)


@server.tool(structured_output=False)
async def tour(name: Annotated[One, Resolve(ask_name)], colour: Annotated[One, Resolve(ask_colour)]) -> str:
    """Ask twice, the second time with what the first answer said."""
    journal("toured", "once")
    return f"{name.value} likes {colour.value}"


@server.tool(structured_output=False)
async def together(
    name: Annotated[One, Resolve(ask_name)],
    answer: Annotated[types.CreateMessageResult, Resolve(ask_greeting)],
    roots: Annotated[types.ListRootsResult, Resolve(ask_roots)],
) -> str:
    """Three questions at once."""
    return f"{name.value}, {answer.content.text}, {len(roots.roots)} roots"


# ---------------------------------------------------------------- change

watched_uris: set[str] = set()  # by the one client that a fixture serves


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    watched_uris.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    watched_uris.discard(str(params.uri))
    return types.EmptyResult()


# The high-level server has no door for the handshake era's subscriptions.
server._lowlevel_server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
server._lowlevel_server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


@server.tool(structured_output=False)
async def touch(ctx: Context, uri: str) -> str:
    """Tell everybody who watches a resource that it changed."""
    await ctx.notify_resource_updated(uri)
    if uri in watched_uris:
        await ctx.session.send_resource_updated(uri)
    return "touched"


@server.tool(structured_output=False)
async def change(ctx: Context, kind: str) -> str:
    """Tell everybody that a list changed."""
    session = ctx.session
    tell = {
        "tools": (ctx.notify_tools_changed, session.send_tool_list_changed),
        "prompts": (ctx.notify_prompts_changed, session.send_prompt_list_changed),
        "resources": (ctx.notify_resources_changed, session.send_resource_list_changed),
    }
    for one in tell[kind] if session.can_send_request else tell[kind][:1]:
        await one()
    return "changed"


# ---------------------------------------------------------------- resources, prompts, completion


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


@server.prompt()
def greet(name: str, mood: str = "calm") -> str:
    """Greet somebody."""
    return f"Greet {name}, {mood}."


@server.prompt()
def brief() -> list[Any]:
    """Messages of several kinds."""
    contents = types.TextResourceContents(uri="interop://note", text=NOTE, mime_type="text/plain")
    return [
        AssistantMessage("I listen."),
        UserMessage(types.ImageContent(type="image", data="aGk=", mime_type="image/png")),
        UserMessage(types.EmbeddedResource(type="resource", resource=contents)),
    ]


@server.prompt()
def plain() -> str:
    """No arguments."""
    return "Plain."


@server.completion()
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
        server.run("stdio")
    elif sys.argv[1] == "sse":
        server.run("sse", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
