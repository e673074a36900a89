"""Tool arguments in headers: which schemas may ask for it, what a client sends, what a server accepts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.errors import DefinitionError, HeaderMismatch, NotSent
from gemel.protocol.http.headers import judge_parameters
from gemel.protocol.http.mirror import ParamHeader, collect_param_headers, param_headers
from tests.protocol.http.heads import head_of

BIG = 2**53 - 1


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(name: Any = "Region", kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


SPEC = collect_param_headers(
    of(
        region=marked(),
        count=marked("Count", "integer"),
        dry=marked("Dry-Run", "boolean"),
        query={"type": "string"},
        where=of(zone=marked("Zone")),
    )
)


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_annotated_properties_are_found_in_their_order_at_any_depth() -> None:
    """HDR-09, HDR-12: nesting through `properties` keys alone."""
    assert list(SPEC) == [
        ParamHeader("Mcp-Param-Region", b"mcp-param-region", ("region",), "string"),
        ParamHeader("Mcp-Param-Count", b"mcp-param-count", ("count",), "integer"),
        ParamHeader("Mcp-Param-Dry-Run", b"mcp-param-dry-run", ("dry",), "boolean"),
        ParamHeader("Mcp-Param-Zone", b"mcp-param-zone", ("where", "zone"), "string"),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        of(),
        of(a={"type": "string"}),
        {"properties": {"x-mcp-header": {"type": "string"}}},
        {"properties": {"a": {"properties": {"x-mcp-header": {"type": "array"}}}}},
        of(a={"const": {"x-mcp-header": "A"}}),
        of(a={"default": {"x-mcp-header": "A"}}),
        of(a={"enum": [{"x-mcp-header": "A"}]}),
        of(a={"examples": [{"x-mcp-header": "A"}]}),
        of(a={"x-other": {"x-mcp-header": "A"}}),
        of(a=True),
        {"properties": ["a"]},
        {"properties": None, "items": 3, "anyOf": "x", "$defs": []},
        None,
        [],
        True,
        "x-mcp-header",
    ],
)
def test_a_schema_without_annotations_asks_for_nothing(schema: Any) -> None:
    """A property may be called `x-mcp-header`, and data may hold the word; neither is an annotation."""
    assert collect_param_headers(schema) == ()


@pytest.mark.parametrize(
    "name",
    ["Region", "r", "X-1", "Method", "0", "!#$%&'*+-.^_`|~"],
)
def test_any_token_is_a_name(name: str) -> None:
    """HDR-10; `Method` makes Mcp-Param-Method, not Mcp-Method."""
    (param,) = collect_param_headers(of(a=marked(name)))
    assert param.header == f"Mcp-Param-{name}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "My Region",
        "Region:Primary",
        "Région",
        "Region\t1",
        "a\r\nX: 1",
        "a\n",
        "a/b",
        'a"',
        "a\x7f",
        "区",
        "(a)",
    ],
    ids=ascii,
)
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    """HDR-10; the eleven bad tools of the conformance suite and more."""
    with pytest.raises(DefinitionError, match=r"x-mcp-header of property 'a' is .*part of a header name"):
        collect_param_headers(of(a=marked(name)))


@pytest.mark.parametrize("name", [None, 1, True, ["Region"], {"name": "Region"}])
def test_a_name_that_is_no_string_is_refused(name: Any) -> None:
    """HDR-10."""
    with pytest.raises(DefinitionError, match="property 'a' is a value of type"):
        collect_param_headers(of(a=marked(name)))


@pytest.mark.parametrize(
    "kind", ["number", "array", "object", "null", "String", "", ["string"], ["string", "null"], 5, {}]
)
def test_a_property_of_another_type_is_refused(kind: Any) -> None:
    """HDR-11: string, integer or boolean, one of them."""
    with pytest.raises(DefinitionError, match=r"'Region' annotates property 'a', whose type .*'string', 'integer' or"):
        collect_param_headers(of(a=marked(kind=kind)))


def test_a_refusal_names_what_is_wrong() -> None:
    for name, kind, words in (("a b", "string", "is 'a b'"), ("a", "number", "whose type is 'number'")):
        with pytest.raises(DefinitionError, match=words):
            collect_param_headers({"properties": {"x": {"type": kind, "x-mcp-header": name}}})


def test_properties_that_are_no_object_hold_no_schemas() -> None:
    assert collect_param_headers({"properties": ["x-mcp-header"], "required": ["x-mcp-header"]}) == ()


def test_a_property_without_a_type_is_refused() -> None:
    """HDR-11: `str | None` written as anyOf has no type of its own, and a header can't tell its forms apart."""
    with pytest.raises(DefinitionError, match="is not one plain name"):
        collect_param_headers(of(a={"anyOf": [{"type": "string"}, {"type": "null"}], "x-mcp-header": "A"}))


