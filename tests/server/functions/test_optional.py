"""Optional arguments are listed without null, and accept it: decision 049."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from gemel import Client, DefinitionError, Server
from gemel.protocol.validation import compile_schema
from gemel.server.functions.optional import without_null

INTEGER = {"type": "integer"}
NULLABLE = {"anyOf": [INTEGER, {"type": "null"}]}
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@dataclasses.dataclass
class Place:
    """A place.

    Args:
        street: Where it is.
    """

    name: str
    street: str | None = None


class Filter(BaseModel):
    least: float | None = None
    tags: list[str] | None = Field(None, description="All of them.")
    kind: Literal["a", "b", None] = None
    owner: str | None


class Struct(msgspec.Struct):
    depth: int | None = None
    inner: Struct | None = None


class Members(TypedDict):
    may_be_absent: NotRequired[int | None]


async def listed(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    server: Server[Any] = Server("optional", **options)
    server.tool("take")(function)
    async with Client(server) as client:
        (tool,) = await client.list_tools()
    return tool.input_schema


def take(
    a: int | None = None,
    b: str | int | None = None,
    c: Literal["x", "y", None] = None,
    d: Annotated[int | None, Field(ge=1, description="D.")] = None,
    e: date | None = None,
    f: Any = None,
    g: Place | None = None,
) -> str:
    return repr((a, b, c, d, e, f, g))


async def test_what_may_be_left_out_has_the_type_of_its_values() -> None:
    schema = await listed(take)
    assert schema["properties"] == {
        "a": INTEGER,
        "b": {"anyOf": [{"type": "string"}, INTEGER]},
        "c": {"type": "string", "enum": ["x", "y"]},
        "d": {"type": "integer", "minimum": 1, "description": "D."},
        "e": {"type": "string", "format": "date"},
        "f": {},
        "g": {
            "title": "Place",
            "type": "object",
            "description": "A place.",
            "properties": {
                "name": {"type": "string"},
                "street": {"type": "string", "description": "Where it is."},
            },
            "required": ["name"],
        },
    }
    assert "required" not in schema


async def test_null_stays_where_it_says_something() -> None:
    def required(a: int | None, b: int | None = 5, c: None = None, d: Members | None = None) -> None: ...

    schema = await listed(required)
    assert schema["properties"]["a"] == NULLABLE
    assert schema["properties"]["b"] == {**NULLABLE, "default": 5}
    assert schema["properties"]["c"] == {"type": "null", "default": None}
    assert schema["properties"]["d"]["properties"] == {"may_be_absent": NULLABLE}


@pytest.mark.parametrize("annotation", [Filter, list[Filter], dict[str, Filter], Filter | None], ids=str)
async def test_members_of_models_are_listed_the_same_way(annotation: Any) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    schema = str(await listed(function))
    assert "{'least': {'type': 'number'}, " in schema
    assert "'tags': {'type': 'array', 'items': {'type': 'string'}, 'description': 'All of them.'}" in schema
    assert "'kind': {'enum': ['a', 'b']" in schema or "'kind': {'type': 'string', 'enum': ['a', 'b']" in schema
    assert "'owner': {'anyOf': [{'type': 'string'}, {'type': 'null'}]" in schema


async def test_recursive_members_keep_their_reference() -> None:
    def function(value: Struct) -> None: ...

    schema = await listed(function)
    assert schema["$defs"]["Struct"]["properties"] == {"depth": INTEGER, "inner": {"$ref": "#/$defs/Struct"}}


@both_eras
async def test_null_is_accepted_all_the_same(era: Any) -> None:
    """Hosts that use OpenAI's strict schemas send it for what the model leaves out."""
    server: Server[Any] = Server("optional")
    server.tool(take)

    @server.tool
    def chosen(value: Filter) -> str:
        return repr(value)

    async with Client(server, era=era) as client:
        nothing = dict.fromkeys("abcdefg")
        assert (await client.call_tool("take", nothing)).text == (await client.call_tool("take")).text
        filled = {"least": None, "tags": None, "kind": None, "owner": None}
        assert (await client.call_tool("chosen", {"value": filled})).text == (
            "Filter(least=None, tags=None, kind=None, owner=None)"
        )


async def test_a_server_or_a_tool_can_list_null() -> None:
    full = {**NULLABLE, "default": None}

    def function(a: int | None = None) -> None: ...

    assert (await listed(function, list_null=True))["properties"]["a"] == full
    server: Server[Any] = Server("optional", list_null=True)
    server.tool("with")(function)
    server.tool("without", list_null=False)(function)
    inner: Server[Any] = Server("inner")
    inner.tool("mounted", list_null=True)(function)
    server.mount(inner)
    async with Client(server) as client:
        found = {tool.name: tool.input_schema["properties"]["a"] for tool in await client.list_tools()}
    assert found == {"with": full, "without": INTEGER, "mounted": full}
    with pytest.raises(DefinitionError, match="list_null='no' is not possible: use True or False"):
        server.tool("wrong", list_null="no")(function)  # type: ignore[call-overload]  # that is the mistake


