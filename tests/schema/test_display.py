"""What user interfaces and hosts read from a listing."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Client, Implementation, Prompt, Resource, ResourceTemplate, Server, Tool, ToolAnnotations
from gemel.schema.prompts import PromptArgument

SCHEMA: dict[str, Any] = {"type": "object"}


@pytest.mark.parametrize("title", [None, "", "Shown"])
def test_the_title_is_shown_or_else_the_name(title: str | None) -> None:
    """NAME-01."""
    items: list[Any] = [
        Implementation(name="n", version="1", title=title),
        Prompt(name="n", title=title),
        PromptArgument(name="n", title=title),
        Resource(uri="a:b", name="n", title=title),
        ResourceTemplate(uri_template="a:{b}", name="n", title=title),
        Tool(name="n", input_schema=SCHEMA, title=title),
    ]
    assert {item.display_name for item in items} == {title or "n"}


def test_the_title_of_a_tools_annotations_comes_second() -> None:
    """NAME-01."""
    annotations = ToolAnnotations(title="second")
    assert Tool(name="n", input_schema=SCHEMA, title="first", annotations=annotations).display_name == "first"
    assert Tool(name="n", input_schema=SCHEMA, annotations=annotations).display_name == "second"
    assert Tool(name="n", input_schema=SCHEMA, annotations=ToolAnnotations()).display_name == "n"


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_names_identify_and_titles_are_shown(era: Any) -> None:
    """NAME-01: a title never replaces the name in a request."""
    server: Server[Any] = Server("named", title="A server")
    server.tool("add", title="Add things")(lambda: "added")
    async with Client(server, era=era) as client:
        (tool,) = await client.list_tools()
        assert (tool.name, tool.display_name) == ("add", "Add things")
        assert (await client.call_tool(tool.name)).text == "added"
        assert client.server_info is not None
        assert client.server_info.display_name == "A server"
