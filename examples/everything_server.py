"""A server with every feature of the public API. Run it with `gemel run examples/everything_server.py [--http]`.

In this order: content, logging and progress, schemas, elicitation, change notifications, resources, prompts, dependencies,
visibility, skills, apps, tasks, middleware, custom methods, mounted servers. The official conformance suite runs against
this server, so many names begin with `test_`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gemel import (
    Apps,
    Ask,
    Audio,
    CacheHint,
    Changed,
    ContentBlock,
    Context,
    Csp,
    Depends,
    EmbeddedResource,
    Image,
    ImageContent,
    InternalError,
    LogToClient,
    Message,
    ResourceContents,
    Router,
    Server,
    Tasks,
    TextContent,
    Titled,
    ToolError,
)
from gemel.server.middleware.chain import CallNext

# ---------------------------------------------------------------- the server


@dataclass
class Shop:
    """State that all calls share; in a real server, a database."""

    stock: dict[str, int] = field(default_factory=lambda: {"tea": 3, "cups": 2})


@asynccontextmanager
async def lifespan(server: Server[Shop]) -> AsyncIterator[Shop]:
    """Create the shared state before the first call; clean up after the last one."""
    yield Shop()


server: Server[Shop] = Server(
    "everything",
    version="1.0",
    title="Everything",
    instructions="Every feature once. Call a tool by its name to see it.",
    lifespan=lifespan,
    cache={"prompts/list": CacheHint(ttl=60, scope="public")},
)

#: An image of one red pixel, and a short silent sound.
RED_DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
SILENCE = base64.b64decode("UklGRjQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YRAAAAAAAAAAAAAAAAAAAAAAAAAA")


# ---------------------------------------------------------------- content


@server.tool
def test_simple_text() -> str:
    """Return plain text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Image:
    """Return an image."""
    return Image(data=RED_DOT, format="png")


@server.tool
def test_audio_content() -> Audio:
    """Return audio."""
    return Audio(data=SILENCE, format="wav")


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """Return an embedded resource."""
    contents = ResourceContents(
        uri="test://embedded-resource", text="This is an embedded resource.", mime_type="text/plain"
    )
    return EmbeddedResource(resource=contents)


@server.tool
def test_multiple_content_types() -> list[str | Image | EmbeddedResource]:
    """Return several kinds of content."""
    contents = ResourceContents(uri="test://mixed", text='{"test": "data"}', mime_type="application/json")
    return ["Several kinds of content:", Image(data=RED_DOT, format="png"), EmbeddedResource(resource=contents)]


class Sum(msgspec.Struct):
    """A sum and its terms."""

    total: int
    terms: list[int]


@server.tool
async def add(a: int, b: int) -> Sum:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return Sum(total=a + b, terms=[a, b])


# ---------------------------------------------------------------- logging, progress, time limits


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Send three log messages during the call."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
        await asyncio.sleep(0.05)
    return "Done, with three log messages."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Send a log message to clients that request the level."""
    await ctx.info("A message for those who asked")
    return "Logged, if you asked for it."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress in three steps."""
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100, f"Completed step {progress} of 100")
        await asyncio.sleep(0.05)
    return "Done, with progress."


@server.tool
async def slow(seconds: float = 10.0) -> str:
    """Sleep; can be cancelled."""
    await asyncio.sleep(seconds)
    return f"Slept for {seconds} seconds."


@server.tool(timeout=5, concurrency=2, waiting=10)
def crunch(ctx: Context, count: int = 3) -> int:
    """A sync tool in a thread: two concurrent calls, ten more wait, with a timeout of five seconds."""
    for number in range(count):
        ctx.sync.report_progress(number + 1, count)
        if ctx.cancelled:
            break
    return count


log = logging.getLogger("everything")
log.addHandler(LogToClient())
log.setLevel(logging.INFO)


@server.tool
def chat() -> str:
    """Send records of Python's logging to the client."""
    log.info("somebody called")
    return "Logged by the logger that the rest of the program uses."


@server.tool
def test_error_handling() -> str:
    """Fail with a message."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the response stream early; the client reconnects for the result."""
    await ctx.close_stream(retry=500)
    await asyncio.sleep(0.1)
    return "Reconnected and done."


