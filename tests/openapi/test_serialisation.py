"""How arguments are written into requests, as a real HTTP server receives them.

The expected texts are those of https://spec.openapis.org/oas/v3.1.1.html ("Style Examples", "Encoding Object", "XML Object",
appendix C), where it has an example.
"""

from __future__ import annotations

import base64
import json
from email.parser import BytesParser
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import Client, ToolCallError, ToolError
from gemel.openapi import Operation, server_from
from gemel.openapi.document import Document
from tests.transports.scripted_http import Answer, Asked, ScriptedServer

ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}


async def received(
    operation: dict[str, Any], arguments: dict[str, Any], path: str = "/x", version: str = "3.1.1", **root: Any
) -> Asked:
    """Call a tool of one operation; return the request that the API got."""

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.json({})

    document = {"openapi": version, "paths": {path: {"post": {"operationId": "op", **operation}}}, **root}
    async with ScriptedServer(script) as api:
        async with Client(server_from(document, base_url=f"http://127.0.0.1:{api.port}")) as client:
            await client.call_tool("op", arguments)
        (asked,) = api.asked
    return asked


def parameter(place: str, **more: Any) -> dict[str, Any]:
    given = {key: value for key, value in more.items() if value is not None}
    schema: dict[str, Any] = {} if "content" in given else {"schema": {}}
    return {"name": "color", "in": place, "required": place == "path", **schema, **given}


