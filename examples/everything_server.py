"""A tour of what a server can offer, in the public API. Run it with `hinge run examples/everything_server.py [--http]`.

It is also the server that the official conformance suite talks to, which is why the names begin with `test_`.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from hinge import (
    AudioContent,
    Changed,
    ContentBlock,
    Context,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    Server,
    TextContent,
    Titled,
    ToolError,
)

server = Server(
    "everything",
    version="1.0",
    title="Everything",
    instructions="Every feature once. Call a tool by its name to see it.",
)


def red_dot() -> str:
    """A picture of one red pixel, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(png).decode()


def silence() -> str:
    """A moment of silence as a WAV file, in base64."""
    samples = bytes(16)
    head = (
        b"RIFF"
        + struct.pack("<I", 36 + len(samples))
        + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    )
    return base64.b64encode(head + b"data" + struct.pack("<I", len(samples)) + samples).decode()


# ---------------------------------------------------------------- content


@server.tool
def test_simple_text() -> str:
    """Plain text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> ImageContent:
    """A picture."""
    return ImageContent(data=red_dot(), mime_type="image/png")


@server.tool
def test_audio_content() -> AudioContent:
    """A sound."""
    return AudioContent(data=silence(), mime_type="audio/wav")


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """A resource inside the result."""
    contents = ResourceContents(
        uri="test://embedded-resource", text="This is an embedded resource.", mime_type="text/plain"
    )
    return EmbeddedResource(resource=contents)


@server.tool
def test_multiple_content_types() -> list[ContentBlock]:
    """Several kinds of content at once."""
    contents = ResourceContents(uri="test://mixed", text='{"test": "data"}', mime_type="application/json")
    return [
        TextContent(text="Several kinds of content:"),
        ImageContent(data=red_dot(), mime_type="image/png"),
        EmbeddedResource(resource=contents),
    ]


class Sum(msgspec.Struct):
    """A sum and how it came about."""

    total: int
    terms: list[int]


@server.tool
async def add(a: int, b: int) -> Sum:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return Sum(total=a + b, terms=[a, b])


# ---------------------------------------------------------------- what happens under way


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Three log messages while it works."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
        await asyncio.sleep(0.05)
    return "Done, with three log messages."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """A log message, for those who want it."""
    await ctx.info("A message for those who asked")
    return "Logged, if you asked for it."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Progress in three steps."""
    for progress in (0, 50, 100):
        await ctx.progress(progress, 100, f"Completed step {progress} of 100")
        await asyncio.sleep(0.05)
    return "Done, with progress."


@server.tool
async def slow(seconds: float = 10.0) -> str:
    """Take a while; cancel it any time."""
    await asyncio.sleep(seconds)
    return f"Slept for {seconds} seconds."


@server.tool
def test_error_handling() -> str:
    """Fail, and say why."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the response stream half-way; the client comes back for the result."""
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
    """A schema of one's own, kept word for word and checked before the call."""
    return f"Called with {sorted(arguments)}."