async def test_a_given_schema_stays_word_for_word() -> None:
    given_schema: dict[str, Any] = {"type": "object", "properties": {"a": {**NULLABLE, "default": None}}}

    async def function(arguments: dict[str, Any]) -> str:
        return str(arguments)

    server: Server[Any] = Server("optional")
    server.tool("given", input_schema=given_schema)(function)
    server.tool("changed", input_schema=given_schema, list_null=False)(function)
    async with Client(server) as client:
        given_, changed = await client.list_tools()
        assert given_.input_schema == given_schema
        assert changed.input_schema["properties"] == {"a": INTEGER}
        assert (await client.call_tool("changed", {"a": None})).text == "{'a': None}"


def test_a_proxy_lists_what_its_server_lists() -> None:
    with pytest.raises(DefinitionError, match="A proxy lists tools as they are"):
        Server.from_client("http://localhost:1/mcp", list_null=True)


async def test_optional_parameters_of_http_apis_are_listed_without_null() -> None:
    """FastAPI writes `anyOf` with null for `str | None = None`; no request carries a null outside of its body."""
    asked: list[str] = []

    async def fetch(method: str, url: str, *rest: Any) -> Any:
        asked.append(url)
        return 200, {}, b""

    word = {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Word"}
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": {"word": word}}}}}
    parameters = [
        {"name": "word", "in": "query", "schema": word},
        {"name": "id", "in": "query", "required": True, "schema": word},
    ]
    operation = {"operationId": "op", "parameters": parameters, "requestBody": body}
    document = {"openapi": "3.1.0", "paths": {"/x": {"post": operation}}}
    async with Client(Server.from_openapi(document, fetch, base_url="https://h")) as client:
        (tool,) = await client.list_tools()
        found: Any = tool.input_schema["properties"]
        assert found["word"] == {"type": "string", "title": "Word"}
        assert (found["id"], found["body"]["properties"]["word"]) == (word, word)
        await client.call_tool("op", {"word": None, "id": "1"})
    assert asked == ["https://h/x?id=1"]
    async with Client(Server.from_openapi(document, fetch, base_url="https://h", list_null=True)) as client:
        (tool,) = await client.list_tools()
        assert tool.input_schema["properties"]["word"] == {**word, "default": None}


# ---------------------------------------------------------------- whatever the schema

PLAIN: list[dict[str, Any]] = [
    *(INTEGER, {"type": "string"}, {"type": ["integer", "null"]}, {"enum": [1, None]}, {}, NULLABLE)
]


def nullable(schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}], "description": "d"}


def array(schema: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema}


MEMBERS: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.sampled_from(PLAIN) | st.builds(nullable, OBJECTS) | st.builds(array, OBJECTS)
)
OBJECTS: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda members, nulls, required: {
        "type": "object",
        "properties": {
            name: {**member, **({"default": None} if name in nulls else {})} for name, member in members.items()
        },
        "required": sorted(required & members.keys()),
    },
    st.dictionaries(st.sampled_from("abc"), MEMBERS, max_size=3),
    st.sets(st.sampled_from("abc")),
    st.sets(st.sampled_from("abc")),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, 1, "x"]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)


def without_nulls(value: Any) -> Any:
    """The value without members that are null, at any depth."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@given(OBJECTS, VALUES)
def test_what_is_listed_is_accepted_and_what_is_accepted_is_listed_but_for_nulls(schema: Any, value: Any) -> None:
    accepted, offered = compile_schema(schema), compile_schema(without_null(schema))
    if not offered.problems(value):
        assert not accepted.problems(value)
    if not accepted.problems(value) and not accepted.problems(without_nulls(value)):
        assert not offered.problems(without_nulls(value))


@given(VALUES)
def test_any_value_is_taken_for_a_schema(schema: Any) -> None:
    without_null(schema)


@both_eras
async def test_a_default_of_none_makes_the_annotation_optional(era: Any) -> None:
    """`x: str = None` means `str | None`, as in other frameworks, whatever library reads the type."""

    def function(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> str:
        return repr((a, b, c, d, e, f))

    function.__defaults__ = (None, None, None, None, Field(None, max_length=2), None)
    function.__annotations__ = {
        "a": str,
        "b": Annotated[int, Field(ge=1, description="B.")],
        "c": Annotated[str, msgspec.Meta(min_length=1)],
        "d": Filter,
        "e": list[str],
        "f": "dict[str, int] | list[int]",
        "return": str,
    }
    schema = await listed(function)
    assert "required" not in schema
    assert {name: member for name, member in schema["properties"].items() if name != "d"} == {
        "a": {"type": "string"},
        "b": {"type": "integer", "minimum": 1, "description": "B."},
        "c": {"type": "string", "minLength": 1},
        "e": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "f": {
            "anyOf": [
                {"type": "object", "additionalProperties": INTEGER},
                {"type": "array", "items": INTEGER},
            ]
        },
    }
    assert schema["properties"]["d"]["type"] == "object"
    server: Server[Any] = Server("optional")
    server.tool("take")(function)
    async with Client(server, era=era) as client:
        for given in ({}, dict.fromkeys("abcdef")):
            assert (await client.call_tool("take", given)).text == "(None, None, None, None, None, None)"
        refused = await client.call_tool("take", {"a": 1, "b": 0}, raise_on_error=False)
        assert refused.is_error
        assert "a: expected string or null, got integer 1; b: expected integer >= 1, got integer 0" in refused.text
