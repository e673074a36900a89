"""Text that is not Unicode, as names of files may be: replaced where it is text, kept in URIs, refused where it identifies.

`tests/wire/scenarios/texts.txt` has what clients get on every transport.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec
import pytest
from pydantic import BaseModel

from gemel import (
    CallToolResult,
    Client,
    Context,
    CreateMessageResult,
    EmbeddedResource,
    File,
    GemelError,
    NotSent,
    PeerError,
    ProtocolError,
    ResourceContents,
    ResultLimit,
    Server,
    Tasks,
    TextContent,
)
from gemel.values.encoding import NotSerializable, encode_value
from gemel.values.unicode import replace_surrogates
from tests.transports.http_rig import serving

NAME = "caf\udce9"
SHOWN = "caf\ufffd"
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Entry(msgspec.Struct, rename="camel", omit_defaults=True):
    file_name: str
    uri: str | None = None


@dataclass
class Plain:
    name: str


class Modeled(BaseModel):
    name: str


class Kind(enum.Enum):
    ODD = NAME


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (NAME, SHOWN),
        ("\ud83d\ude00 \ud83d x", "😀 \ufffd x"),
        ({NAME: [NAME, 1, None, True]}, {SHOWN: [SHOWN, 1, None, True]}),
        ((NAME, {"a": {NAME}}), [SHOWN, {"a": [SHOWN]}]),
        (Entry(NAME), {"fileName": SHOWN}),
        ([Entry("x", f"file:///{NAME}")], [{"fileName": "x", "uri": "file:///caf%E9"}]),
        (Plain(NAME), {"name": SHOWN}),
        ({"kind": Kind.ODD, "raw": msgspec.Raw(b"[1]")}, {"kind": SHOWN, "raw": [1]}),
        ({"uri": f"file:///é/{NAME}", "name": NAME}, {"uri": "file:///é/caf%E9", "name": SHOWN}),
    ],
)
def test_what_is_not_unicode_is_replaced(value: Any, written: Any) -> None:
    assert json.loads(encode_value(value)) == written


@pytest.mark.parametrize(
    "value",
    [
        {"cursor": NAME},
        {"nextCursor": NAME},
        {"taskId": "\ud800"},
        {"uri": "file:///\ud83d"},
        dict.fromkeys(["a\udce9", "a\udce8"]),
    ],
)
def test_what_would_name_something_else_is_refused(value: Any) -> None:
    with pytest.raises(NotSerializable, match="not Unicode"):
        encode_value(value)


def test_types_that_msgspec_does_not_know_are_converted_as_its_encoder_does() -> None:
    assert replace_surrogates({"path": PurePosixPath(NAME)}, str) == {"path": SHOWN}


def listing(**options: Any) -> Server[Any]:
    """A server whose functions say a name that is not Unicode in each way that there is."""
    server: Server[Any] = Server("listing", **options)
    server.add_extension(Tasks(poll_interval=0.01))

    @server.tool
    def text() -> str:
        return NAME

    @server.tool
    def free() -> Any:
        return {NAME: [NAME]}

    @server.tool
    def model() -> Modeled:
        return Modeled(name=NAME)

    @server.tool
    def whole() -> CallToolResult:
        return CallToolResult(content=[TextContent(text=NAME)], structured_content={"name": NAME})

    @server.tool
    def file() -> File:
        return File(data=b"x", name=NAME)

    @server.tool(task=True)
    def refuse() -> str:
        raise ProtocolError(NAME, {"uri": f"file:///{NAME}"}, code=7)

    @server.tool
    async def nested(ctx: Context[Any]) -> str:
        return (await ctx.call_tool("echo", {"text": NAME})).text

    @server.tool
    async def step(ctx: Context[Any]) -> str:
        return await ctx.step(lambda: NAME)

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit(f"Delete {NAME}?")

    @server.tool
    async def sample(ctx: Context[Any]) -> str:
        answer = await ctx.sample(f"What is {NAME}?")
        return getattr(answer.content, "text", "")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.prompt
    def brief(about: str = "") -> str:
        return about or NAME

    @brief.complete("about")
    def completions(value: str) -> list[str]:
        return [NAME, value]

    @server.resource("list://one")
    def one() -> ResourceContents:
        return ResourceContents(uri=f"file:///{NAME}", text=NAME)

    @server.request("acme/echo")
    async def custom(ctx: Context[Any], params: Any) -> Any:
        return {"text": NAME, "given": params["text"]}

    return server


CALLBACKS: dict[str, Any] = {
    "on_elicit": lambda form: {"value": form.message},
    "on_sample": lambda params: CreateMessageResult(
        role="assistant", content=TextContent(text=getattr(params.messages[0].content, "text", "")), model="m"
    ),
}


async def check_texts(client: Client) -> None:
    """Ask for the name in each way."""
    for tool in ("text", "step"):
        assert (await client.call_tool(tool)).text == SHOWN
    assert json.loads((await client.call_tool("free")).text) == {SHOWN: [SHOWN]}
    assert (await client.call_tool("model")).structured_content == {"name": SHOWN}
    whole = await client.call_tool("whole")
    assert (whole.text, whole.structured_content) == (SHOWN, {"name": SHOWN})
    (embedded,) = (await client.call_tool("file")).content
    assert isinstance(embedded, EmbeddedResource)
    assert embedded.resource.uri == "file:///caf%E9"
    with pytest.raises(PeerError) as refused:
        await client.call_tool("refuse")
    assert (refused.value.message, refused.value.data) == (SHOWN, {"uri": "file:///caf%E9"})
    assert (await client.call_tool("echo", {"text": NAME})).text == SHOWN
    assert (await client.call_tool("nested")).text == SHOWN
    assert (await client.call_tool("ask")).text == f"Delete {SHOWN}?"
    assert (await client.call_tool("sample")).text == f"What is {SHOWN}?"
    for prompt in (await client.get_prompt("brief"), await client.get_prompt("brief", {"about": NAME})):
        assert msgspec.to_builtins(prompt)["messages"][0]["content"]["text"] == SHOWN
    assert (await client.complete(prompt="brief", argument="about", value=NAME)).values == [SHOWN, SHOWN]
    (contents,) = (await client.read_resource("list://one")).contents
    assert (contents.uri, contents.text) == ("file:///caf%E9", SHOWN)
    assert await client.request("acme/echo", {"text": NAME}) | {"_meta": None, "resultType": ""} == {
        "text": SHOWN,
        "given": SHOWN,
        "_meta": None,
        "resultType": "",
    }


@both_eras
@pytest.mark.parametrize("options", [{}, {"middleware": [ResultLimit(100_000)]}, {"omit_repeated_text": True}])
async def test_it_reaches_the_peer_in_both_directions(era: Literal["2025", "2026"], options: dict[str, Any]) -> None:
    async with Client(listing(**options), era=era, **CALLBACKS) as client:
        await check_texts(client)


@both_eras
async def test_it_does_so_over_http(era: Literal["2025", "2026"]) -> None:
    async with (
        serving(listing()) as site,
        Client(f"http://127.0.0.1:{site.port}/mcp", era=era, **CALLBACKS) as client,
    ):
        await check_texts(client)
        with pytest.raises(PeerError, match="caf%E9"):
            await client.read_resource(f"none://{NAME}")


@both_eras
async def test_a_task_that_fails_with_it_has_its_error(era: Literal["2025", "2026"]) -> None:
    async with Client(listing(), era=era) as client:
        task = await client.call_tool("refuse", task=True)
        with pytest.raises(PeerError, match=SHOWN):
            await task.result(total=30)


@both_eras
async def test_names_and_cursors_are_refused_before_they_are_sent(era: Literal["2025", "2026"]) -> None:
    async with Client(listing(), era=era) as client:
        for call in (
            client.call_tool(NAME),
            client.get_prompt(NAME),
            client.complete(prompt=NAME, argument="about"),
            client.complete(prompt="brief", argument=NAME),
        ):
            with pytest.raises(NotSent, match="not Unicode"):
                await call
        with pytest.raises(GemelError, match="not Unicode"):
            await client.request("tools/list", {"cursor": NAME})