STYLES = [
    # place, style, explode, value, as it is received
    ("path", "matrix", False, "", "/x/;color"),
    ("path", "matrix", False, "blue", "/x/;color=blue"),
    ("path", "matrix", False, ARRAY, "/x/;color=blue,black,brown"),
    ("path", "matrix", False, OBJECT, "/x/;color=R,100,G,200,B,150"),
    ("path", "matrix", True, "", "/x/;color"),
    ("path", "matrix", True, "blue", "/x/;color=blue"),
    ("path", "matrix", True, ARRAY, "/x/;color=blue;color=black;color=brown"),
    ("path", "matrix", True, OBJECT, "/x/;R=100;G=200;B=150"),
    ("path", "label", False, "blue", "/x/.blue"),
    ("path", "label", False, ARRAY, "/x/.blue,black,brown"),
    ("path", "label", False, OBJECT, "/x/.R,100,G,200,B,150"),
    ("path", "label", True, "blue", "/x/.blue"),
    ("path", "label", True, ARRAY, "/x/.blue.black.brown"),
    ("path", "label", True, OBJECT, "/x/.R=100.G=200.B=150"),
    ("path", "simple", False, "blue", "/x/blue"),
    ("path", "simple", False, ARRAY, "/x/blue,black,brown"),
    ("path", "simple", False, OBJECT, "/x/R,100,G,200,B,150"),
    ("path", "simple", True, ARRAY, "/x/blue,black,brown"),
    ("path", "simple", True, OBJECT, "/x/R=100,G=200,B=150"),
    ("path", None, None, ARRAY, "/x/blue,black,brown"),
    ("path", None, None, OBJECT, "/x/R,100,G,200,B,150"),
    ("path", None, None, ["a,b", "c/d", None], "/x/a%2Cb,c%2Fd"),
    ("path", None, None, "diṅnāga", "/x/di%E1%B9%85n%C4%81ga"),
    ("query", "form", False, "", "/x?color="),
    ("query", "form", False, "blue", "/x?color=blue"),
    ("query", "form", False, ARRAY, "/x?color=blue,black,brown"),
    ("query", "form", False, OBJECT, "/x?color=R,100,G,200,B,150"),
    ("query", "form", True, "", "/x?color="),
    ("query", "form", True, "blue", "/x?color=blue"),
    ("query", "form", True, ARRAY, "/x?color=blue&color=black&color=brown"),
    ("query", "form", True, OBJECT, "/x?R=100&G=200&B=150"),
    ("query", None, None, ARRAY, "/x?color=blue&color=black&color=brown"),
    ("query", None, None, OBJECT, "/x?R=100&G=200&B=150"),
    ("query", None, None, True, "/x?color=true"),
    ("query", None, None, 1.5, "/x?color=1.5"),
    ("query", None, None, ["one thing", "another thing"], "/x?color=one%20thing&color=another%20thing"),
    ("query", "form", False, ["math", "b,c"], "/x?color=math,b%2Cc"),
    ("query", "form", True, {"a": "x+y", "b": "x/y", "c": "x^y"}, "/x?a=x%2By&b=x%2Fy&c=x%5Ey"),
    ("query", "spaceDelimited", False, ARRAY, "/x?color=blue%20black%20brown"),
    ("query", "spaceDelimited", False, OBJECT, "/x?color=R%20100%20G%20200%20B%20150"),
    ("query", "spaceDelimited", None, ARRAY, "/x?color=blue%20black%20brown"),
    ("query", "pipeDelimited", False, ARRAY, "/x?color=blue%7Cblack%7Cbrown"),
    ("query", "pipeDelimited", False, OBJECT, "/x?color=R%7C100%7CG%7C200%7CB%7C150"),
    ("query", "deepObject", True, OBJECT, "/x?color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    ("query", "deepObject", None, {"a": {"b": 1}, "c": [2, 3]}, "/x?color[a][b]=1&color[c][]=2&color[c][]=3"),
    ("query", None, None, [], "/x"),
    ("query", None, None, {"a": None}, "/x"),
    ("query", None, None, None, "/x"),
    ("header", "simple", False, "blue", "blue"),
    ("header", "simple", False, ARRAY, "blue,black,brown"),
    ("header", "simple", False, OBJECT, "R,100,G,200,B,150"),
    ("header", "simple", True, ARRAY, "blue,black,brown"),
    ("header", "simple", True, OBJECT, "R=100,G=200,B=150"),
    ("header", None, None, [12345678, 90099], "12345678,90099"),
    ("header", None, None, "50% of 'a b'; c", "50% of 'a b'; c"),
    ("cookie", "form", False, "blue", "color=blue"),
    ("cookie", "form", False, ARRAY, "color=blue,black,brown"),
    ("cookie", "form", False, OBJECT, "color=R,100,G,200,B,150"),
    ("cookie", "form", True, ARRAY, "color=blue; color=black; color=brown"),
    ("cookie", "form", True, OBJECT, "R=100; G=200; B=150"),
    ("cookie", None, None, "Hello, world!", "color=Hello%2C%20world%21"),
    ("cookie", "cookie", None, {"greeting": "Hello%2C world!", "code": 42}, "greeting=Hello%2C world!; code=42"),
]


def place_of(asked: Asked, place: str) -> str:
    return {"header": asked.headers.get("color"), "cookie": asked.headers.get("cookie")}.get(place, asked.path) or ""


@pytest.mark.parametrize(("place", "style", "explode", "value", "expected"), STYLES)
async def test_a_parameter_is_written_in_its_style(
    place: str, style: str | None, explode: bool | None, value: Any, expected: str
) -> None:
    operation = {"parameters": [parameter(place, style=style, explode=explode)]}
    asked = await received(operation, {"color": value}, "/x/{color}" if place == "path" else "/x")
    found = place_of(asked, place)
    assert (unquote(found) if "[" in expected else found) == expected


CONTENT = [
    ("query", "application/json", {"lat": 10, "long": 60}, "/x?color=%7B%22lat%22%3A10%2C%22long%22%3A60%7D"),
    ("query", "text/plain", "a b&c", "/x?color=a%20b%26c"),
    ("path", "application/json", [1, "/"], "/x/%5B1%2C%22%2F%22%5D"),
    ("header", "application/json", {"name": "ü"}, '{"name":"\\u00fc"}'),
    ("header", "text/plain", 'for="_gazonk"; proto=http', 'for="_gazonk"; proto=http'),
    ("cookie", "text/plain", "a%20b", "color=a%20b"),
    ("cookie", "application/json", {"a": 1}, "color=%7B%22a%22%3A1%7D"),
]


@pytest.mark.parametrize(("place", "media", "value", "expected"), CONTENT)
async def test_a_parameter_with_content_is_written_in_its_media_type(
    place: str, media: str, value: Any, expected: str
) -> None:
    operation = {"parameters": [parameter(place, content={media: {}})]}
    asked = await received(operation, {"color": value}, "/x/{color}" if place == "path" else "/x")
    assert place_of(asked, place) == expected


async def test_several_parameters_are_one_query_string() -> None:
    """Appendix C: `{?formulas*,words}`, and with allowReserved and spaceDelimited."""
    words = {"name": "words", "in": "query", "explode": False, "schema": {"type": "array"}}
    formulas = {"name": "formulas", "in": "query", "schema": {"type": "object"}}
    values: dict[str, Any] = {
        "formulas": {"a": "x+y", "b": "x/y", "c": "x^y"},
        "words": ["math", "is", "fun"],
    }
    asked = await received({"parameters": [formulas, words]}, values)
    assert asked.path == "/x?a=x%2By&b=x%2Fy&c=x%5Ey&words=math,is,fun"
    reserved = [{**formulas, "allowReserved": True}, {**words, "style": "spaceDelimited"}]
    asked = await received({"parameters": reserved}, values)
    assert asked.path == "/x?a=x%2By&b=x/y&c=x%5Ey&words=math%20is%20fun"
    asked = await received({"parameters": [formulas, words]}, {"formulas": {}, "words": ["hello", "world"]})
    assert asked.path == "/x?words=hello,world"


async def test_reserved_characters_and_triplets_pass_where_the_document_allows_it() -> None:
    operation = {"parameters": [parameter("query", allowReserved=True)]}
    asked = await received(operation, {"color": "a/b?c%2Fd 100%&e=[f]#"})
    assert asked.path == "/x?color=a/b?c%2Fd%20100%25%26e%3D%5Bf%5D%23"


async def test_names_that_urls_can_not_hold_are_encoded() -> None:
    operation = {
        "parameters": [{"name": "❤️", "in": "query", "schema": {}}, {"name": "ids[]", "in": "query", "schema": {}}]
    }
    asked = await received(operation, {"❤️": "love!", "ids[]": [1, 2]})
    assert asked.path == "/x?%E2%9D%A4%EF%B8%8F=love%21&ids%5B%5D=1&ids%5B%5D=2"
    asked = await received({"parameters": [parameter("path")]}, {"color": "a"}, "/größe von/{color}.json")
    assert asked.path == "/gr%C3%B6%C3%9Fe%20von/a.json"


@pytest.mark.parametrize(
    ("place", "more", "value", "words"),
    [
        ("path", {}, [], "can't be a segment"),
        ("path", {}, None, "can't be a segment"),
        ("path", {}, [None], "can't be a segment"),
        ("path", {"style": "label"}, "", "can't be a segment"),
        ("path", {"style": "label"}, ".", "can't be a segment"),
        ("path", {"style": "label", "explode": True}, ["", ""], "can't be a segment"),
        ("path", {"style": "label"}, {}, "can't be a segment"),
        ("path", {"style": "matrix"}, "/../x", "can't be a segment"),
        ("path", {}, ["a", "/../b"], "can't be a segment"),
        ("cookie", {"style": "cookie"}, "a; b=c", "a cookie can't contain"),
        ("cookie", {"content": {"text/plain": {}}}, "ü", "a cookie can't contain"),
        ("cookie", {"style": "cookie"}, {"a=b": "c"}, "a cookie can't contain"),
        ("header", {}, ["a\r\nEvil: 1"], "a header can't contain"),
    ],
)
async def test_what_would_leave_its_place_is_never_sent(place: str, more: Any, value: Any, words: str) -> None:
    operation = {"parameters": [parameter(place, **more)]}
    with pytest.raises(ToolCallError, match=words):
        await received(operation, {"color": value}, "/x/{color}" if place == "path" else "/x")


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)),
    st.sampled_from(["simple", "label", "matrix"]),
    st.booleans(),
)
def test_whatever_the_value_a_path_has_the_segments_of_its_template(value: Any, style: str, explode: bool) -> None:
    operation = {"parameters": [parameter("path", style=style, explode=explode)]}
    made = Operation(Document({"openapi": "3.1.0"}), "/a/.{color}/b", "get", operation, {})
    try:
        url = made.request("https://h/base", {"color": value}).url
    except (ToolError, UnicodeEncodeError):
        return
    parts = url.removeprefix("https://h/base/").split("/")
    assert (len(parts), parts[0], parts[2]) == (3, "a", "b")
    assert parts[1] not in ("", ".", "..")
    assert parts[1].isascii()
    assert not set(parts[1]) & set("?#/\\")