# ---------------------------------------------------------------- schemas and headers


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """A custom input schema, published unchanged; arguments are validated against it."""
    return f"Called with {sorted(arguments)}."


@server.tool
async def test_x_mcp_header(region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
    """An argument that HTTP clients repeat in a header, so that gateways can route by it."""
    return f"Served for region {region}."


# ---------------------------------------------------------------- sampling and elicitation


@server.tool
async def test_sampling(ctx: Context, prompt: str) -> str:
    """Request a message from the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {_text(answer.content)}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Requires a client with the sampling capability."""
    answer = await ctx.sample("Say yes", max_tokens=10)
    return _text(answer.content)


def _text(content: Any) -> str:
    block = content[0] if isinstance(content, list) else content
    return block.text if isinstance(block, TextContent) else type(block).__name__


@dataclass
class Account:
    """A form with two fields."""

    username: str
    email: Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})]


@server.tool
async def test_elicitation(ctx: Context, message: str) -> str:
    """Request a form from the user."""
    found = await ctx.elicit(message, Account)
    return f"User response: {found.username} <{found.email}>"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then request input; a stateless client never receives a request."""
    await ctx.report_progress(1, 2)
    return f"Hello, {await ctx.elicit('What is your name?', str)}."


class Profile(msgspec.Struct):
    """A form with a default for every field."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Request a form with defaults."""
    return f"Elicitation completed: {await ctx.elicit('Review and update the form', Profile)}"


