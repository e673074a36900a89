"""Prompts and resources as tools, and the lists of a server that a handler gets."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

import pytest

from gemel import Caller, CallNext, Client, Context, Item, Message, Router, Server, prompt_tools, resource_tools

Era: TypeAlias = Literal["2025", "2026"]
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def library(**options: Any) -> Server[Any]:
    """A server with two prompts, two resources and a template, one on each page, and the tools for them."""
    server = Server("library", page_size=1, **options)

    @server.prompt
    def review(title: str, stars: int = 3) -> str:
        """Ask for a review."""
        return f"Review {title} with {stars} stars."

    @server.prompt
    def pair() -> list[Message]:
        return [Message("first", role="assistant"), Message("second")]

    @server.resource("book://one", mime_type="text/plain")
    def one() -> str:
        return "The first book."

    @server.resource("book://cover")
    def cover() -> bytes:
        return b"\0cover"

    @server.resource("author://{name}")
    def author(name: str) -> str:
        return f"About {name}."

    server.include(prompt_tools())
    server.include(resource_tools())
    return server


async def text_of(client: Client, tool: str, **arguments: Any) -> str:
    return (await client.call_tool(tool, arguments)).text


@both_eras
async def test_a_client_that_knows_only_tools_gets_prompts(era: Era) -> None:
    async with Client(library(), era=era) as client:
        listed = json.loads(await text_of(client, "list_prompts"))
        assert [(each["name"], each["description"]) for each in listed] == [
            ("pair", None),
            ("review", "Ask for a review."),
        ]
        assert [(each["name"], each["required"]) for each in listed[1]["arguments"]] == [
            ("title", True),
            ("stars", False),
        ]
        got = json.loads(await text_of(client, "get_prompt", name="review", arguments={"title": "Emma", "stars": 5}))
        assert got == {"messages": [{"role": "user", "content": "Review Emma with 5 stars."}]}
        got = json.loads(await text_of(client, "get_prompt", name="pair"))
        assert [each["role"] for each in got["messages"]] == ["assistant", "user"]


@both_eras
async def test_a_client_that_knows_only_tools_gets_resources(era: Era) -> None:
    async with Client(library(), era=era) as client:
        listed = json.loads(await text_of(client, "list_resources"))
        assert [each.get("uri") or each["uri_template"] for each in listed] == [
            "book://cover",
            "book://one",
            "author://{name}",
        ]
        assert await text_of(client, "read_resource", uri="book://one") == "The first book."
        assert await text_of(client, "read_resource", uri="book://cover") == "AGNvdmVy"
        assert await text_of(client, "read_resource", uri="author://Austen") == "About Austen."


@both_eras
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("get_prompt", {"name": "missing"}, "missing"),
        ("get_prompt", {"name": "review"}, "title"),
        ("read_resource", {"uri": "book://none"}, "book://none"),
    ],
)
async def test_the_model_reads_what_was_wrong(era: Era, tool: str, arguments: dict[str, Any], words: str) -> None:
    async with Client(library(), era=era) as client:
        result = await client.call_tool(tool, arguments, raise_on_error=False)
        assert result.is_error
        assert words in result.text


@both_eras
async def test_what_a_caller_may_not_see_is_not_served_by_the_tools(era: Era) -> None:
    server = library()

    @server.visibility
    def public(item: Item, caller: Caller) -> bool:
        return item.name not in ("review", "book://one")

    async with Client(server, era=era) as client:
        assert [each["name"] for each in json.loads(await text_of(client, "list_prompts"))] == ["pair"]
        listed = json.loads(await text_of(client, "list_resources"))
        assert "book://one" not in [each.get("uri") for each in listed]
        for tool, arguments in (("get_prompt", {"name": "review"}), ("read_resource", {"uri": "book://one"})):
            assert (await client.call_tool(tool, arguments, raise_on_error=False)).is_error


@both_eras
async def test_the_tools_go_through_the_middleware(era: Era) -> None:
    server, methods = library(), []

    async def observe(ctx: Context, call_next: CallNext) -> Any:
        methods.append(ctx.method)
        return await call_next(ctx)

    server.add_middleware(observe)
    async with Client(server, era=era) as client:
        await client.call_tool("read_resource", {"uri": "book://one"})
        assert methods[-2:] == ["tools/call", "resources/read"]


@both_eras
async def test_a_server_without_prompts_and_resources_lists_none(era: Era) -> None:
    server = Server("empty")
    server.include(prompt_tools())
    server.include(resource_tools(), "library")
    async with Client(server, era=era) as client:
        assert json.loads(await text_of(client, "list_prompts")) == []
        assert json.loads(await text_of(client, "library_list_resources")) == []


@both_eras
async def test_structured_text_lists_an_output_schema(era: Era) -> None:
    server = Server("library")
    server.include(prompt_tools(structured_text=True))
    async with Client(server, era=era) as client:
        assert all(tool.output_schema for tool in await client.list_tools())


@both_eras
async def test_a_handler_gets_the_whole_lists_of_its_server(era: Era) -> None:
    server, router = library(), Router()

    @router.tool
    async def listed(ctx: Context) -> list[str]:
        tools, prompts = await ctx.list_tools(), await ctx.list_prompts()
        return [tool.name for tool in tools] + [prompt.name for prompt in prompts]

    @router.tool
    def listed_in_a_thread(ctx: Context) -> list[str]:
        return [each.uri for each in ctx.sync.list_resources()] + [
            each.uri_template for each in ctx.sync.list_resource_templates()
        ]

    server.include(router)
    async with Client(server, era=era) as client:
        names = [tool.name for tool in await client.list_tools()] + ["pair", "review"]
        assert (await client.call_tool("listed", returns=list[str])).data == names
        uris = ["book://cover", "book://one", "author://{name}"]
        assert (await client.call_tool("listed_in_a_thread", returns=list[str])).data == uris