# ---------------------------------------------------------------- bodies


def body(kind: str, schema: Any = None, encoding: Any = None, **kinds: Any) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": schema} if schema is not None else {}
    media |= {"encoding": encoding} if encoding is not None else {}
    return {"requestBody": {"content": {kind: media, **{name.replace("_", "/"): {} for name in kinds}}}}


ADDRESS = {"streetAddress": "123 Example Dr.", "city": "Somewhere", "state": "CA", "zip": "99999+1234"}
UUID = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
FORM = "application/x-www-form-urlencoded"
FORMULAS = {"a": "x+y", "b": "x/y", "c": "x^y"}


def form_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


FORMS = [
    # encoding, value, as it is received
    (
        None,
        {"id": UUID, "address": ADDRESS},
        f"id={UUID}&address=%7B%22streetAddress%22%3A%22123+Example+Dr.%22%2C%22city%22%3A%22Somewhere%22%2C"
        "%22state%22%3A%22CA%22%2C%22zip%22%3A%2299999%2B1234%22%7D",
    ),
    ({"id": {"contentType": "application/json"}}, {"id": UUID}, f"id=%22{UUID}%22"),
    (None, {"icon": "iVBORw0KGg_-AAg=="}, "icon=iVBORw0KGg_-AAg%3D%3D"),
    (None, {"icon": "a", "none": None, "list": [], "flag": False}, "icon=a&flag=false"),
    (None, {"list": [1, "a b", {"c": 1}]}, "list=1&list=a+b&list=%7B%22c%22%3A1%7D"),
    ({"list": {"style": "form"}}, {"list": ["a b", 2]}, "list=a%20b&list=2"),
    ({"list": {"explode": False}}, {"list": ["a,b", 2]}, "list=a%2Cb,2"),
    ({"list": {"style": "spaceDelimited"}}, {"list": ["a", "b"]}, "list=a%20b"),
    ({"list": {"style": "pipeDelimited"}}, {"list": ["a", "b"]}, "list=a%7Cb"),
    ({"map": {"style": "deepObject"}}, {"map": {"a": 1}}, "map%5Ba%5D=1"),
    ({"map": {"style": "form"}}, {"map": FORMULAS}, "a=x%2By&b=x%2Fy&c=x%5Ey"),
    ({"map": {"allowReserved": True}}, {"map": {**FORMULAS, "a": "x%2By"}}, "a=x%2By&b=x/y&c=x%5Ey"),
    ({"icon": {"contentType": "text/plain; charset=latin-1"}}, {"icon": "ü"}, "icon=%FC"),
]