@server.tool
async def test_x_mcp_header(region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
    """An argument that HTTP clients repeat in a header, for gateways that route by it."""
    return f"Served for region {region}."


# ---------------------------------------------------------------- asking


@server.tool
async def test_sampling(ctx: Context, prompt: str) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {_text(answer.content)}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Needs a client that lets us ask its model."""
    answer = await ctx.sample("Say yes", max_tokens=10)
    return _text(answer.content)


def _text(content: Any) -> str:
    block = content[0] if isinstance(content, list) else content
    return block.text if isinstance(block, TextContent) else type(block).__name__


@dataclass
class Account:
    """Who somebody is."""

    username: str
    email: Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})]


@server.tool
async def test_elicitation(ctx: Context, message: str) -> str:
    """Ask the user to fill in a form."""
    found = await ctx.elicit(message, Account)
    return f"User response: {found.username} <{found.email}>"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask while working; a stateless client is never sent a request."""
    await ctx.progress(1, 2)
    return f"Hello, {await ctx.elicit('What is your name?', str)}."


class Profile(msgspec.Struct):
    """A form in which every field is filled in already."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """A form with defaults."""
    return f"Elicitation completed: {await ctx.elicit('Review and update the form', Profile)}"


class Choices(msgspec.Struct):
    """Every way of choosing."""

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
    """A form of choices."""
    return f"Elicitation completed: {await ctx.elicit('Choose', Choices)}"


# ---------------------------------------------------------------- asking, round by round


class Name(msgspec.Struct):
    """A name."""

    name: str


class Color(msgspec.Struct):
    """A colour."""

    color: str


class Topic(msgspec.Struct):
    """What it is about."""

    context: str


class Consent(msgspec.Struct):
    """Yes or no."""

    ok: bool


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """One question to the user."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.name}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """One question to the model."""
    return _text((await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")).content)


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """One question for the roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"Found {len(roots)} roots."


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """What was done before the question is remembered."""
    started = await ctx.step(lambda: "state-ok")
    await ctx.elicit("Please confirm", Consent, key="confirm")
    return f"Confirmed: {started}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Three questions in one round."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Write a greeting", max_tokens=50, key="greeting"),
        ctx.list_roots(key="client_roots"),
    )
    return f"{_text(greeting.content)}, {name.name}, with {len(roots)} roots"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Two questions, the second after the first."""
    found = await ctx.elicit("Step 1: what is your name?", Name, key="step1")
    liked = await ctx.elicit("Step 2: what is your favourite colour?", Color, key="step2")
    return f"{found.name} likes {liked.color}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """A state that was changed on its way is refused."""
    await ctx.elicit("Please confirm", Consent, key="confirm")
    return "Confirmed"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the client can answer."""
    said = []
    if ctx.client_capabilities.sampling is not None:
        said.append(_text((await ctx.sample("Say something", max_tokens=20, key="sampled")).content))
    if ctx.client_capabilities.elicitation is not None:
        said.append(await ctx.elicit("Say something", str, key="elicited"))
    return ", ".join(said) or "Nobody to ask"


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks first."""
    topic = await ctx.elicit("What should the prompt be about?", Topic, key="user_context")
    return f"Tell me about {topic.context}."


# ---------------------------------------------------------------- change


@server.tool
def test_trigger_tool_change() -> str:
    """Tell everybody that the list of tools changed."""
    server.notify(Changed("tools"))
    return "Told."


@server.tool
def test_trigger_prompt_change() -> str:
    """Tell everybody that the list of prompts changed."""
    server.notify(Changed("prompts"))
    return "Told."


# ---------------------------------------------------------------- resources


@server.resource("test://static-text", mime_type="text/plain", ttl=60, scope="public")
def test_static_text() -> str:
    """A text that never changes, so clients may keep it for a minute."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def test_static_binary() -> bytes:
    """A picture."""
    return base64.b64decode(red_dot())


@server.resource("test://watched-resource")
def test_watched_resource() -> str:
    """A text that clients can watch for changes."""
    return "This is the content of the watched resource."


@server.resource("test://template/{id}/data")
def test_template_resource(id: str) -> dict[str, Any]:
    """One of many, made when it is read.

    Args:
        id: which one
    """
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@test_template_resource.complete("id")
def complete_id(value: str) -> list[str]:
    return [number for number in ("1", "12", "123") if number.startswith(value)]


@server.tool
def test_trigger_resource_change(uri: str) -> str:
    """Tell everybody who watches a resource that it changed."""
    server.notify(Changed("resource", uri))
    return "Told."


# ---------------------------------------------------------------- prompts


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: the first argument
        arg2: the second argument
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@test_prompt_with_arguments.complete("arg1")
def complete_arg1(value: str) -> list[str]:
    return [word for word in ("test", "testing", "tested", "other") if word.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: Annotated[str, "the resource to embed"]) -> list[PromptMessage]:
    """A prompt with a resource inside."""
    contents = ResourceContents(uri=resourceUri, text="Embedded resource content for testing.", mime_type="text/plain")
    return [
        PromptMessage(role="user", content=EmbeddedResource(resource=contents)),
        PromptMessage(role="user", content=TextContent(text="Please process the embedded resource above.")),
    ]


@server.prompt
def test_prompt_with_image() -> list[ContentBlock]:
    """A prompt with a picture."""
    return [ImageContent(data=red_dot(), mime_type="image/png"), TextContent(text="Please analyse the image above.")]


if __name__ == "__main__":
    server.run()
