"""The members that change for an older peer: what becomes of each, revision by revision."""

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from gemel import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitUrlParams,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Implementation,
    InputRequiredResult,
    ProgressParams,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    SamplingMessage,
    TextContent,
    Tool,
)
from gemel.protocol.revisions.adapt import TooNew, shape
from gemel.protocol.revisions.wrapped_results import ToolValueResult
from gemel.schema.lifecycle import (
    ClientCapabilities,
    Elicitation,
    InitializeResult,
    ListChanged,
    RootsCapability,
    ServerCapabilities,
)
from gemel.schema.sampling import ToolChoice, ToolResultContent
from gemel.schema.tools import ListToolsResult
from tests.schema.instances import CHOICES, FORM
from tests.support import (
    FIRST,
    HANDSHAKE_REVISIONS,
    REVISIONS,
    SERVER_INFO,
    V2025_03,
    V2025_06,
    V2025_11,
    V2026_07,
    EmptyResult,
)

TEXT = TextContent(text="see there")


def wire(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


# ---------------------------------------------------------------- what needs no change


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_every_revision_knows_is_handed_on_as_the_same_object(revision: str) -> None:
    for value in (
        CallToolResult(content=[TEXT], is_error=True),
        CallToolResult(content=[TEXT], meta={"com.example/x": 1}),
        ListToolsResult(tools=[Tool(name="a", input_schema={"type": "object"})], next_cursor=""),
        GetPromptResult(messages=[PromptMessage(role="user", content=TEXT)]),
        EmptyResult(),
    ):
        assert shape(value, revision) is value


@pytest.mark.parametrize("value", [{"resultType": "x", "structuredContent": 1}, [], "text", None, UNSET, Raw(b"{}")])
def test_what_is_no_struct_of_ours_passes_untouched(value: Any) -> None:
    assert shape(value, FIRST) is value


def test_a_struct_of_the_user_passes_untouched() -> None:
    class Own(msgspec.Struct):
        result_type: str = "x"

    own = Own()
    assert shape(own, FIRST) is own


def test_a_users_subclass_is_shaped_like_its_base_and_keeps_its_own_members() -> None:
    class More(CallToolResult, kw_only=True):
        title: str = ""

    more = More(content=[TEXT], structured_content=[1], result_type="complete", title="x")
    assert wire(shape(more, V2025_11)) == {
        "content": [wire(TEXT)],
        "structuredContent": {"result": [1]},
        "title": "x",
    }
    assert isinstance(shape(more, V2025_11), More)

    class Sound(AudioContent, tag="audio"):
        pass

    (block,) = wire(shape(CallToolResult(content=[Sound(data="", mime_type="audio/wav")]), FIRST))["content"]
    assert block["type"] == "text"


# ---------------------------------------------------------------- content blocks


@pytest.mark.parametrize("revision", [FIRST, V2025_03])
def test_meta_of_objects_is_left_out_before_there_was_any(revision: str) -> None:
    """NAME-02, also inside an embedded resource; the `_meta` of a result stays."""
    inner = ResourceContents(uri="x:y", text="", meta={"a": 1})
    result = CallToolResult(content=[EmbeddedResource(resource=inner, meta={"b": 1})], meta={"c": 1})
    assert wire(shape(result, revision)) == {
        "content": [{"type": "resource", "resource": {"uri": "x:y", "text": ""}}],
        "_meta": {"c": 1},
    }
    assert shape(result, V2025_06) is result


# ---------------------------------------------------------------- structured content


@dataclass
class Point:
    x: int


class Day(msgspec.Struct):
    x: int


class Pair(msgspec.Struct, array_like=True):
    x: int


@pytest.mark.parametrize("value", [{}, {"x": 1}, Raw(b'{"x":1}'), Raw(b'\n {"x":1}'), Point(1), Day(1)])
@pytest.mark.parametrize("revision", [V2025_06, V2025_11])
def test_a_structured_object_is_kept_from_its_first_revision_on(value: Any, revision: str) -> None:
    """TOOL-13."""
    result = CallToolResult(content=[TEXT], structured_content=value)
    assert shape(result, revision) is result
    assert "structuredContent" not in wire(shape(result, V2025_03))


@pytest.mark.parametrize(
    "value",
    [None, [], [1], 0, "x", False, Raw(b"[1]"), Raw(b'[{"a":1}]'), Raw(b"1"), Raw(b"null"), Raw(b' "x"'), Pair(1)],
)
def test_structured_content_that_is_no_object_is_wrapped_before_the_newest_revision(value: Any) -> None:
    """TOOL-13, TOOL-14: the text stays, too."""
    result = CallToolResult(content=[TEXT], structured_content=value)
    sent = {"content": [wire(TEXT)], "structuredContent": {"result": wire(value)}}
    assert [wire(shape(result, revision)) for revision in (V2025_06, V2025_11)] == [sent, sent]
    assert wire(shape(result, V2025_03)) == {"content": [wire(TEXT)]}
    assert shape(result, V2026_07) is result


def test_an_object_is_wrapped_as_well_if_the_schema_of_its_tool_is() -> None:
    """What is sent fits what is listed."""
    result = ToolValueResult(content=[TEXT], structured_content={"x": 1})
    assert wire(shape(result, V2025_11))["structuredContent"] == {"result": {"x": 1}}
    assert wire(shape(result, V2026_07)) == wire(CallToolResult(content=[TEXT], structured_content={"x": 1}))
    assert wire(shape(shape(result, V2025_11), V2025_11)) == wire(shape(result, V2025_11))
    assert "structuredContent" not in wire(shape(result, V2025_03))
    failed = ToolValueResult(content=[TEXT], is_error=True)
    assert wire(shape(failed, V2025_11)) == {"content": [wire(TEXT)], "isError": True}


@pytest.mark.parametrize(
    ("schema", "inner"),
    [
        ({"type": "array"}, {"type": "array"}),
        ({}, {}),
        (True, {}),
        ({"anyOf": [{"type": "object"}]}, {"anyOf": [{"type": "object"}]}),
        ({"type": ["object"]}, {"type": ["object"]}),
        (
            {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"anyOf": [{"$ref": "#"}, {"const": {"$ref": "#"}}]}}},
            {
                "items": {"$ref": "#/properties/result/$defs/a"},
                "$defs": {"a": {"anyOf": [{"$ref": "#/properties/result"}, {"const": {"$ref": "#"}}]}},
            },
        ),
        ({"items": {"properties": {"$ref": {"const": 1}}}}, {"items": {"properties": {"$ref": {"const": 1}}}}),
        (
            {"$id": "https://example.com/x", "items": {"$ref": "#"}},
            {"$id": "https://example.com/x", "items": {"$ref": "#"}},
        ),
        (
            {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$id": "https://example.com/a", "items": {"$ref": "#"}}}},
            {
                "items": {"$ref": "#/properties/result/$defs/a"},
                "$defs": {"a": {"$id": "https://example.com/a", "items": {"$ref": "#"}}},
            },
        ),
        (
            {"items": {"properties": {"const": {"$ref": "#"}}}},
            {"items": {"properties": {"const": {"$ref": "#/properties/result"}}}},
        ),
        ({"description": "#/a", "pattern": "#"}, {"description": "#/a", "pattern": "#"}),
        (
            {"anyOf": [{"$ref": "#anchor"}, {"$ref": "https://example.com/x#/a"}]},
            {"anyOf": [{"$ref": "#anchor"}, {"$ref": "https://example.com/x#/a"}]},
        ),
        (  # no schema, perhaps of a keyword that is unknown here
            {"x-example": {"$ref": 5, "properties": [{"a": 1}]}},
            {"x-example": {"$ref": 5, "properties": [{"a": 1}]}},
        ),
        (
            {"items": {"properties": {"$id": {"$ref": "#"}}}},
            {"items": {"properties": {"$id": {"$ref": "#/properties/result"}}}},
        ),
        (
            {"items": {"$id": "#item", "items": {"$ref": "#"}}},
            {"items": {"$id": "#item", "items": {"$ref": "#/properties/result"}}},
        ),
    ],
)
def test_an_output_schema_of_no_object_is_wrapped_before_the_newest_revision(schema: Any, inner: Any) -> None:
    """TOOL-13."""
    tools = ListToolsResult(tools=[Tool(name="a", input_schema={"type": "object"}, output_schema=schema)])
    listed = {"name": "a", "inputSchema": {"type": "object"}}
    wrapped = {
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
        "x-gemel-wrap-result": True,
        "x-fastmcp-wrap-result": True,
    }
    for revision in (V2025_06, V2025_11):
        assert wire(shape(tools, revision)) == {"tools": [{**listed, "outputSchema": wrapped}]}
    assert wire(shape(tools, V2025_03)) == {"tools": [listed]}
    assert shape(tools, V2026_07) is tools