@pytest.mark.parametrize(("encoding", "value", "expected"), FORMS)
async def test_a_form_is_written_as_its_encodings_say(encoding: Any, value: Any, expected: str) -> None:
    icon = {"type": "string", "contentEncoding": "base64url"}
    asked = await received(body(FORM, form_of(icon=icon), encoding), {"body": value})
    assert asked.headers["content-type"] == FORM
    assert asked.body.decode() == expected


def parts_of(asked: Asked) -> list[tuple[str, str | None, str | None, dict[str, str], bytes]]:
    """Name, file name, media type, further headers and content of each part."""
    head = b"Content-Type: " + asked.headers["content-type"].encode() + b"\r\n\r\n"
    message = BytesParser().parsebytes(head + asked.body)
    payload: Any = message.get_payload()
    found = []
    for part in payload:
        headers = {name.lower(): value for name, value in part.items()}
        kind = headers.pop("content-type", None)
        del headers["content-disposition"]
        transfer = headers.get("content-transfer-encoding")
        data = part.get_payload().encode() if transfer else part.get_payload(decode=True)
        name = part.get_param("name", header="content-disposition")
        found.append((name, part.get_filename(), kind, headers, data))
    return found


PNG = bytes(range(256))
PNG64 = base64.b64encode(PNG).decode()
RAW: dict[str, Any] = {"type": "string", "format": "binary"}
OCTETS = "application/octet-stream"