@pytest.mark.parametrize("twin", ["Region", "REGION", "region"])
def test_two_properties_with_one_header_are_refused(twin: str) -> None:
    """HDR-10: unique whatever the case, at any depth."""
    with pytest.raises(DefinitionError, match=r"property 'b\.c' names the same header as property 'a'"):
        collect_param_headers(of(a=marked(), b=of(c=marked(twin))))


@pytest.mark.parametrize(
    "keyword",
    [
        *("items", "additionalItems", "unevaluatedItems", "contains", "contentSchema", "propertyNames"),
        *("additionalProperties", "unevaluatedProperties", "not", "if", "then", "else"),
    ],
)
def test_an_annotation_below_a_keyword_with_one_schema_is_refused(keyword: str) -> None:
    """HDR-12: even when properties lead on from there."""
    for inner in (marked(), of(b=marked())):
        with pytest.raises(DefinitionError, match="is not reached through `properties` alone"):
            collect_param_headers(of(a={keyword: inner}))


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "prefixItems", "items"])
def test_an_annotation_below_a_keyword_with_a_list_is_refused(keyword: str) -> None:
    """HDR-12."""
    with pytest.raises(DefinitionError, match="is not reached"):
        collect_param_headers({keyword: [{}, of(b=marked())]})


@pytest.mark.parametrize("keyword", ["$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"])
def test_an_annotation_below_a_keyword_with_named_schemas_is_refused(keyword: str) -> None:
    """HDR-12: what only a `$ref` leads to is not reached either."""
    with pytest.raises(DefinitionError, match="is not reached"):
        collect_param_headers({"properties": {"a": {"$ref": "#/$defs/A"}}, keyword: {"A": marked()}})


def test_an_annotation_of_the_root_is_refused() -> None:
    """HDR-12: the root is no property."""
    with pytest.raises(DefinitionError, match="at the root"):
        collect_param_headers({"type": "string", "x-mcp-header": "Region"})


def test_a_very_deep_schema_is_read_without_recursion() -> None:
    schema: dict[str, Any] = marked()
    for _ in range(5000):
        schema = {"properties": {"a": schema}}
    (param,) = collect_param_headers(schema)
    assert len(param.path) == 5000


# --- client -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"region": "us-west1", "query": "x"}, {"Mcp-Param-Region": "us-west1"}),
        ({"region": ""}, {"Mcp-Param-Region": ""}),
        ({"region": " é"}, {"Mcp-Param-Region": "=?base64?IMOp?="}),
        ({"region": None}, {}),
        ({}, {}),
        (None, {}),
        ([], {}),
        ({"count": 42, "dry": False}, {"Mcp-Param-Count": "42", "Mcp-Param-Dry-Run": "false"}),
        ({"count": 42.0}, {"Mcp-Param-Count": "42"}),
        ({"count": 0}, {"Mcp-Param-Count": "0"}),
        ({"count": BIG}, {"Mcp-Param-Count": str(BIG)}),
        ({"count": -BIG}, {"Mcp-Param-Count": str(-BIG)}),
        ({"where": {"zone": "b"}}, {"Mcp-Param-Zone": "b"}),
        ({"where": {}}, {}),
        ({"where": "b"}, {}),
        ({"where": None}, {}),
        ({"zone": "b"}, {}),
        ({"region": ["a"], "count": {"n": 1}}, {}),
        ({"count": 1.5}, {"Mcp-Param-Count": "1.5"}),
    ],
)
def test_a_client_mirrors_what_is_there(arguments: Any, expected: dict[str, str]) -> None:
    """HDR-13, HDR-14, HDR-16: absent and null have no header, "" has an empty one, the path is exact."""
    assert param_headers(SPEC, arguments) == expected