def test_a_schema_that_refers_to_one_of_objects_says_so_before_the_newest_revision() -> None:
    """TOOL-13."""
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "object"}}}
    tool = Tool(name="a", input_schema={"type": "object"}, output_schema=schema)
    assert wire(shape(tool, V2025_11))["outputSchema"] == {"type": "object", **schema}
    assert shape(tool, V2026_07) is tool


def test_the_dialect_of_a_wrapped_schema_is_named_at_its_root() -> None:
    dialect = "http://json-schema.org/draft-07/schema#"
    tool = Tool(name="a", input_schema={"type": "object"}, output_schema={"$schema": dialect, "type": "array"})
    schema = wire(shape(tool, V2025_11))["outputSchema"]
    assert (schema["$schema"], schema["properties"]) == (dialect, {"result": {"type": "array"}})


def test_an_input_schema_keeps_its_composition_keywords() -> None:
    """Without them it would mean something else. TOOL-05: the word for the dialect came with 2025-11-25."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    schema = {"$schema": dialect, "type": "object", "anyOf": [{"required": ["a"]}], "$defs": {}}
    tool = Tool(name="a", input_schema=schema, output_schema=schema)
    assert shape(tool, V2025_11) is tool
    del (older := dict(schema))["$schema"]
    assert wire(shape(tool, V2025_06)) == {"name": "a", "inputSchema": older, "outputSchema": older}


@pytest.mark.parametrize(("given", "sent"), [(True, {}), (False, {"not": {}})])
def test_a_boolean_schema_of_a_property_is_sent_as_an_object_before_the_newest_revision(given: Any, sent: Any) -> None:
    """TOOL-07."""
    tool = Tool(name="a", input_schema={"type": "object", "properties": {"a": {"type": "null"}, "b": given}})
    properties = {"a": {"type": "null"}, "b": sent}
    assert wire(shape(tool, V2025_11))["inputSchema"] == {"type": "object", "properties": properties}
    assert shape(tool, V2026_07) is tool


# ---------------------------------------------------------------- sampling


IMAGE = ImageContent(data="aGk=", mime_type="image/png")
ANSWER = ToolResultContent(tool_use_id="1", content=[TEXT], structured_content=[1])


def asked(*messages: SamplingMessage) -> CreateMessageParams:
    return CreateMessageParams(messages=list(messages), max_tokens=9)


@pytest.mark.parametrize("revision", [FIRST, V2025_03, V2025_06])
def test_a_list_of_one_block_becomes_the_block(revision: str) -> None:
    """SAMP-04."""
    params = asked(SamplingMessage(role="user", content=[TEXT]))
    assert wire(shape(params, revision))["messages"] == [{"role": "user", "content": wire(TEXT)}]
    assert wire(shape(params, V2025_11))["messages"] == [{"role": "user", "content": [wire(TEXT)]}]


@pytest.mark.parametrize("revision", [FIRST, V2025_03, V2025_06])
def test_a_message_of_several_blocks_becomes_several_messages(revision: str) -> None:
    """SAMP-04: nothing is lost, the order is kept."""
    params = asked(
        SamplingMessage(role="user", content=[TEXT, IMAGE], meta={"a": 1}),
        SamplingMessage(role="assistant", content=TEXT),
    )
    said = [(message["role"], message["content"]["type"]) for message in wire(shape(params, revision))["messages"]]
    assert said == [("user", "text"), ("user", "image"), ("assistant", "text")]


def test_tools_are_left_out_for_clients_that_never_heard_of_them() -> None:
    """SAMP-02."""
    params = CreateMessageParams(
        messages=[], max_tokens=9, tools=[Tool(name="a", input_schema={})], tool_choice=ToolChoice(mode="none")
    )
    assert wire(shape(params, V2025_06)) == {"messages": [], "maxTokens": 9}
    assert shape(params, V2025_11) is params


def test_a_structured_tool_result_is_an_object_before_the_newest_revision() -> None:
    """TOOL-13, in sampling."""
    params = asked(SamplingMessage(role="user", content=[ANSWER]))
    assert "structuredContent" not in wire(shape(params, V2025_11))["messages"][0]["content"][0]
    assert shape(params, V2026_07) is params
    found = ToolResultContent(tool_use_id="1", content=[TEXT], structured_content={"a": 1})
    params = asked(SamplingMessage(role="user", content=[found]))
    assert shape(params, V2025_11) is params


def test_a_models_answer_of_texts_is_joined_and_of_other_blocks_refused() -> None:
    """SAMP-04, for a client that answers an older server."""
    answer = CreateMessageResult(role="assistant", model="m", content=[TEXT, TextContent(text="and here")])
    assert wire(shape(answer, V2025_06))["content"] == {"type": "text", "text": "see there\nand here"}
    mixed = CreateMessageResult(role="assistant", model="m", content=[TEXT, IMAGE])
    with pytest.raises(TooNew, match="ImageContent"):
        shape(mixed, V2025_06)
    assert shape(mixed, V2025_11) is mixed
    contents: list[Any] = [IMAGE, [IMAGE]]
    for content in contents:
        single = CreateMessageResult(role="assistant", model="m", content=content)
        assert wire(shape(single, V2025_06))["content"] == wire(IMAGE)


# ---------------------------------------------------------------- elicitation


def form(**fields: Any) -> ElicitFormParams:
    return ElicitFormParams(
        message="?", mode="form", requested_schema={"type": "object", "properties": fields, "required": ["a"]}
    )


def fields_of(params: ElicitFormParams, revision: str) -> Any:
    return wire(shape(params, revision))["requestedSchema"]["properties"]


def test_a_form_of_the_first_revision_that_had_forms_says_no_mode() -> None:
    """ELIC-03."""
    assert wire(shape(form(), V2025_06)).keys() == {"message", "requestedSchema"}
    assert wire(shape(form(), V2025_11))["mode"] == "form"


def test_titled_choices_are_named_in_the_older_way() -> None:
    """ELIC-07, ELIC-08."""
    options = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
    params = form(a={"type": "string", "oneOf": options, "title": "Colour", "default": "r"})
    assert fields_of(params, V2025_06) == {
        "a": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"], "title": "Colour"}
    }
    assert fields_of(params, V2025_11)["a"] == {"type": "string", "oneOf": options, "title": "Colour", "default": "r"}


def test_only_a_boolean_has_a_default_in_the_older_way() -> None:
    """ELIC-07."""
    params = ElicitFormParams(message="?", requested_schema=FORM)
    defaults = {name for name, field in fields_of(params, V2025_06).items() if "default" in field}
    assert defaults == {"sure"}
    assert wire(shape(params, V2025_11))["requestedSchema"] == FORM
    assert "$schema" not in wire(shape(params, V2025_06))["requestedSchema"]


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_of_several_is_refused_where_there_is_none_and_the_field_is_named(name: str) -> None:
    """ELIC-08: no form of the older revision can bring back several values."""
    params = form(a={"type": "boolean"}, **{name: CHOICES[name]})
    with pytest.raises(TooNew, match=f"'{name}'.*2025-06-18"):
        shape(params, V2025_06)
    assert fields_of(params, V2025_11)[name] == CHOICES[name]


@pytest.mark.parametrize("revision", [V2025_06, V2025_11, V2026_07])
def test_words_that_no_form_knows_are_not_sent(revision: str) -> None:
    """`pattern` is checked when the answer comes."""
    params = form(a={"type": "string", "pattern": "^a", "minLength": 1, "examples": ["a"]})
    assert fields_of(params, revision) == {"a": {"type": "string", "minLength": 1}}


def test_fields_that_say_nothing_of_their_type_are_left_as_they_are() -> None:
    params = form(a={"enum": ["x"], "pattern": "x"}, b={"type": ["string", "null"]}, c=True)
    assert fields_of(params, V2025_06) == {
        "a": {"enum": ["x"], "pattern": "x"},
        "b": {"type": ["string", "null"]},
        "c": True,
    }
    assert shape(ElicitFormParams(message="?", requested_schema={"type": "object"}), V2025_06).requested_schema


def test_a_url_is_asked_for_with_its_identity_in_one_revision_only() -> None:
    """ELIC-11, ELIC-15."""
    params = ElicitUrlParams(message="?", url="https://example.org", mode="url", elicitation_id="1")
    assert shape(params, V2025_11) is params
    assert "elicitationId" not in wire(shape(params, V2026_07))
    for revision in (FIRST, V2025_03, V2025_06):
        with pytest.raises(TooNew, match=revision):
            shape(params, revision)


@pytest.mark.parametrize("revision", [FIRST, V2025_03])
def test_there_is_no_form_before_there_were_forms(revision: str) -> None:
    with pytest.raises(TooNew, match="ElicitFormParams"):
        shape(form(), revision)


# ---------------------------------------------------------------- capabilities and identity


def test_capabilities_are_declared_in_the_words_of_the_revision() -> None:
    """COMP-01, ROOT-01, TSK-01, EXT-03."""
    server = ServerCapabilities(
        tools=ListChanged(list_changed=True), completions={}, tasks={"list": {}}, extensions={"com.example/x": {}}
    )
    known = {"tools": {"listChanged": True}, "extensions": {"com.example/x": {}}}
    assert wire(shape(server, FIRST)) == known
    assert wire(shape(server, V2025_03)) == {**known, "completions": {}}
    assert wire(shape(server, V2025_11)) == {**known, "completions": {}, "tasks": {"list": {}}}
    assert wire(shape(server, V2026_07)) == {**known, "completions": {}}
    client = ClientCapabilities(roots=RootsCapability(list_changed=True), elicitation=Elicitation(form={}, url={}))
    assert wire(shape(client, V2025_03)) == {"roots": {"listChanged": True}}
    assert wire(shape(client, V2025_06)) == {"roots": {"listChanged": True}, "elicitation": {}}
    assert wire(shape(client, V2026_07)) == {"roots": {}, "elicitation": {"form": {}, "url": {}}}


def test_a_client_with_urls_only_declares_nothing_where_the_capability_means_forms() -> None:
    """ELIC-01."""
    client = ClientCapabilities(elicitation=Elicitation(url={}))
    assert wire(shape(client, V2025_06)) == {}
    assert shape(client, V2025_11) is client
    forms = ClientCapabilities(elicitation=Elicitation())
    assert wire(shape(forms, V2025_06)) == {"elicitation": {}}


@pytest.mark.parametrize("named", HANDSHAKE_REVISIONS)
@pytest.mark.parametrize("assumed", HANDSHAKE_REVISIONS)
def test_the_answer_of_a_handshake_is_shaped_for_the_revision_that_it_names(named: str, assumed: str) -> None:
    """NAME-02, COMP-01: nothing is negotiated yet when it is written."""
    info = Implementation(name="s", version="1", title="S", description="d", website_url="https://example.org")
    result = InitializeResult(
        protocol_version=named,
        capabilities=ServerCapabilities(completions={}),
        server_info=info,
        result_type="complete",
    )
    sent = wire(shape(result, assumed))
    assert sent == wire(shape(result, named))
    assert ("completions" in sent["capabilities"]) == (named != FIRST)
    assert ("title" in sent["serverInfo"]) == (named >= V2025_06)
    assert ("websiteUrl" in sent["serverInfo"]) == (named >= V2025_11)
    assert isinstance(shape(result, assumed), InitializeResult)


def test_a_handshake_that_names_an_unknown_revision_is_shaped_for_the_assumed_one() -> None:
    info = Implementation(name="s", version="1", title="S")
    result = InitializeResult(protocol_version="2031-01-01", capabilities=ServerCapabilities(), server_info=info)
    assert "title" not in wire(shape(result, V2025_03))["serverInfo"]


# ---------------------------------------------------------------- other members


def test_progress_has_no_message_in_the_first_revision() -> None:
    """PROG-05."""
    params = ProgressParams(progress_token=1, progress=0.5, message="half")
    assert wire(shape(params, FIRST)) == {"progressToken": 1, "progress": 0.5}
    assert shape(params, V2025_03) is params


def test_only_the_newer_keys_of_a_results_meta_are_left_out() -> None:
    """Table 4.C."""
    result = EmptyResult(
        meta={SERVER_INFO: {}, "com.example/x": 1, "io.modelcontextprotocol/related-task": {"taskId": "1"}}
    )
    assert wire(shape(result, V2025_11))["_meta"] == {
        "com.example/x": 1,
        "io.modelcontextprotocol/related-task": {"taskId": "1"},
    }
    assert wire(shape(EmptyResult(meta={SERVER_INFO: {}}), V2025_11)) == {}


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_an_interim_result_never_goes_to_a_handshake_client(revision: str) -> None:
    """It would be read as an empty result."""
    with pytest.raises(TooNew, match=revision):
        shape(InputRequiredResult(request_state="s"), revision)


def test_lists_and_maps_are_copied_only_where_something_in_them_changes() -> None:
    blocks: list[ContentBlock] = [TEXT, ResourceLink(uri="x:y", name="a")]
    result = CallToolResult(content=blocks)
    shaped = shape(result, FIRST)
    assert shaped.content is not blocks
    assert shaped.content[0] is TEXT
    assert blocks == [TEXT, ResourceLink(uri="x:y", name="a")]