MULTIPARTS: list[tuple[dict[str, Any], Any, dict[str, Any], list[Any]]] = [
    # properties, encoding, value, parts
    (
        {"id": {"type": "string", "format": "uuid"}, "profileImage": RAW, "addresses": {"type": "array"}},
        None,
        {"id": UUID, "profileImage": PNG64, "addresses": [ADDRESS, {}]},
        [
            ("id", None, None, {}, UUID.encode()),
            ("profileImage", "profileImage", OCTETS, {}, PNG),
            ("addresses", None, "application/json", {}, json.dumps(ADDRESS, separators=(",", ":")).encode()),
            ("addresses", None, "application/json", {}, b"{}"),
        ],
    ),
    (
        {"image": RAW},
        {"image": {"contentType": "image/png, image/jpeg", "headers": {"X-Kind": {"schema": {"const": "a b"}}}}},
        {"image": PNG64},
        [("image", "image", "image/png", {"x-kind": "a b"}, PNG)],
    ),
    (
        {"image": RAW},
        {"image": {"contentType": "image/png, image/jpeg"}},
        {"image": f"data:image/jpeg;base64,{PNG64}"},
        [("image", "image", "image/jpeg", {}, PNG)],
    ),
    ({"image": RAW}, {"image": {"contentType": "image/*"}}, {"image": PNG64}, [("image", "image", OCTETS, {}, PNG)]),
    (
        {"file": {"type": "array", "items": {}}},
        None,
        {"file": [PNG64, "data:text/plain;base64,aGk="]},
        [("file", "file", OCTETS, {}, PNG), ("file", "file", "text/plain", {}, b"hi")],
    ),
    (
        {"file": {"anyOf": [{"contentMediaType": OCTETS, "type": "string"}, {"type": "null"}]}},
        None,
        {"file": PNG64},
        [("file", "file", OCTETS, {}, PNG)],
    ),
    (
        {"icon": {"type": "string", "contentEncoding": "base64"}},
        None,
        {"icon": PNG64},
        [("icon", None, OCTETS, {"content-transfer-encoding": "base64"}, PNG64.encode())],
    ),
    (
        {"note": {"type": "string"}},
        {"note": {"contentType": "text/markdown"}},
        {"note": "ü"},
        [("note", None, "text/markdown; charset=utf-8", {}, "ü".encode())],
    ),
    ({"n": {"type": "number"}}, None, {"n": 1, "more": True, "no": None}, [
        ("n", None, None, {}, b"1"), ("more", None, None, {}, b"true"),
    ]),
    (
        {"list": {"type": "array"}},
        {"list": {"style": "pipeDelimited"}},
        {"list": ["a b", "c"]},
        [("list", None, None, {}, b"a b|c")],
    ),
    (
        {"map": {"type": "object"}},
        {"map": {"style": "deepObject"}},
        {"map": {"a": 1}},
        [("map[a]", None, None, {}, b"1")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("properties", "encoding", "value", "parts"), MULTIPARTS)
async def test_a_multipart_form_is_written_as_its_encodings_say(
    properties: Any, encoding: Any, value: Any, parts: Any
) -> None:
    asked = await received(body("multipart/form-data", form_of(**properties), encoding), {"body": value})
    assert asked.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert parts_of(asked) == parts


async def test_a_multipart_body_keeps_its_own_type_and_names_are_utf_8() -> None:
    asked = await received(body("multipart/mixed", form_of()), {"body": {'straße "1"': "x"}})
    assert asked.headers["content-type"].startswith("multipart/mixed; boundary=")
    assert 'name="straße %221%22"' in asked.body.decode()


async def test_styles_of_multipart_bodies_are_those_of_3_1() -> None:
    """In 3.0 they "SHALL be ignored"."""
    encoding = {"list": {"style": "pipeDelimited"}}
    described = body("multipart/form-data", form_of(list={"type": "array", "items": {"type": "string"}}), encoding)
    asked = await received(described, {"body": {"list": ["a", "b"]}}, version="3.0.4")
    assert [part[4] for part in parts_of(asked)] == [b"a", b"b"]


WHOLE: list[tuple[dict[str, Any], Any, str, bytes]] = [
    # body, value, Content-Type, as it is received
    (body("application/json"), {"a": [1, None]}, "application/json", b'{"a":[1,null]}'),
    (body("application/json; charset=utf-8"), "ü", "application/json; charset=utf-8", '"ü"'.encode()),
    (body("application/merge-patch+json"), {"a": None}, "application/merge-patch+json", b'{"a":null}'),
    (body("*/*"), {"a": 1}, "application/json", b'{"a":1}'),
    (body("text/plain"), "a", "text/plain", b"a"),
    (body("text/plain"), "ü", "text/plain; charset=utf-8", "ü".encode()),
    (body("text/csv; charset=latin-1"), "ü", "text/csv; charset=latin-1", b"\xfc"),
    (body("text/*"), "a", "text/plain", b"a"),
    (body("text/plain", {"type": "integer"}), 5, "text/plain", b"5"),
    (body("application/yaml"), "a: 1", "application/yaml", b"a: 1"),
    (body("application/xml"), "<a/>", "application/xml", b"<a/>"),
    (body(OCTETS), PNG64, OCTETS, PNG),
    (body(OCTETS, RAW), PNG64, OCTETS, PNG),
    (body(OCTETS, {"type": "string", "contentEncoding": "base64"}), PNG64, OCTETS, PNG64.encode()),
    (body("image/png", {}), PNG64, "image/png", PNG),
    (body("image/png", image_jpeg=1), f"data:image/jpeg;base64,{PNG64}", "image/jpeg", PNG),
    (body("image/*"), f"data:image/gif;base64,{PNG64}", "image/gif", PNG),
    (body("application/xml", application_json=1), {"a": 1}, "application/json", b'{"a":1}'),
]


@pytest.mark.parametrize(("described", "value", "kind", "expected"), WHOLE)
async def test_a_body_is_sent_as_its_media_type(described: Any, value: Any, kind: str, expected: bytes) -> None:
    asked = await received(described, {"body": value})
    assert (asked.headers["content-type"], asked.body) == (kind, expected)


@pytest.mark.parametrize(
    ("described", "value", "words"),
    [
        (
            body("image/png", image_jpeg=1),
            "data:image/gif;base64,AA==",
            "the API takes image/png, image/jpeg, not image/gif",
        ),
        (body("image/png"), "?", "body: expected a file as base64"),
        (body("text/plain; charset=ascii"), "ü", "body: ascii has no 'ü', which the API wants"),
        (body("multipart/form-data", form_of(f=RAW)), {"f": "?"}, "f: expected a file as base64"),
        (body("application/xml", form_of(a={})), {"a": "\0"}, "XML can't hold"),
        (body("application/xml", form_of(a={})), {"a b": "c"}, "can't be the name of an element"),
    ],
)
async def test_a_body_that_its_media_type_can_not_hold_is_told(described: Any, value: Any, words: str) -> None:
    with pytest.raises(ToolCallError, match=words):
        await received(described, {"body": value})


SAMPLE = "https://example.com/schema/sample"
ANIMAL: dict[str, Any] = {"type": "string", "xml": {"name": "animal"}}
XML: list[tuple[dict[str, Any], Any, str]] = [
    # the schema of `animals`, its value, the XML within the root
    ({"type": "string"}, "a & <b>", "<animals>a &amp; &lt;b&gt;</animals>"),
    ({"type": "array", "items": {"type": "string"}}, ["a", "b"], "<animals>a</animals><animals>b</animals>"),
    (ANIMAL, "a", "<animal>a</animal>"),
    ({"type": "array", "items": ANIMAL}, ["a", "b"], "<animal>a</animal><animal>b</animal>"),
    (
        {"type": "array", "items": ANIMAL, "xml": {"name": "aliens"}},
        ["a", "b"],
        "<animal>a</animal><animal>b</animal>",
    ),
    (
        {"type": "array", "items": {"type": "string"}, "xml": {"wrapped": True}},
        ["a", "b"],
        "<animals><animals>a</animals><animals>b</animals></animals>",
    ),
    ({"type": "array", "items": ANIMAL, "xml": {"wrapped": True}}, ["a"], "<animals><animal>a</animal></animals>"),
    (
        {"type": "array", "items": ANIMAL, "xml": {"name": "aliens", "wrapped": True}},
        ["a"],
        "<aliens><animal>a</animal></aliens>",
    ),
    (
        {"type": "array", "items": {"type": "string"}, "xml": {"name": "aliens", "wrapped": True}},
        ["a"],
        "<aliens><aliens>a</aliens></aliens>",
    ),
    (
        form_of(
            id={"type": "integer", "xml": {"attribute": True}},
            name={"type": "string", "xml": {"namespace": SAMPLE, "prefix": "sample"}},
        ),
        {"name": "example", "id": 123, "none": None},
        f'<animals id="123"><sample:name xmlns:sample="{SAMPLE}">example</sample:name></animals>',
    ),
]


@pytest.mark.parametrize(("schema", "value", "expected"), XML)
async def test_a_body_is_written_as_xml(schema: Any, value: Any, expected: str) -> None:
    """ "XML Object Examples": the value of a property `animals` of the component Zoo."""
    components = {"schemas": {"Zoo": form_of(animals=schema)}}
    described = body("application/xml", {"$ref": "#/components/schemas/Zoo"})
    asked = await received(described, {"body": {"animals": value}}, components=components)
    assert asked.headers["content-type"] == "application/xml"
    assert asked.body.decode() == f'<?xml version="1.0" encoding="UTF-8"?><Zoo>{expected}</Zoo>'


# ---------------------------------------------------------------- what is listed


async def test_members_of_the_other_direction_are_not_asked_for() -> None:
    """`readOnly` is only in responses, and `writeOnly` only in requests, even if they are required."""
    person = {
        **form_of(
            id={"$ref": "#/components/schemas/Id"},
            name={"type": "string"},
            password={"type": "string", "writeOnly": True},
        ),
        "required": ["id", "name", "password"],
    }
    reference = {"schema": {"$ref": "#/components/schemas/Person"}}
    document = {
        "openapi": "3.0.4",
        "components": {"schemas": {"Person": person, "Id": {"type": "integer", "readOnly": True}}},
        "paths": {
            "/people": {
                "post": {
                    "operationId": "add",
                    "requestBody": {"required": True, "content": {"application/json": reference}},
                    "responses": {"201": {"content": {"application/json": reference}}},
                }
            }
        },
    }

    async def fetch(*request: Any) -> Any:
        return 201, {"content-type": "application/json"}, b'{"id":1,"name":"Ada"}'

    async with Client(server_from(document, fetch, base_url="https://h")) as client:
        (tool,) = await client.list_tools()
        asked: Any = tool.input_schema["properties"]["body"]
        answered: Any = tool.output_schema
        assert (list(asked["properties"]), asked["required"]) == (["name", "password"], ["name", "password"])
        assert answered["required"] == ["id", "name"]
        result = await client.call_tool("add", {"body": {"name": "Ada", "password": "x"}})
        assert result.data == {"id": 1, "name": "Ada"}


async def test_files_are_listed_as_base64() -> None:
    properties = {
        "one": {**RAW, "description": "A photo."},
        "some": {"type": "array", "items": RAW},
        "name": {"type": "string"},
    }
    document = {
        "openapi": "3.1.1",
        "paths": {"/x": {"post": {"operationId": "op", **body("multipart/form-data", form_of(**properties))}}},
    }
    async with Client(server_from(document, base_url="https://h")) as client:
        (tool,) = await client.list_tools()
    listed: Any = tool.input_schema["properties"]["body"]
    assert listed["properties"] == {
        "one": {"type": "string", "contentEncoding": "base64", "description": "A photo., as base64"},
        "some": {
            "type": "array",
            "items": {"type": "string", "contentEncoding": "base64", "description": "A file, as base64"},
        },
        "name": {"type": "string"},
    }