class Choices(msgspec.Struct):
    """A form with every kind of choice."""

    untitled_single: Literal["option1", "option2", "option3"] = msgspec.field(name="untitledSingle")
    titled_single: Annotated[
        Literal["value1", "value2", "value3"],
        Titled(value1="First Option", value2="Second Option", value3="Third Option"),
    ] = msgspec.field(name="titledSingle")
    legacy_enum: Annotated[
        Literal["opt1", "opt2", "opt3"],
        Titled(opt1="Option One", opt2="Option Two", opt3="Option Three", old_form=True),
    ] = msgspec.field(name="legacyEnum")
    untitled_multi: list[Literal["option1", "option2", "option3"]] = msgspec.field(name="untitledMulti")
    titled_multi: Annotated[
        list[Literal["value1", "value2", "value3"]],
        Titled(value1="First Choice", value2="Second Choice", value3="Third Choice"),
    ] = msgspec.field(name="titledMulti")


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Request a form with choices."""
    return f"Elicitation completed: {await ctx.elicit('Choose', Choices)}"


@server.tool
async def sign_in(ctx: Context) -> str:
    """Ask the user to open a page, for data that must not pass through the client."""
    await ctx.elicit_url("Please sign in", "https://example.com/sign-in")
    return "You agreed to open the page."


@server.tool
async def welcome(city: str, name: Annotated[str, Ask("Who is travelling to {city}?")]) -> str:
    """Request a parameter from the user before the function runs; it is not part of the schema."""
    return f"{name}, welcome to {city}!"


# ---------------------------------------------------------------- input_required: requests with keys, several rounds


class Name(msgspec.Struct):
    """A form with a name."""

    name: str


class Color(msgspec.Struct):
    """A form with a colour."""

    color: str


class Topic(msgspec.Struct):
    """A form with a topic."""

    context: str


class Consent(msgspec.Struct):
    """A form with a yes-or-no field."""

    ok: bool


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Request one form."""
    return f"Hello, {(await ctx.elicit('What is your name?', Name, key='user_name')).name}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Request one message from the model."""
    return _text((await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")).content)


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Request the roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"Found {len(roots)} roots."


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Store the result of a step in the request state."""
    started = await ctx.step(lambda: "state-ok")
    await ctx.elicit("Please confirm", Consent, key="confirm")
    return f"Confirmed: {started}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Send three requests in one round."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Write a greeting", max_tokens=50, key="greeting"),
        ctx.list_roots(key="client_roots"),
    )
    return f"{_text(greeting.content)}, {name.name}, with {len(roots)} roots"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Send two requests, one after the other."""
    found = await ctx.elicit("Step 1: what is your name?", Name, key="step1")
    liked = await ctx.elicit("Step 2: what is your favourite colour?", Color, key="step2")
    return f"{found.name} likes {liked.color}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """A modified request state is rejected."""
    await ctx.elicit("Please confirm", Consent, key="confirm")
    return "Confirmed"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Send only requests that the client supports."""
    replies = []
    if ctx.client_capabilities.sampling is not None:
        replies.append(_text((await ctx.sample("Say something", max_tokens=20, key="sampled")).content))
    if ctx.client_capabilities.elicitation is not None:
        replies.append(await ctx.elicit("Say something", str, key="elicited"))
    return ", ".join(replies) or "The client supports neither sampling nor elicitation"


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that requests input first."""
    topic = await ctx.elicit("What should the prompt be about?", Topic, key="user_context")
    return f"Tell me about {topic.context}."


# ---------------------------------------------------------------- change notifications


@server.tool
def test_trigger_tool_change() -> str:
    """Send tools/list_changed."""
    server.notify(Changed("tools"))
    return "Sent."


@server.tool
def test_trigger_prompt_change() -> str:
    """Send prompts/list_changed."""
    server.notify(Changed("prompts"))
    return "Sent."


# ---------------------------------------------------------------- resources


@server.resource("test://static-text", mime_type="text/plain", ttl=60, scope="public")
def test_static_text() -> str:
    """A constant text that clients may cache for a minute."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def test_static_binary() -> bytes:
    """Return an image."""
    return RED_DOT


@server.resource("test://watched-resource")
def test_watched_resource() -> str:
    """A text that clients can subscribe to."""
    return "This is the content of the watched resource."


@server.resource("test://template/{id}/data")
def test_template_resource(id: str) -> dict[str, Any]:
    """A resource from a template.

    Args:
        id: The id in the URI.
    """
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@test_template_resource.complete("id")
def complete_id(value: str) -> list[str]:
    return [number for number in ("1", "12", "123") if number.startswith(value)]


@server.resource("test://lines/{count}")
def lines(count: int) -> Iterator[str]:
    """A resource in chunks."""
    for number in range(min(count, 1000)):
        yield f"line {number}\n"


# Serve the files of this folder.
server.add_files(Path(__file__).parent, "examples:///")


@server.tool
def test_trigger_resource_change(uri: str) -> str:
    """Send resources/updated to subscribers."""
    server.notify(Changed("resource", uri))
    return "Sent."


# ---------------------------------------------------------------- prompts


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: The first argument.
        arg2: The second argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@test_prompt_with_arguments.complete("arg1")
def complete_arg1(value: str) -> list[str]:
    return [word for word in ("test", "testing", "tested", "other") if word.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: Annotated[str, "the resource to embed"]) -> list[Message]:
    """A prompt with an embedded resource."""
    contents = ResourceContents(uri=resourceUri, text="Embedded resource content for testing.", mime_type="text/plain")
    return [
        Message(EmbeddedResource(resource=contents)),
        Message("Please process the embedded resource above."),
    ]


@server.prompt
def test_prompt_with_image() -> list[ContentBlock]:
    """A prompt with an image."""
    image = ImageContent(data=base64.b64encode(RED_DOT).decode(), mime_type="image/png")
    return [image, TextContent(text="Please analyse the image above.")]


# ---------------------------------------------------------------- dependencies


def shop_of(ctx: Context[Shop]) -> Shop:
    """Return the state of the lifespan."""
    return ctx.state


@server.tool(annotations={"destructive_hint": False, "idempotent_hint": False})
async def sell(item: str, shop: Annotated[Shop, Depends(shop_of, blocking=False)]) -> int:
    """Sell one item and return how many are left. The shop is injected, not passed by the caller."""
    left = shop.stock.get(item, 0)
    if left == 0:
        raise ToolError(f"There is no {item}. There is: {', '.join(shop.stock)}")
    shop.stock[item] = left - 1
    return left - 1


# ---------------------------------------------------------------- visibility


@server.tool(visible=lambda caller: "shop:write" in caller.scopes, tags=["admin"])
async def restock(item: str, shop: Annotated[Shop, Depends(shop_of, blocking=False)]) -> int:
    """A tool for callers with a scope; hidden from others."""
    shop.stock[item] = 10
    return shop.stock[item]


# ---------------------------------------------------------------- skills and apps

server.add_skills(Path(__file__).parent / "skills")
apps = server.add_extension(Apps())


@apps.page("ui://everything/shelf", csp=Csp(connect_domains=["https://api.example.com"]))
def shelf_page() -> str:
    """The page that a host shows beside the tool."""
    return "<!doctype html><title>Shelf</title><p>Tea and cups</p>"


@apps.tool(ui="ui://everything/shelf")
async def shelf(shop: Annotated[Shop, Depends(shop_of, blocking=False)]) -> dict[str, int]:
    """Return the stock, with a page for hosts that support apps."""
    return shop.stock


# ---------------------------------------------------------------- tasks

tasks = server.add_extension(Tasks(poll_interval=0.2))


@server.tool
def greet(name: str) -> str:
    """Greet somebody: a plain call, also for clients that use tasks."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(ctx: Context[Any], seconds: float = 1.0, label: str = "job") -> str:
    """Take some time. Clients that can't use tasks wait for the result."""
    for step in range(10):
        await ctx.report_progress(step, 10, label)
        await asyncio.sleep(min(seconds, 60) / 10)
    return f"{label}: computed for {seconds:g} seconds"


@server.tool(task="required")
async def failing_job() -> str:
    """Fail in the way that the model sees."""
    raise ToolError("This job always fails")


@server.tool(task=True)
async def protocol_error_job() -> str:
    """Fail in the way that the client sees."""
    raise InternalError("This job ends with an error of the protocol")


class Confirmation(msgspec.Struct):
    """Whether something shall really happen."""

    confirm: bool


@server.tool(task=True)
async def confirm_delete(filename: str, ctx: Context[Any]) -> str:
    """Ask in the middle of the task."""
    if (await ctx.elicit(f"Really delete {filename}?", Confirmation)).confirm:
        return f"{filename} is deleted"
    return f"{filename} is kept"


@server.tool(task=True)
async def multi_input(ctx: Context[Any]) -> str:
    """Ask two things at the same time."""
    person, answer = await asyncio.gather(
        ctx.elicit("Your name?", Name, key="name"), ctx.elicit("Is that right?", Confirmation, key="confirmation")
    )
    return f"{person.name}: {'yes' if answer.confirm else 'no'}"


@server.tool(task="required", task_start="handler")
async def test_tool_with_task(ctx: Context[Any]) -> str:
    """Ask first, in the rounds of the call; then go on as a task."""
    person = await ctx.elicit("What is your name?", Name, key="user_name")
    tasks.begin(ctx)
    await asyncio.sleep(0.1)
    return f"Hello, {person.name}!"


# ---------------------------------------------------------------- middleware and custom methods


async def timed(ctx: Context[Any], call_next: CallNext) -> Any:
    """Log the duration of every request and notification."""
    start = asyncio.get_running_loop().time()
    try:
        return await call_next(ctx)
    finally:
        log.debug("%s took %.1f ms", ctx.method, (asyncio.get_running_loop().time() - start) * 1000)


server.add_middleware(timed)


class Search(msgspec.Struct):
    """The parameters of a custom method."""

    words: str


@server.request("acme/search", params=Search)
async def search(ctx: Context[Shop], params: Search) -> dict[str, Any]:
    """A custom method."""
    return {"found": [item for item in ctx.state.stock if params.words in item]}


# ---------------------------------------------------------------- routers and mounted servers

router = Router()


@router.tool
async def route(start: str, end: str) -> str:
    """A tool of a router."""
    return f"{start} to {end}"


garden = Server("garden")


@garden.tool
async def plant(seed: str) -> str:
    """A tool of a mounted server, listed as `garden_plant`."""
    return f"planted {seed}"


server.include(router, prefix="map")
server.mount(garden, "garden")


if __name__ == "__main__":
    server.run()
