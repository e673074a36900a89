"""Names that are registered twice: which one counts is an option of the server."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gemel import Client, DefinitionError, Router, Server, TextContent

How = Literal["replace", "keep"]


@pytest.mark.parametrize(("how", "counts"), [("replace", "second"), ("keep", "first")])
async def test_one_of_two_counts_everywhere(how: How, counts: str) -> None:
    server = Server("twice", on_duplicate=how)

    def register(text: str) -> None:
        server.tool("tool", description=text)(lambda: text)
        server.prompt("prompt")(lambda: text)

        @server.resource("x://{place}", name=text)
        def resource(place: str) -> str:
            return f"{text} {place}"

        server.resource("y://", name=text)(lambda: text)
        server.tool(f"other-{text}")(lambda: text)

    register("first")
    register("second")
    async with Client(server) as client:
        tools = await client.list_tools()
        assert [one.name for one in tools] == ["tool", "other-first", "other-second"]
        assert tools[0].description == counts
        assert (await client.call_tool("tool")).text == counts
        asked = (await client.get_prompt("prompt")).messages[0].content
        assert isinstance(asked, TextContent)
        assert asked.text == counts
        assert [one.name for one in await client.list_resource_templates()] == [counts]
        assert (await client.read_resource("x://a")).text == f"{counts} a"
        assert (await client.read_resource("y://")).text == counts


@pytest.mark.parametrize(("how", "counts"), [("replace", "second"), ("keep", "first")])
async def test_completions_belong_to_the_one_that_counts(how: How, counts: str) -> None:
    server = Server("twice", on_duplicate=how)

    def register(text: str) -> None:
        @server.prompt
        def prompt(name: str) -> str:
            return name

        @prompt.complete("name")
        def names(value: str) -> list[str]:
            return [text]

        @server.resource("x://{name}")
        def resource(name: str) -> str:
            return name

        @resource.complete("name")
        def more_names(value: str) -> list[str]:
            return [text]

    register("first")
    register("second")
    async with Client(server) as client:
        assert (await client.complete(prompt="prompt", argument="name")).values == [counts]
        assert (await client.complete(resource="x://{name}", argument="name")).values == [counts]


@pytest.mark.parametrize(("how", "counts"), [("replace", "second"), ("keep", "first")])
async def test_it_holds_for_what_is_included(how: How, counts: str) -> None:
    router = Router()
    router.tool("tool")(lambda: "second")
    router.resource("x://a", name="a")(lambda: "second")
    server = Server("twice", on_duplicate=how)
    server.tool("tool")(lambda: "first")
    server.resource("x://a", name="a")(lambda: "first")
    server.include(router)
    async with Client(server) as client:
        assert (await client.call_tool("tool")).text == counts
        assert (await client.read_resource("x://a")).text == counts


async def test_what_is_replaced_while_disabled_stays_hidden() -> None:
    server = Server("twice", on_duplicate="replace")
    server.tool("tool")(lambda: "first")
    server.disable("tool")
    server.tool("tool")(lambda: "second")
    async with Client(server) as client:
        assert await client.list_tools() == []


async def test_clients_are_told_of_a_replacement() -> None:
    server = Server("twice", on_duplicate="replace")
    server.tool("tool", description="first")(lambda: "first")
    async with Client(server) as client:
        assert (await client.list_tools())[0].description == "first"
        server.tool("tool", description="second")(lambda: "second")
        assert (await client.list_tools())[0].description == "second"


@pytest.mark.parametrize("given", ["warn", None, True])
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises(DefinitionError, match='"error", "replace" or "keep"'):
        Server("s", on_duplicate=given)
    with pytest.raises(DefinitionError, match='"error", "replace" or "keep"'):
        Router(on_duplicate=given)