@pytest.mark.parametrize("count", [BIG + 1, -BIG - 1, 2.0**53, 10**400])
def test_an_integer_that_readers_would_round_is_not_sent(count: float) -> None:
    """HDR-11: refused on our side, before anything leaves."""
    with pytest.raises(NotSent, match=r"'count' goes into Mcp-Param-Count"):
        param_headers(SPEC, {"count": count})


# --- server -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "arguments"),
    [
        ({}, {}),
        ({}, {"query": "x"}),
        ({}, {"region": None}),
        ({"Mcp-Param-Region": "a"}, {"region": "a"}),
        ({"MCP-PARAM-REGION": " a\t"}, {"region": "a"}),
        ({"Mcp-Param-Region": "=?base64?YQ==?="}, {"region": "a"}),
        ({"Mcp-Param-Region": "=?base64?IMOp?="}, {"region": " é"}),
        ({"Mcp-Param-Region": "YQ=="}, {"region": "YQ=="}),
        ({"Mcp-Param-Region": "=?BASE64?YQ==?="}, {"region": "=?BASE64?YQ==?="}),
        ({"Mcp-Param-Region": ""}, {"region": ""}),
        ({}, {"region": ""}),
        ({"Mcp-Param-Region": ""}, {}),
        ({"Mcp-Param-Count": "42"}, {"count": 42}),
        ({"Mcp-Param-Count": "42.0"}, {"count": 42}),
        ({"Mcp-Param-Count": "42."}, {"count": 42}),
        ({"Mcp-Param-Count": "42"}, {"count": 42.0}),
        ({"Mcp-Param-Count": "042"}, {"count": 42}),
        ({"Mcp-Param-Count": "-7"}, {"count": -7}),
        ({"Mcp-Param-Count": "9007199254740993"}, {"count": 9007199254740993}),
        ({"Mcp-Param-Count": "1.5"}, {"count": 1.5}),
        ({"Mcp-Param-Count": "42"}, {"count": "42"}),
        ({"Mcp-Param-Dry-Run": "true"}, {"dry": True}),
        ({"Mcp-Param-Dry-Run": "false"}, {"dry": False}),
        ({"Mcp-Param-Zone": "b"}, {"where": {"zone": "b"}}),
        ({"Mcp-Param-Unknown": "\xff"}, {}),
        ({}, {"region": ["a"]}),
        ({}, {"where": "b"}),
    ],
)
def test_a_server_accepts_headers_that_say_what_the_body_says(headers: dict[str, str], arguments: Any) -> None:
    """HDR-05, HDR-07, HDR-08, HDR-19, HDR-20, HDR-21, HDR-22. A value with no header form is the schema's to refuse."""
    judge_parameters(head_of(headers), SPEC, arguments)


