"""What of a listing is a contract: what differs there means something, and what means nothing doesn't differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gemel import (
    Annotations,
    Client,
    Contract,
    Implementation,
    InvalidResponse,
    Prompt,
    PromptMessage,
    Resource,
    ResourceTemplate,
    Server,
    Tool,
    ToolAnnotations,
    fetch_contract,
)
from gemel.contracts.canonical import fingerprint
from gemel.contracts.contract import definition_of, definitions, identity
from gemel.schema.prompts import PromptArgument
from tests.support import FIRST, REVISIONS, V2025_11, V2026_07

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}


def tool(**members: Any) -> Tool:
    return msgspec.structs.replace(Tool(name="t", input_schema=SCHEMA), **members)


def same(one: Tool, other: Tool) -> bool:
    """Whether both have one fingerprint."""
    return fingerprint(definition_of(one, V2026_07)) == fingerprint(definition_of(other, V2026_07))


@pytest.mark.parametrize(
    "other",
    [
        {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}},
        {**SCHEMA, "required": []},
        {**SCHEMA, "$schema": "https://json-schema.org/draft/2020-12/schema"},
        {**SCHEMA, "$schema": "https://json-schema.org/draft/2020-12/schema#"},
        {**SCHEMA, "type": ["object"]},
    ],
)
def test_how_a_schema_is_written_has_no_say(other: dict[str, Any]) -> None:
    assert same(tool(), tool(input_schema=other))


def test_lists_whose_order_says_nothing_are_sorted() -> None:
    one = {"required": ["a", "b"], "enum": [1, "x"], "type": ["object", "null"], "anyOf": [{"minProperties": 1}, True]}
    other = {
        "required": ["b", "a"],
        "enum": ["x", 1.0],
        "type": ["null", "object"],
        "anyOf": [{}, {"minProperties": 1.0}],
    }
    assert same(tool(input_schema=one), tool(input_schema=other))


@pytest.mark.parametrize(
    "changed",
    [
        {"description": "Other"},
        {"description": ""},
        {"title": "T"},
        {"input_schema": {**SCHEMA, "required": ["a"]}},
        {
            "input_schema": {
                **SCHEMA,
                "properties": {**SCHEMA["properties"], "b": {"type": "integer", "description": "x"}},
            }
        },
        {"output_schema": {"type": "object"}},
        {"annotations": ToolAnnotations(read_only_hint=True)},
        {"annotations": ToolAnnotations(destructive_hint=False)},
        {"meta": {"ui": "x"}},
        {"name": "T"},
    ],
)
def test_what_a_model_or_a_program_sees_has_a_say(changed: dict[str, Any]) -> None:
    one, other = (definitions("tools", [found], V2026_07) for found in (tool(), tool(**changed)))
    assert one != other


@pytest.mark.parametrize(
    "changed",
    [
        {"annotations": ToolAnnotations()},
        {"annotations": ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)},
        {"meta": {"io.modelcontextprotocol/x": 1, "gemel/server": "s"}},
        {"execution": {"taskSupport": "optional"}},
    ],
)
def test_what_says_what_holds_anyway_has_none(changed: dict[str, Any]) -> None:
    assert same(tool(), tool(**changed))


def test_what_changes_any_time_in_a_resource_is_left_out() -> None:
    one = Resource(uri="x://1", name="n", size=3, annotations=Annotations(last_modified="2026-01-01", priority=1.0))
    other = Resource(uri="x://1", name="n", size=4, annotations=Annotations(priority=1))
    assert (
        definition_of(one, V2026_07) == definition_of(other, V2026_07) == {"name": "n", "annotations": {"priority": 1}}
    )


def test_one_name_with_two_definitions_is_refused() -> None:
    """A list in which the second of two tools of one name hides behind the first."""
    assert len(definitions("tools", [tool(), tool()], V2026_07)) == 1
    with pytest.raises(InvalidResponse, match="two different tools called 't'"):
        definitions("tools", [tool(), tool(description="Other")], V2026_07)


def test_a_definition_that_is_nested_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"properties": {"a": deep}}
    with pytest.raises(InvalidResponse, match="nested deeper"):
        definition_of(tool(input_schema=deep), V2026_07)


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_contract_is_seen_in_an_older_revision_as_if_it_had_been_listed_there(revision: str) -> None:
    """Fingerprints don't depend on the era: what a revision has no words for is no difference."""
    tools = [tool(title="T", output_schema={"type": "array"}, annotations=ToolAnnotations(read_only_hint=True))]
    prompts = [
        Prompt(name="p", title="T", arguments=[PromptArgument(name="b"), PromptArgument(name="a", required=True)])
    ]
    templates = [ResourceTemplate(uri_template="x://{a}", name="n", title="T")]
    info = Implementation(name="s", version="1", title="S", website_url="https://s.example")

    def listed(seen: str) -> Contract:
        return Contract(
            revision=seen,
            server=identity(info, seen),
            tools=definitions("tools", tools, seen),
            prompts=definitions("prompts", prompts, seen),
            resource_templates=definitions("resourceTemplates", templates, seen),
        )

    assert listed(V2026_07).seen_in(revision) == listed(revision)
    assert listed(FIRST).seen_in(revision) == listed(FIRST)


server = Server("weather", version="1", instructions="Ask kindly.")


@server.tool
def forecast(city: str, days: int = 3) -> list[str]:
    """The weather."""
    return []


@server.prompt
def brief(city: str) -> list[PromptMessage]:
    """A brief."""
    return []


@server.resource("weather://{city}/now")
def now(city: str) -> str:
    """Now."""
    return ""


async def test_a_server_is_asked_for_all_that_it_offers() -> None:
    async with Client(server) as client:
        found = await fetch_contract(client)
        only = await fetch_contract(client, sections=["tools"])
    assert found.server["name"] == "weather"
    assert found.instructions == "Ask kindly."
    assert [
        list(section or ()) for section in (found.tools, found.prompts, found.resources, found.resource_templates)
    ] == [
        ["forecast"],
        ["brief"],
        [],
        ["weather://{city}/now"],
    ]
    assert (only.tools, only.prompts, only.resources) == (found.tools, None, None)


async def test_both_eras_show_one_contract() -> None:
    found = []
    for era in ("2025", "2026"):
        async with Client(server, era=era) as client:
            found.append(await fetch_contract(client))
    assert found[1].seen_in(V2025_11) == found[0]