@pytest.mark.parametrize(
    ("headers", "arguments", "reason"),
    [
        ({}, {"region": "a"}, "Mcp-Param-Region is missing; the body has 'region'"),
        ({}, {"count": 0}, "Mcp-Param-Count is missing"),
        ({}, {"dry": False}, "Mcp-Param-Dry-Run is missing"),
        ({}, {"where": {"zone": "b"}}, "Mcp-Param-Zone is missing; the body has 'where.zone'"),
        ({"Mcp-Param-Region": "a"}, {"region": "b"}, "Mcp-Param-Region says 'a'"),
        ({"Mcp-Param-Region": "A"}, {"region": "a"}, "says 'A'"),
        ({"Mcp-Param-Region": ""}, {"region": "a"}, "says ''"),
        ({"Mcp-Param-Region": "=?base64?YQ=?="}, {"region": "a"}, "isn't Base64"),
        ({"Mcp-Param-Region": "=?base64?YQ==?="}, {"region": "=?base64?YQ==?="}, "says 'a'"),
        ({"Mcp-Param-Region": "\xe9"}, {"region": "é"}, "characters that a header can't carry"),
        ({"Mcp-Param-Region": "a"}, {}, "Mcp-Param-Region was sent, but the body has no 'region'"),
        ({"Mcp-Param-Region": "null"}, {"region": None}, "was sent"),
        ({"Mcp-Param-Region": "a"}, {"region": ["a"]}, "says 'a'"),
        ({"Mcp-Param-Count": "43"}, {"count": 42}, "says '43'"),
        ({"Mcp-Param-Count": "42.5"}, {"count": 42}, "says '42.5'"),
        ({"Mcp-Param-Count": "4_2"}, {"count": 42}, "says '4_2'"),
        ({"Mcp-Param-Count": "+42"}, {"count": 42}, "says '\\+42'"),
        ({"Mcp-Param-Count": "=?base64?2aQ=?="}, {"count": 4}, "says '٤'"),
        ({"Mcp-Param-Count": "9007199254740992"}, {"count": 9007199254740993}, "says"),
        ({"Mcp-Param-Count": "1" * 5000}, {"count": 1}, "says"),
        ({"Mcp-Param-Count": "1"}, {"count": True}, "says '1'"),
        ({"Mcp-Param-Count": "true"}, {"count": 1}, "says 'true'"),
        ({"Mcp-Param-Dry-Run": "True"}, {"dry": True}, "says 'True'"),
        ({"Mcp-Param-Dry-Run": "1"}, {"dry": True}, "says '1'"),
    ],
)
def test_a_server_refuses_headers_that_say_something_else(headers: dict[str, str], arguments: Any, reason: str) -> None:
    """HDR-06, HDR-19, HDR-20, HDR-21: missing, different, unreadable, or without an argument in the body."""
    with pytest.raises(HeaderMismatch, match=reason):
        judge_parameters(head_of(headers), SPEC, arguments)


def test_a_header_that_came_twice_is_refused_though_both_say_the_same() -> None:
    """HDR-06: whoever took the first copy would disagree with whoever took the last."""
    headers = head_of([(b"mcp-param-region", b"a"), (b"mcp-param-region", b"a")])
    for arguments in ({"region": "a"}, {"region": "a, a"}, {"region": "\n"}, {}):
        with pytest.raises(HeaderMismatch):
            judge_parameters(headers, SPEC, arguments)


scalars = st.none() | st.booleans() | st.integers(-BIG, BIG) | st.text(st.characters(exclude_categories=["Cs"]))
arguments = st.fixed_dictionaries(
    {},
    optional={
        "region": scalars,
        "count": scalars | st.floats(-1e15, 1e15),
        "dry": scalars,
        "where": scalars | st.fixed_dictionaries({}, optional={"zone": scalars | st.lists(st.integers())}),
    },
)


@given(arguments)
def test_what_a_client_sends_is_what_a_server_accepts(values: dict[str, Any]) -> None:
    """HDR-13, HDR-14, HDR-16, HDR-17, HDR-20, HDR-21, both ends of one call."""
    judge_parameters(head_of(param_headers(SPEC, values)), SPEC, values)


@given(st.dictionaries(st.sampled_from([param.raw_name for param in SPEC]), st.binary(max_size=30)), arguments)
def test_any_headers_are_accepted_or_a_mismatch(raw: dict[bytes, bytes], values: dict[str, Any]) -> None:
    with suppress(HeaderMismatch):
        judge_parameters(head_of(raw), SPEC, values)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "anyOf", "$defs", "type", "x-mcp-header", "const", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json)
def test_any_schema_is_read_or_refused_with_a_reason(schema: Any) -> None:
    """A hostile list of tools drops its bad tools, nothing else."""
    with suppress(DefinitionError):
        for param in collect_param_headers(schema):
            assert param.path
